#include "io/uring_ring.hpp"

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

namespace penstock {

namespace {

std::string_view remedy(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return "a seccomp profile or the sysctl kernel.io_uring_disabled forbids it: allow "
             "io_uring_setup in the container's profile, or set the sysctl to 0";
    case ENOSYS:
      return "this kernel has no io_uring: use Linux 5.6 or newer with CONFIG_IO_URING";
    case ENOMEM:
      return "the limit of locked memory is too small for a ring: raise \"ulimit -l\" to 1024 or "
             "more";
    case EMFILE:
    case ENFILE:
      return "no file descriptor is left: raise \"ulimit -n\"";
    default:
      return "check the kernel log";
  }
}

/// Plain reads and writes came with this feature in 5.6. A probe would tell the same, but is a call
/// to io_uring_register, which some profiles forbid while the ring itself works.
bool supports_transfers(const io_uring& ring) {
  return (ring.features & IORING_FEAT_RW_CUR_POS) != 0;
}

struct Choice {
  unsigned flags;
  const char* words;
};

}  // namespace

Result<std::string> open_uring(io_uring& ring, unsigned entries) {
  static constexpr Choice kChoices[] = {
      {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
       "single issuer and deferred task work"},
      {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, "cooperative task work"},
      {0, "no extra features"},
  };
  int error = 0;
  for (unsigned count = entries; count >= 8; count /= 4) {
    for (const Choice& choice : kChoices) {
      error = -io_uring_queue_init(count, &ring, choice.flags);
      if (error == 0) {
        if (!supports_transfers(ring)) {
          io_uring_queue_exit(&ring);
          return make_error(Errc::kUnsupported,
                            "set up io_uring: the kernel's lacks plain reads and writes; use Linux "
                            "5.6 or newer",
                            EOPNOTSUPP);
        }
        return fmt::format("io_uring with {} entries, {}", count, choice.words);
      }
      if (error != EINVAL) break;
    }
    if (error != ENOMEM) break;  // a smaller ring may fit the limit of locked memory
  }
  return make_error(Errc::kUnsupported,
                    fmt::format("set up io_uring: {} ({}); {}",
                                std::generic_category().message(error), error, remedy(error)),
                    error);
}

}  // namespace penstock
