#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/json_line.hpp"
#include "cli/signals.hpp"
#include "cli/store_reader.hpp"
#include "engine/rewrite.hpp"
#include "io/counting_storage.hpp"
#include "io/store_layout.hpp"
#include "io/store_pins.hpp"
#include "train/run_setup.hpp"

namespace penstock {
namespace {

using nlohmann::json;

enum class Action : std::uint8_t { kList, kPin, kDrop, kRestore, kCopy };
constexpr const char* kActions[] = {"list", "pin", "drop", "restore", "copy"};

constexpr std::uint64_t kMaxBlock = 4U << 20;  // as of train: what a training can go on with

/// What a store holds, in one look.
struct Holdings {
  std::uint64_t step = 0;
  std::uint32_t room = 0;
  std::vector<PinSummary> pins;
};

class CheckpointCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "checkpoint"; }
  [[nodiscard]] std::string summary() const override {
    return "List, keep, drop, go back to or copy states inside a store";
  }
  [[nodiscard]] std::string example() const override {
    return "Examples: penstock checkpoint list run1\n"
           "          penstock checkpoint pin run1 --name best\n"
           "          penstock checkpoint restore run1 --name step-400\n"
           "          penstock checkpoint copy run1 --to /mnt/nvme1/run2 --block 4194304\n"
           "A checkpoint is a commit whose space is not used again; pin and restore move no data.\n"
           "list and copy only read and work while a training runs, though one may overtake a "
           "copy\n"
           "of the last commit; the others need the store for themselves.";
  }

  void declare(Flags& flags) override {
    flags.argument("ACTION", action_, "list, pin, drop, restore or copy");
    flags.arguments("STORE", stores_, kStoreHelp);
    flags.text("--name", name_, "Of the checkpoint; copy without one takes the last commit",
               "NAME");
    flags.on("--yes", yes_, "restore: give up a last commit that no checkpoint holds");
    flags.texts("--to", to_, "copy: directory of the new store; once for each drive", "DIR");
    flags.custom(
        "--block", "N", [this](const std::string& value) { return take_block(value); },
        "copy: elements of a block, a multiple of 16384 up to 4194304 (default: as they are)");
    flags.count("--keep", keep_, 0, kMaxPins,
                "copy: checkpoints that the new store has room for, up to 64 (default 0)");
  }

  Result<ExitCode> run(Console& console) override {
    PENSTOCK_TAKE(action, check());
    PENSTOCK_CHECK_OK(check_store_directories(stores_));
    for (const std::string& directory : to_) {
      PENSTOCK_CHECK_OK(check_place("--to", directory, /*to_read=*/false));
    }
    const StoreDirectories directories(stores_);
    const auto storage = std::make_unique<CountingStorage>(make_posix_storage());
    switch (action) {
      case Action::kList:
        PENSTOCK_CHECK_OK(list(*storage, directories, console));
        break;
      case Action::kPin:
        PENSTOCK_CHECK_OK(pin(*storage, directories));
        PENSTOCK_CHECK_OK(tell_pin(*storage, directories, console));
        break;
      case Action::kDrop:
        PENSTOCK_CHECK_OK(drop_pin(*storage, directories, name_));
        tell(console, fmt::format("dropped {}", name_), {});
        break;
      case Action::kRestore:
        PENSTOCK_CHECK_OK(restore(*storage, directories, console));
        break;
      case Action::kCopy:
        return copy(*storage, directories, console);
    }
    return ExitCode::kOk;
  }

 private:
  Status take_block(const std::string& value) {
    auto elements = parse_bytes(value);
    if (elements && elements.value() % kTileElements == 0 && elements.value() > 0 &&
        elements.value() <= kMaxBlock) {
      block_ = static_cast<std::uint32_t>(elements.value());
      return ok();
    }
    return make_error(Errc::kArgument,
                      fmt::format("--block \"{}\" is not a multiple of {} from {} to 4194304",
                                  value, kTileElements, kTileElements));
  }

  /// The action, when its flags fit.
  Result<Action> check() const {
    const auto* found = std::find(std::begin(kActions), std::end(kActions), action_);
    if (found == std::end(kActions)) {
      return make_error(Errc::kArgument,
                        fmt::format("\"{}\" is no action of checkpoint; use list, pin, drop, "
                                    "restore or copy",
                                    action_));
    }
    const auto action = static_cast<Action>(found - std::begin(kActions));
    const bool needs_name =
        action == Action::kPin || action == Action::kDrop || action == Action::kRestore;
    if (needs_name && name_.empty()) {
      return make_error(
          Errc::kArgument,
          action == Action::kPin
              ? std::string("--name is missing; say how the checkpoint is to be called")
              : fmt::format("--name is missing; say which checkpoint to {} "
                            "(\"penstock checkpoint list\" shows them)",
                            action_));
    }
    if (action == Action::kCopy && to_.empty()) {
      return make_error(Errc::kArgument, "--to is missing; name the directory of the new store");
    }
    if (action != Action::kCopy && (!to_.empty() || block_ != 0 || keep_ != 0)) {
      return make_error(
          Errc::kArgument,
          fmt::format("--to, --block and --keep belong to copy, not to {}; drop them", action_));
    }
    return action;
  }

  static Result<Holdings> look(Storage& storage, const StoreDirectories& directories) {
    PENSTOCK_TAKE(store, open_store(storage, directories, {}, /*writable=*/false));
    return Holdings{store->committed().step, store->geometry().pins, summarize_pins(*store)};
  }

  static Status list(Storage& storage, const StoreDirectories& directories, Console& console) {
    PENSTOCK_TAKE(holds, look(storage, directories));
    if (console.json()) {
      json pins = json::array();
      for (const PinSummary& pin : holds.pins) {
        pins.push_back({{"name", pin.name},
                        {"step", pin.step},
                        {"updates", pin.updates},
                        {"own_bytes", pin.own_bytes},
                        {"rotating", pin.rotating},
                        {"latest", pin.is_latest}});
      }
      console.data(json_line({{"schema", "penstock.checkpoints/1"},
                              {"store", directories.text()},
                              {"step", holds.step},
                              {"room", holds.room},
                              {"checkpoints", pins}}));
      return ok();
    }
    for (const PinSummary& pin : holds.pins) {
      console.data(fmt::format("{:<20}  step {:>8}  frees {:>11}{}{}", pin.name, pin.step,
                               format_bytes(pin.own_bytes), pin.rotating ? "  rotating" : "",
                               pin.is_latest ? "  the last commit" : ""));
    }
    console.data(fmt::format("{} of {} checkpoints; the last commit is step {}", holds.pins.size(),
                             holds.room, holds.step));
    return ok();
  }

  void tell(Console& console, const std::string& sentence, json facts) const {
    if (!console.json()) return console.data(sentence);
    facts["schema"] = "penstock.checkpoint/1";
    facts["action"] = action_;
    if (!name_.empty()) facts["name"] = name_;
    console.data(json_line(facts));
  }

  /// Room inside the store is the store's state, not a drive that is full.
  Status pin(Storage& storage, const StoreDirectories& directories) const {
    Status made = make_pin(storage, directories, name_);
    if (!made && made.error().code == Errc::kNoSpace && made.error().sys_errno == 0) {
      made.error().code = Errc::kState;
    }
    return made;
  }

  Status tell_pin(Storage& storage, const StoreDirectories& directories, Console& console) const {
    PENSTOCK_TAKE(holds, look(storage, directories));
    tell(console, fmt::format("step {} is kept as {}", holds.step, name_), {{"step", holds.step}});
    return ok();
  }

  Status restore(Storage& storage, const StoreDirectories& directories, Console& console) const {
    const auto before = look(storage, directories);
    // Damage of the last commit is a reason to go back, so it does not stand in the way.
    if (!before && before.error().code != Errc::kCorrupt) return before.error();
    const auto is_latest = [](const PinSummary& pin) { return pin.is_latest; };
    const bool kept =
        before && std::any_of(before.value().pins.begin(), before.value().pins.end(), is_latest);
    const bool known = before && std::any_of(before.value().pins.begin(), before.value().pins.end(),
                                             [&](const PinSummary& p) { return p.name == name_; });
    if (before && known && !kept && !yes_) {
      return make_error(Errc::kState,
                        fmt::format("step {} in {} is held by no checkpoint and would be given up; "
                                    "pin it first, or say --yes",
                                    before.value().step, directories.text()));
    }
    PENSTOCK_CHECK_OK(restore_pin(storage, directories, name_));
    PENSTOCK_TAKE(after, look(storage, directories));
    tell(console, fmt::format("the store is back at step {} ({})", after.step, name_),
         {{"step", after.step}});
    return ok();
  }

  Result<ExitCode> copy(Storage& storage, const StoreDirectories& directories, Console& console) {
    const StoreDirectories to(to_);
    const RewriteOptions options{.from = directories,
                                 .pin = name_,
                                 .to = to,
                                 .block_elements = block_,
                                 .checkpoints = keep_,
                                 .measure_drive_seconds = 0.25};
    const Status done =
        rewrite_store(storage, options, [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
          if (console.is_live()) {
            console.live(fmt::format("copied {} of {}", format_bytes(done_bytes),
                                     format_bytes(total_bytes)));
          }
          return !stop_requested().load();
        });
    console.finish_live();
    if (!done) return without_flags(done.error());
    PENSTOCK_TAKE(made, look(storage, to));
    tell(console, fmt::format("step {} was copied to {}", made.step, to.text()),
         {{"step", made.step}, {"to", to.text()}});
    return ExitCode::kOk;
  }

  std::string action_, name_;
  std::vector<std::string> stores_, to_;
  std::uint32_t block_ = 0, keep_ = 0;
  bool yes_ = false;
};

}  // namespace

std::unique_ptr<Command> make_checkpoint_command() {
  return std::make_unique<CheckpointCommand>();
}

}  // namespace penstock
