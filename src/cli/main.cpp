#include "cli/app.hpp"
#include "cli/signals.hpp"

int main(int argument_count, char** arguments) {
  penstock::install_signal_handlers();
  return static_cast<int>(penstock::run_program(argument_count, arguments));
}
