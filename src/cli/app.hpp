#pragma once

/// The program: arguments in, exit code out.

#include "cli/exit_code.hpp"

namespace penstock {

/// Catches what third-party code throws.
ExitCode run_program(int argument_count, const char* const* arguments);

}  // namespace penstock
