#include "measure/fio.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "mem/arena.hpp"

extern "C" char** environ;

namespace penstock {
namespace {

using nlohmann::json;

constexpr int kPollMs = 50;  // how soon Ctrl-C is noticed
constexpr double kGraceSeconds = 10.0;
constexpr std::size_t kMostOutput = std::size_t{4} << 20;

/// A child process that is killed and waited for if it is still there when this dies.
class Child {
 public:
  Child() = default;
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
    close_output();
  }
  Child(const Child&) = delete;  // one process, one owner
  Child& operator=(const Child&) = delete;

  Status start(const std::string& program, const std::vector<std::string>& arguments,
               const std::vector<int>& descriptors);
  /// All it prints, until it closes its output.
  Result<std::string> read_all(std::uint64_t until_ns, const std::atomic<bool>& stop);
  /// Its exit status, as of waitpid.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  void close_output() {
    if (output_ >= 0) ::close(output_);
    output_ = -1;
  }
  pid_t pid_ = -1;
  int output_ = -1;
};

Error cannot_start(const std::string& program, int error) {
  return make_error(Errc::kIo,
                    fmt::format("{} cannot be started: {}; check the limits of processes and "
                                "memory",
                                program, std::generic_category().message(error)),
                    error);
}

Status Child::start(const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<int>& descriptors) {
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return cannot_start(program, errno);
  output_ = pipe_ends[0];
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
  // Onto itself: that alone takes close-on-exec away (glibc 2.29).
  for (const int descriptor : descriptors) {
    ::posix_spawn_file_actions_adddup2(&actions, descriptor, descriptor);
  }
  // This program blocks or ignores some signals; the other one must end at Ctrl-C.
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const int error =
      ::posix_spawn(&pid_, program.c_str(), &actions, &attributes, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  ::close(pipe_ends[1]);
  if (error == 0) return ok();
  pid_ = -1;
  return cannot_start(program, error);
}

Result<std::string> Child::read_all(std::uint64_t until_ns, const std::atomic<bool>& stop) {
  std::string text;
  char buffer[16384];
  for (;;) {
    if (stop.load()) return make_error(Errc::kCancelled, "stopped");
    if (now_ns() > until_ns || text.size() > kMostOutput) {
      return make_error(Errc::kTimeout,
                        "fio did not end in its time; it was stopped: check the drive and the "
                        "kernel log");
    }
    pollfd wanted{output_, POLLIN, 0};
    const int ready = ::poll(&wanted, 1, kPollMs);
    if (ready < 0 && errno != EINTR) return cannot_start("poll", errno);
    if (ready <= 0) continue;
    const ssize_t count = ::read(output_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

const char* name_of(FioPattern pattern) {
  switch (pattern) {
    case FioPattern::kRead:
      return "read";
    case FioPattern::kWrite:
      return "write";
    case FioPattern::kReadWrite:
      return "readwrite";
    case FioPattern::kRandomRead:
      return "randread";
  }
  return "read";
}

void add_job(std::vector<std::string>& words, const FioJob& job, std::size_t file,
             const char* pattern, std::uint64_t offset, std::uint64_t region, std::uint32_t depth) {
  words.push_back(fmt::format("--name={}{}", pattern, file));
  words.push_back(fmt::format("--filename=/proc/self/fd/{}", job.descriptors[file]));
  words.push_back(fmt::format("--rw={}", pattern));
  words.push_back(fmt::format("--bs={}", job.block_bytes));
  words.push_back(fmt::format("--iodepth={}", depth));
  words.push_back(fmt::format("--offset={}", offset));
  words.push_back(fmt::format("--size={}", region));
}

}  // namespace

Result<std::string> find_fio() {
  const char* path = std::getenv("PATH");
  std::istringstream directories(path == nullptr ? "/usr/bin:/bin" : path);
  std::string directory;
  while (std::getline(directories, directory, ':')) {
    const std::string program = (directory.empty() ? "." : directory) + "/fio";
    if (::access(program.c_str(), X_OK) == 0) return program;
  }
  return make_error(Errc::kUnsupported,
                    "--fio: fio is not installed; install it (Debian: apt-get install fio), or "
                    "leave --fio away");
}

bool has_hugetlb(std::uint64_t bytes) {
  std::ifstream meminfo("/proc/meminfo");
  std::string key, rest;
  std::uint64_t value = 0, free_pages = 0, page_bytes = 0;
  while (meminfo >> key >> value) {
    std::getline(meminfo, rest);
    if (key == "HugePages_Free:") free_pages = value;
    if (key == "Hugepagesize:") page_bytes = value * kKiB;
  }
  return free_pages * page_bytes >= bytes;
}

std::vector<std::string> fio_arguments(const FioJob& job) {
  std::vector<std::string> words = {"--output-format=json", "--ioengine=io_uring",
                                    "--direct=1",           "--thread",
                                    "--fixedbufs=1",        "--registerfiles=1",
                                    "--scramble_buffers=0", "--group_reporting",
                                    "--time_based",         "--lat_percentiles=1",
                                    "--clat_percentiles=0", "--percentile_list=50:99:99.9"};
  words.push_back(job.hugetlb ? "--mem=mmaphuge" : "--mem=mmap");
  const auto ms = [](double seconds) { return static_cast<std::uint64_t>(seconds * 1e3 + 0.5); };
  words.push_back(fmt::format("--ramp_time={}ms", ms(job.ramp_seconds)));
  words.push_back(fmt::format("--runtime={}ms",
                              std::max<std::uint64_t>(ms(job.seconds - job.ramp_seconds), 10)));
  for (std::size_t file = 0; file < job.descriptors.size(); ++file) {
    if (job.pattern != FioPattern::kReadWrite) {
      add_job(words, job, file, name_of(job.pattern), job.first_offset, job.region_bytes,
              job.depth);
      continue;
    }
    // Two jobs, as reads and writes come from two places: each has half of the depth and region.
    const std::uint64_t half = job.region_bytes / 2 / job.block_bytes * job.block_bytes;
    const std::uint32_t depth = std::max(job.depth / 2, 1U);
    add_job(words, job, file, "read", job.first_offset, half, depth);
    add_job(words, job, file, "write", job.first_offset + half, half, depth);
  }
  return words;
}

Result<RoundFigures> parse_fio(std::string_view output, const FioJob& job) {
  const auto unexpected = [&](std::string_view what) {
    return make_error(Errc::kCorrupt,
                      fmt::format("fio's report is not as expected ({}): {}", what,
                                  output.substr(0, std::min<std::size_t>(output.size(), 300))));
  };
  const std::size_t begin = output.find('{');
  if (begin == std::string_view::npos) return unexpected("no JSON");
  try {
    const json value = json::parse(output.substr(begin));
    RoundFigures figures;
    double read = 0.0, written = 0.0, cpu_seconds = 0.0, moved = 0.0;
    for (const json& one : value.at("jobs")) {
      if (one.at("error").get<int>() != 0) {
        return make_error(Errc::kIo,
                          fmt::format("fio reports error {}", one.at("error").get<int>()));
      }
      read += one.at("read").at("bw_bytes").get<double>();
      written += one.at("write").at("bw_bytes").get<double>();
      moved += one.at("read").at("io_bytes").get<double>() +
               one.at("write").at("io_bytes").get<double>();
      cpu_seconds += (one.at("usr_cpu").get<double>() + one.at("sys_cpu").get<double>()) * 0.01 *
                     one.at("job_runtime").get<double>() * 1e-3;
      figures.window_seconds =
          std::max({figures.window_seconds, one.at("read").at("runtime").get<double>() * 1e-3,
                    one.at("write").at("runtime").get<double>() * 1e-3});
    }
    figures.bytes_per_second = read + written;
    if (figures.bytes_per_second <= 0.0) return unexpected("nothing was moved");
    figures.read_share = read / (read + written);
    if (moved > 0.0) figures.cpu_seconds_per_gb = cpu_seconds / (moved * 1e-9);
    figures.dropped_seconds = job.ramp_seconds;
    if (job.pattern != FioPattern::kReadWrite && value.at("jobs").size() == 1) {
      const char* side = job.pattern == FioPattern::kWrite ? "write" : "read";
      const json& latency = value.at("jobs").at(0).at(side).at("lat_ns");
      const json& shares = latency.at("percentile");
      figures.latency = {shares.at("50.000000").get<double>(), shares.at("99.000000").get<double>(),
                         shares.at("99.900000").get<double>(), latency.at("max").get<double>(),
                         latency.at("N").get<std::size_t>()};
      figures.mean_depth = latency.at("mean").get<double>() * 1e-9 * figures.bytes_per_second /
                           static_cast<double>(job.block_bytes);
    }
    return figures;
  } catch (const json::exception& error) {
    return unexpected(error.what());
  }
}

Result<RoundFigures> run_fio(const std::string& program, const FioJob& job,
                             const std::atomic<bool>& stop) {
  Child child;
  PENSTOCK_CHECK_OK(child.start(program, fio_arguments(job), job.descriptors));
  const auto limit_ns = static_cast<std::uint64_t>((job.seconds + kGraceSeconds) * 1e9);
  PENSTOCK_TAKE(output, child.read_all(now_ns() + limit_ns, stop));
  const int status = child.wait();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    if (stop.load()) return make_error(Errc::kCancelled, "stopped");
    std::string said = output.substr(0, output.find('{'));
    while (!said.empty() && (said.back() == '\n' || said.back() == ' ')) said.pop_back();
    std::replace(said.begin(), said.end(), '\n', ' ');
    return make_error(Errc::kIo, fmt::format("fio failed: {}; run it by hand to see more",
                                             said.empty() ? "it said nothing" : said));
  }
  return parse_fio(output, job);
}

}  // namespace penstock
