// Method: the tiny model trains for very many steps on real files. Nothing that the process holds
// may grow with the steps: its resident memory, descriptors, threads, mappings, locked and pinned
// bytes, and the space on the drive. The end has the bits of training in memory.
//
// PENSTOCK_LONG_STEPS sets how many steps (default 500); from a tenth of them on nothing grows.

#include <dirent.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "engine/simulated.hpp"
#include "sanitizers.hpp"

namespace penstock::testing {
namespace {

std::uint64_t count_entries(const char* directory) {
  std::uint64_t count = 0;
  DIR* open = ::opendir(directory);
  if (open == nullptr) return 0;
  while (::readdir(open) != nullptr) ++count;
  ::closedir(open);
  return count;
}

/// What the process holds now; sizes in KiB.
std::map<std::string, std::uint64_t> held_now(const std::string& store) {
  std::map<std::string, std::uint64_t> held;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t value = 0;
    words >> key >> value;
    for (const char* wanted : {"VmRSS:", "VmLck:", "VmPin:", "Threads:"}) {
      if (key == wanted) held[key] = value;
    }
  }
  held["descriptors"] = count_entries("/proc/self/fd");
  held["files"] = count_entries(store.c_str());
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(store)) bytes += entry.file_size();
  held["store"] = bytes / 1024;
  return held;
}

std::uint64_t wanted_steps() {
  const char* text = std::getenv("PENSTOCK_LONG_STEPS");
  const std::uint64_t wanted = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
  return wanted != 0 ? wanted : 500;
}

class LongRunTest : public ::testing::TestWithParam<Setup::Queue> {};

TEST_P(LongRunTest, HoldsNoMoreAtItsEndThanEarlyOn) {
  constexpr std::uint64_t kSlackKiB = 1024;
  constexpr std::uint64_t kWorkers = 4;  // of the executor and of the kernel's rings, begun late
  const std::uint64_t steps = wanted_steps(), early = steps / 10;
  Script script;
  script.steps.assign(steps, StepKind::kNormal);
  RunSetup setup;
  setup.queue = GetParam();
  setup.threads = 2;
  setup.commit_every = 2;
  const ModelSpec model = tiny_model();
  const TemporaryDirectory directory("/dev/shm");
  std::map<std::string, std::uint64_t> before, after;
  {
    World world(setup);
    auto made =
        make_engine(world.parts(setup), engine_options(setup, model, directory.store()), model);
    ASSERT_TRUE(made) << made.error().message;
    const TrainerWeights none;
    Runner runner(*made.value(), model, setup, none);
    runner.norms.reserve(steps);
    for (std::uint64_t step = 1; step <= steps; ++step) {
      const Status done = runner.run_step(step, script);
      ASSERT_TRUE(done) << "step " << step << ": " << done.error().message;
      if (step == early) before = held_now(directory.store());
    }
    const Status flushed = made.value()->flush();
    ASSERT_TRUE(flushed) << flushed.error().message;
    after = held_now(directory.store());
  }
  ASSERT_EQ(before.size(), 7U);
  for (const auto& [what, value] : before) {
    std::printf("%s %llu at step %llu, %llu at step %llu\n", what.c_str(),
                static_cast<unsigned long long>(value), static_cast<unsigned long long>(early),
                static_cast<unsigned long long>(after[what]),
                static_cast<unsigned long long>(steps));
    if (what == "VmRSS:") {
      EXPECT_TRUE(kSanitized || after[what] <= value + kSlackKiB) << "resident memory grew";
    } else if (what == "Threads:") {
      EXPECT_LE(after[what], value + kWorkers) << what;
    } else if (what == "files" || what == "store") {
      EXPECT_LE(after[what], value + 64) << what;  // a manifest is made before an old one goes
    } else {
      EXPECT_EQ(after[what], value) << what;
    }
  }
  const Reference reference(model, script, setup.seed);
  auto storage = make_posix_storage();
  const auto content = content_of(*storage, directory.store());
  ASSERT_TRUE(content) << content.error().message;
  EXPECT_EQ(content.value().step, steps);
  EXPECT_EQ(content.value().hash, expected_hash(reference, steps));
}

INSTANTIATE_TEST_SUITE_P(Queues, LongRunTest,
                         ::testing::Values(Setup::Queue::kThreads, Setup::Queue::kUring),
                         [](const auto& info) {
                           return std::string(info.param == Setup::Queue::kUring ? "Uring"
                                                                                 : "Threads");
                         });

}  // namespace
}  // namespace penstock::testing
