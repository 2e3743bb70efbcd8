#pragma once

/// What each command of the program provides. One file per command.

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/console.hpp"
#include "cli/exit_code.hpp"
#include "cli/flags.hpp"

namespace penstock {

/// Of the STORE arguments.
inline constexpr const char* kStoreHelp = "Directory of the store; all of them, if several drives";

class Command {
 public:
  virtual ~Command() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::string summary() const = 0;
  /// Shown below the options, e.g. how it is typed; may be empty.
  [[nodiscard]] virtual std::string example() const { return {}; }
  virtual void declare(Flags& flags) = 0;
  /// After the flags were converted. An error is printed by the caller and gives the exit code.
  virtual Result<ExitCode> run(Console& console) = 0;
};

std::unique_ptr<Command> make_doctor_command();
std::unique_ptr<Command> make_version_command();
std::unique_ptr<Command> make_inspect_command();
std::unique_ptr<Command> make_scrub_command();
std::unique_ptr<Command> make_export_command();
std::unique_ptr<Command> make_checkpoint_command();
std::unique_ptr<Command> make_clean_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_tune_command();
std::unique_ptr<Command> make_train_command();
std::unique_ptr<Command> make_generate_command();

/// Those of this build, in the order of the help.
std::vector<std::unique_ptr<Command>> make_commands();

}  // namespace penstock
