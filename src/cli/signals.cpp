#include "cli/signals.hpp"

#include <unistd.h>

#include <csignal>

#include "cli/exit_code.hpp"

namespace penstock {
namespace {

// The one mutable global of the program: a signal handler has no other way to say something.
std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler must not take a lock");

void on_signal(int) noexcept {
  if (g_stop.exchange(true)) ::_exit(static_cast<int>(ExitCode::kStopped));
}

}  // namespace

void install_signal_handlers() noexcept {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigemptyset(&ignore.sa_mask);
  ::sigaction(SIGPIPE, &ignore, nullptr);
  ::sigaction(SIGXFSZ, &ignore, nullptr);
}

const std::atomic<bool>& stop_requested() noexcept {
  return g_stop;
}

}  // namespace penstock
