#include "cli/app.hpp"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/with_memory.hpp"
#include "cli/command.hpp"
#include "model/did_you_mean.hpp"

namespace penstock {
namespace {

/// Behind this word flags end, as usual on a command line.
constexpr std::string_view kEndOfFlags = "--";

/// Options every command takes, before or behind its name.
struct CommonFlags {
  ConsoleOptions console;

  void declare(Flags& flags) {
    flags.on("--json", console.json, "Data as JSON, one object a line");
    flags.on("--quiet", console.quiet, "No messages but errors");
    flags.choice(
        "--color", {"auto", "always", "never"},
        [this](std::size_t index) { console.color = static_cast<ColorChoice>(index); },
        "Colours in messages");
  }
};

/// One command with its part of the parser.
struct Entry {
  std::unique_ptr<Command> command;
  CLI::App* app;
  Flags flags;
};

class Program {
 public:
  Program()
      : app_("Trains models whose weights and optimizer state need not fit in memory.", "penstock"),
        flags_(app_) {
    app_.allow_extras();
    app_.require_subcommand(0, 1);
    common_.declare(flags_);
    for (auto& command : make_commands()) {
      CLI::App* sub = app_.add_subcommand(command->name(), command->summary());
      sub->allow_extras();
      sub->footer(command->example());
      Entry& entry = entries_.emplace_back(Entry{std::move(command), sub, Flags(*sub)});
      entry.command->declare(entry.flags);
      common_.declare(entry.flags);
    }
    app_.footer(
        "First run: penstock train --data FILE --store DIR\n"
        "Run \"penstock COMMAND --help\" for the options of a command.");
  }

  ExitCode run(int argument_count, const char* const* arguments) {
    if (const auto done = parse(argument_count, arguments)) return *done;
    const Status checked = check();
    if (!checked) return fail(checked.error());
    Console console(common_.console);
    Result<ExitCode> result = chosen_->command->run(console);
    if (!result) {
      console.finish_live();
      console.error(result.error().message);
      return exit_code_of(result.error().code);
    }
    console.finish_live();
    return end_of_output(console, result.value());
  }

  [[nodiscard]] bool has_command(std::string_view name) const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const Entry& entry) { return entry.command->name() == name; });
  }

 private:
  /// Data that nobody got is a failure, whatever the command says.
  static ExitCode end_of_output(Console& console, ExitCode code) {
    const Status output = console.output_status();
    if (output) return code;
    console.error(output.error().message);
    return ExitCode::kFailed;
  }

  // The exit code, where parsing already is the end: help, or a mistake that CLI11 finds.
  std::optional<ExitCode> parse(int argument_count, const char* const* arguments) {
    try {
      app_.parse(argument_count, arguments);
    } catch (const CLI::CallForHelp&) {
      const CLI::App* shown = &app_;
      for (const Entry& entry : entries_) {
        if (entry.app->parsed()) shown = entry.app;
      }
      Console console(common_.console);
      console.raw(shown->help(shown == &app_ ? "" : "penstock"));
      return end_of_output(console, ExitCode::kOk);
    } catch (const CLI::ParseError& error) {
      find_chosen();
      // An unknown word is the better explanation of whatever else is missing.
      if (const Status unknown = check_extras(); !unknown) return fail(unknown.error());
      return fail(make_error(Errc::kArgument, fmt::format("{}; {}", error.what(), help_hint())));
    }
    find_chosen();
    return std::nullopt;
  }

  void find_chosen() {
    for (Entry& entry : entries_) {
      if (entry.app->parsed()) chosen_ = &entry;
    }
  }

  Status check() {
    PENSTOCK_CHECK_OK(check_extras());
    PENSTOCK_CHECK_OK(flags_.convert());
    if (chosen_ == nullptr) {
      return make_error(Errc::kArgument, fmt::format("no command is given; it is one of {}",
                                                     fmt::join(command_names(), ", ")));
    }
    return chosen_->flags.convert();
  }

  Status check_extras() const {
    // Before the command's name only our own flags may stand.
    for (const std::string& word : app_.remaining()) {
      if (word.starts_with("-")) continue;
      if (chosen_ != nullptr) break;
      const std::vector<std::string> names = command_names();
      const std::vector<std::string_view> views(names.begin(), names.end());
      std::string hint = did_you_mean(word, views);
      if (hint.empty()) hint = fmt::format("; it is one of {}", fmt::join(names, ", "));
      return make_error(Errc::kArgument, fmt::format("unknown command \"{}\"{}", word, hint));
    }
    for (const std::string& word : app_.remaining()) {
      if (word != kEndOfFlags) return unknown_word(word, flags_.names());
    }
    if (chosen_ == nullptr) return ok();
    for (const std::string& word : chosen_->app->remaining()) {
      if (word != kEndOfFlags) return unknown_word(word, chosen_->flags.names());
    }
    return ok();
  }

  [[nodiscard]] Error unknown_word(const std::string& word,
                                   const std::vector<std::string>& flags) const {
    if (!word.starts_with("-")) {
      return make_error(Errc::kArgument,
                        fmt::format("unexpected argument \"{}\"; {}", word, help_hint()));
    }
    const std::string name = word.substr(0, word.find('='));
    const std::vector<std::string_view> views(flags.begin(), flags.end());
    std::string hint = did_you_mean(name, views);
    if (hint.empty()) hint = fmt::format("; {}", help_hint());
    return make_error(Errc::kArgument, fmt::format("unknown flag {}{}", name, hint));
  }

  [[nodiscard]] std::string help_hint() const {
    return chosen_ == nullptr ? "run \"penstock --help\""
                              : fmt::format("run \"penstock {} --help\"", chosen_->command->name());
  }

  [[nodiscard]] std::vector<std::string> command_names() const {
    std::vector<std::string> names;
    for (const Entry& entry : entries_) names.push_back(entry.command->name());
    return names;
  }

  ExitCode fail(const Error& error) const {
    Console(common_.console).error(error.message);
    return exit_code_of(error.code);
  }

  CLI::App app_;
  Flags flags_;
  CommonFlags common_;
  std::vector<Entry> entries_;
  Entry* chosen_ = nullptr;
};

}  // namespace

namespace {

/// What people try first: "help", "help COMMAND" and "--version" are "--help", "COMMAND --help" and
/// "version".
std::vector<const char*> usual_words(const Program& program, int argument_count,
                                     const char* const* arguments) {
  std::vector<const char*> words(arguments, arguments + argument_count);
  if (words.size() < 2) return words;
  const std::string_view first = words[1];
  if (first == "--version" || first == "-V") words[1] = "version";
  if (first != "help") return words;
  words.erase(words.begin() + 1);
  // Of a word that is no command, that is what has to be said.
  if (words.size() < 2 || program.has_command(words[1])) words.push_back("--help");
  return words;
}

}  // namespace

ExitCode run_program(int argument_count, const char* const* arguments) {
  try {
    Program program;
    const std::vector<const char*> words = usual_words(program, argument_count, arguments);
    return program.run(static_cast<int>(words.size()), words.data());
  } catch (const std::bad_alloc&) {
    Console({}).error(fmt::format("out of memory; {}, or grant less with --ram", kMoreMemory));
    return ExitCode::kEnvironment;
  } catch (const std::exception& error) {
    Console({}).error(fmt::format("an internal check failed: {}; please report it", error.what()));
  }
  return ExitCode::kFailed;
}

}  // namespace penstock
