#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/signals.hpp"
#include "cli/store_reader.hpp"
#include "cli/train_flags.hpp"
#include "train/run_setup.hpp"

namespace penstock {
namespace {

/// Tokens to standard output as they come: bytes as they are, others as numbers.
class GenerateView final : public GenerateObserver {
 public:
  explicit GenerateView(Console& console) : console_(console) {}

  void on_note(std::string_view sentence) override { console_.note(sentence); }

  void on_token(std::uint32_t token, bool is_byte) override {
    started_ = true;
    if (console_.json()) {
      console_.data(nlohmann::json({{"schema", "penstock.generate/1"}, {"token", token}}).dump());
    } else if (is_byte) {
      const char byte = static_cast<char>(token);
      console_.raw(std::string_view(&byte, 1));
    } else {
      console_.raw(fmt::format("{} ", token));
    }
  }

  /// Whether there was a token.
  [[nodiscard]] bool started() const { return started_; }

 private:
  Console& console_;
  bool started_ = false;
};

class GenerateCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "generate"; }
  [[nodiscard]] std::string summary() const override {
    return "Write text with the model in a store";
  }
  [[nodiscard]] std::string example() const override {
    return "Example: penstock generate --store run1 --prompt \"The \" --tokens 200";
  }
  void declare(Flags& flags) override { flags_.declare(flags); }

  Result<ExitCode> run(Console& console) override {
    auto options = flags_.finish();
    if (!options) return std::move(options).error();
    PENSTOCK_CHECK_OK(check_store_directories(store_directories(options.value().resources).all()));
    GenerateView view(console);
    const Status status = run_generate(options.value(), view, stop_requested());
    if (!console.json() && view.started()) console.raw("\n");
    if (!status) return status.error();
    return stop_requested() ? ExitCode::kStopped : ExitCode::kOk;
  }

 private:
  GenerateFlags flags_;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() {
  return std::make_unique<GenerateCommand>();
}

}  // namespace penstock
