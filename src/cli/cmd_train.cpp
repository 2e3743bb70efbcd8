#include <utility>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/signals.hpp"
#include "cli/train_flags.hpp"
#include "cli/train_view.hpp"
#include "cli/wear_view.hpp"

namespace penstock {
namespace {

class TrainCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "train"; }
  [[nodiscard]] std::string summary() const override {
    return "Train a transformer on any file, within a memory budget";
  }
  [[nodiscard]] std::string example() const override {
    return "Example: penstock train --model tiny --data book.txt --store run1 --ram 200MiB\n"
           "Ctrl-C stops after the step under way; the same command with --resume goes on.";
  }
  void declare(Flags& flags) override {
    flags_.declare(flags);
    declare_endurance(flags, endurance_bytes_);
  }

  Result<ExitCode> run(Console& console) override {
    auto options = flags_.finish();
    if (!options) return std::move(options).error();
    TrainView view(console, endurance_bytes_);
    const Status status = run_train(options.value(), view, stop_requested());
    if (!status) return status.error();
    if (!view.end().stopped) return ExitCode::kOk;
    console.finish_live();
    if (!options.value().scratch) {
      console.note(
          fmt::format("stopped; go on with the same command and --resume (step {} is "
                      "committed in {})",
                      view.end().committed_step, options.value().resources.store));
    }
    return ExitCode::kStopped;
  }

 private:
  TrainFlags flags_;
  std::uint64_t endurance_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_train_command() {
  return std::make_unique<TrainCommand>();
}

}  // namespace penstock
