#include <unistd.h>

#include <cstdlib>

#include "cli/app.hpp"
#include "cli/signals.hpp"

namespace {

/// The matrix library's threads must sleep while they wait: update and I/O tasks need the cores,
/// and with spinning a step takes three times as long. Their runtime reads this once, when it is
/// loaded, which is before main(): so the program starts itself again with it. A user's own choice
/// stays.
void start_with_passive_waits(char** arguments) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (::setenv("OMP_WAIT_POLICY", "passive", 1) != 0) return;
  ::execv("/proc/self/exe", arguments);  // returns only where it fails: then without
}

}  // namespace

int main(int argument_count, char** arguments) {
  start_with_passive_waits(arguments);
  penstock::install_signal_handlers();
  return static_cast<int>(penstock::run_program(argument_count, arguments));
}
