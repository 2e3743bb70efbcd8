#include "cli/signals.hpp"

#include <unistd.h>

#include <csignal>
#include <system_error>
#include <thread>

#include "cli/exit_code.hpp"

namespace penstock {
namespace {

// The one mutable global of the program: signals belong to the process.
std::atomic<bool> g_stop{false};

/// Waits for the signals for as long as the program runs.
void watch(const sigset_t& signals) noexcept {
  for (;;) {
    int signal = 0;
    if (::sigwait(&signals, &signal) != 0) continue;
    if (g_stop.exchange(true)) ::_exit(static_cast<int>(ExitCode::kStopped));
  }
}

}  // namespace

void install_signal_handlers() noexcept {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigemptyset(&ignore.sa_mask);
  ::sigaction(SIGPIPE, &ignore, nullptr);
  ::sigaction(SIGXFSZ, &ignore, nullptr);
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGINT);
  ::sigaddset(&stop, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  try {
    std::thread([stop] { watch(stop); }).detach();
  } catch (const std::system_error&) {
    // No thread to be had: the signals end the program at once, which loses nothing committed.
    ::pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
  }
}

const std::atomic<bool>& stop_requested() noexcept {
  return g_stop;
}

}  // namespace penstock
