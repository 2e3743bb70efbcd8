#include "measure/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/clock.hpp"

namespace penstock {
namespace {

/// Until the other end is closed, which the end of its process does. False: not in time.
bool wait_for_close(int descriptor, std::uint64_t limit_ns) {
  const std::uint64_t end_ns = now_ns() + limit_ns;
  for (;;) {
    const std::uint64_t now = now_ns();
    const std::uint64_t left_ms = now < end_ns ? (end_ns - now) / 1'000'000 + 1 : 0;
    pollfd wanted{descriptor, POLLIN, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::min<std::uint64_t>(left_ms, 1000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (left_ms == 0) return false;
  }
}

/// A child that is left behind must keep nothing of its parent's open: not the pipe that somebody
/// reads its output from, nor a file that is locked.
void close_all_but(int kept) {
  const auto end = static_cast<unsigned>(kept);
  const bool below = end == 0 || ::close_range(0, end - 1, 0) == 0;
  if (below && ::close_range(end + 1, ~0U, 0) == 0) return;
  for (const int standard : {0, 1, 2}) {  // a kernel before 5.9
    if (standard != kept) ::close(standard);
  }
}

}  // namespace

ChildEnd run_in_child(std::uint64_t limit_ns, void (*body)(void* context), void* context) noexcept {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return ChildEnd::kNotStarted;
  const pid_t child = ::fork();
  if (child == 0) {
    close_all_but(ends[1]);
    // A limit of file size shall be an error of the write.
    ::signal(SIGXFSZ, SIG_IGN);
    body(context);
    ::_exit(0);  // lint: allow abort because a fork must not run its parent's destructors
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return ChildEnd::kNotStarted;
  }
  const bool ended = wait_for_close(ends[0], limit_ns);
  ::close(ends[0]);
  if (!ended) {
    ::kill(child, SIGKILL);
    // It may have been on its way out; one that is stuck stays until the system lets it go.
    (void)::waitpid(child, nullptr, WNOHANG);
    return ChildEnd::kLate;
  }
  int status = 0;
  pid_t reaped = 0;
  do {
    reaped = ::waitpid(child, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  return reaped == child && WIFEXITED(status) ? ChildEnd::kDone : ChildEnd::kDied;
}

}  // namespace penstock
