#include "measure/check_uring.hpp"

#include <fcntl.h>
#include <liburing.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "base/units.hpp"
#include "io/uring_ring.hpp"

namespace penstock {
namespace {

constexpr unsigned kEntries = 256;
constexpr std::uint64_t kLeastBytes = 64 * kKiB;

constexpr const char* kThreadsCost =
    "threads read and write instead: as fast in transfers of 1 MiB, for twice the CPU time "
    "(0.017 instead of 0.007 s a GB, measured on a virtual machine)";
constexpr const char* kPlainMemoryCost =
    "what is not registered is as fast, but registering saves up to 40 % of the CPU time with "
    "2 MiB pages and 60 to 85 % with 4 KiB pages (measured on a virtual machine)";

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

std::string uring_fix(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return "sysctl -w kernel.io_uring_disabled=0; in a container: docker run --security-opt "
             "seccomp=PROFILE, of a profile that allows io_uring_setup, io_uring_enter and "
             "io_uring_register";
    case ENOSYS:
      return "boot Linux 5.6 or newer with CONFIG_IO_URING, or allow io_uring_setup where a "
             "sandbox hides it";
    case ENOMEM:
      return "ulimit -l unlimited, LimitMEMLOCK=infinity of the service, or docker run --ulimit "
             "memlock=-1";
    case EMFILE:
    case ENFILE:
      return "ulimit -n 1024";
    default:
      return "dmesg | tail";
  }
}

void register_file(io_uring& ring, UringFacts& facts) {
  const int descriptor = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    facts.files_errno = errno;
    return;
  }
  facts.files_errno = -std::min(io_uring_register_files(&ring, &descriptor, 1), 0);
  ::close(descriptor);
}

void register_memory(io_uring& ring, std::span<std::byte> memory, UringFacts& facts) {
  for (std::uint64_t bytes = memory.size(); bytes >= kLeastBytes; bytes /= 2) {
    const iovec whole{memory.data(), bytes};
    const int result = io_uring_register_buffers(&ring, &whole, 1);
    if (result == 0) {
      facts.registered_bytes = bytes;
      (void)io_uring_unregister_buffers(&ring);  // ending the ring does the same
      return;
    }
    if (bytes == memory.size()) facts.buffers_errno = -result;
    if (result != -ENOMEM) return;  // less would be refused, too
  }
}

}  // namespace

UringFacts try_uring(std::span<std::byte> memory) {
  UringFacts facts;
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    facts.memlock_bytes = limit.rlim_cur;
  }
  facts.offered_bytes = memory.size();
  io_uring ring{};
  facts.ring = open_uring(ring, kEntries);
  if (!facts.ring) return facts;
  register_file(ring, facts);
  register_memory(ring, memory, facts);
  io_uring_queue_exit(&ring);
  return facts;
}

Check check_uring(const UringFacts& facts) {
  Check check{.name = "io_uring"};
  check.data = {{"granted", facts.ring.ok()}};
  if (!facts.ring) {
    const Error& error = facts.ring.error();
    check.data.emplace_back("errno", std::uint64_t(static_cast<unsigned>(error.sys_errno)));
    check.found(CheckStatus::kWarn,
                fmt::format("refused: {} ({})", errno_text(error.sys_errno), error.sys_errno),
                kThreadsCost, uring_fix(error.sys_errno));
    return check;
  }
  check.data.emplace_back("ring", facts.ring.value());
  check.data.emplace_back("registered_files", facts.files_errno == 0);
  check.found(CheckStatus::kOk,
              facts.ring.value() +
                  (facts.files_errno == 0
                       ? ", registered files"
                       : fmt::format(", no registered files ({})", errno_text(facts.files_errno))));
  return check;
}

Check check_registered_memory(const UringFacts& facts) {
  Check check{.name = "locked memory"};
  const std::string limit = facts.memlock_bytes
                                ? fmt::format("limit {}", format_bytes(*facts.memlock_bytes))
                                : std::string("no limit");
  check.data = {
      {"limit_bytes", facts.memlock_bytes ? CheckValue(*facts.memlock_bytes) : CheckValue()},
      {"registered_bytes", facts.registered_bytes}};
  if (!facts.ring || facts.offered_bytes == 0) {
    check.found(CheckStatus::kSkip,
                fmt::format("{}; not tried, {}", limit,
                            facts.ring ? "there was no memory for it" : "there is no io_uring"));
  } else if (facts.registered_bytes == facts.offered_bytes) {
    check.found(CheckStatus::kOk, fmt::format("{}, {} registered with io_uring", limit,
                                              format_bytes(facts.registered_bytes)));
  } else {
    check.found(CheckStatus::kWarn,
                fmt::format("{}: of {} io_uring registers {} ({})", limit,
                            format_bytes(facts.offered_bytes), format_bytes(facts.registered_bytes),
                            errno_text(facts.buffers_errno)),
                kPlainMemoryCost,
                facts.buffers_errno == ENOMEM ? uring_fix(ENOMEM) : "dmesg | tail");
  }
  return check;
}

}  // namespace penstock
