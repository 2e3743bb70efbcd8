#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/json_line.hpp"
#include "cli/measure_command.hpp"
#include "cli/signals.hpp"
#include "cli/tune_view.hpp"
#include "topo/profile_file.hpp"

namespace penstock {
namespace {

using nlohmann::json;

class TuneCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "tune"; }
  [[nodiscard]] std::string summary() const override {
    return "Find the settings each drive likes best, for all later runs";
  }
  [[nodiscard]] std::string example() const override {
    return "Examples: penstock tune /mnt/nvme0\n"
           "          penstock tune /mnt/nvme0 /mnt/nvme1 --budget 5m\n"
           "          penstock tune /mnt/nvme0 --dry-run --json\n"
           "Settings leave their default only for a gain beyond the noise, and change how fast a\n"
           "run is, never its results. They are kept in ~/.config/penstock/profile.toml and used "
           "by\n"
           "every run on these drives. Nothing else on the machine should be busy.";
  }

  void declare(Flags& flags) override {
    flags.arguments("PATH", options_.paths, "A directory on each drive");
    flags.custom(
        "--budget", "TIME",
        [this](const std::string& value) -> Status {
          PENSTOCK_TAKE(seconds, parse_seconds("--budget", value));
          options_.seconds = seconds;
          return ok();
        },
        "For the whole command: 60s (default), 5m; 10s for each drive at least");
    size_flag(flags, "--size", options_.size_bytes,
              "Of the file in each PATH (default: 8GiB, a tenth of what is free at most)");
    flags.on("--dry-run", dry_run_, "Measure and show only, write no profile");
    flags.count("--seed", options_.seed, 0, UINT64_MAX, "Of the order in a round (default 1)");
  }

  Result<ExitCode> run(Console& console) override {
    const bool writes = !dry_run_;
    const ProfilePlace place = profile_place();
    if (writes) PENSTOCK_CHECK_OK(check_profile_place(place));  // before time is spent
    options_.version = PENSTOCK_VERSION_TEXT;
    options_.must_be_known = writes;
    ConsoleObserver observer(console);
    PENSTOCK_TAKE(report, run_tune(options_, observer, stop_requested()));
    console.finish_live();
    std::string old;
    Status written = ok();
    if (writes) written = write(place, report, old);
    show(console, report, writes && written ? place.file : std::string(), old);
    if (!written) return std::move(written).error();  // what was measured is shown all the same
    return ExitCode::kOk;
  }

 private:
  static Status write(const ProfilePlace& place, const TuneReport& report, std::string& old) {
    if (stop_requested().load()) return make_error(Errc::kCancelled, "stopped");
    std::vector<DriveProfile> profiles;
    for (const TunedDrive& drive : report.drives) profiles.push_back(drive.profile);
    PENSTOCK_TAKE(moved, write_profiles(place, profiles));
    old = moved;
    return ok();
  }

  void show(Console& console, const TuneReport& report, const std::string& file,
            const std::string& old) const {
    if (console.json()) {
      json value = tune_json(report, options_);
      value["profile"] = file.empty() ? json() : json(file);
      value["moved"] = old.empty() ? json() : json(old);
      console.data(json_line(value));
      return;
    }
    for (const std::string& line : tune_lines(report)) console.data(line);
    if (!old.empty()) {
      console.data(
          fmt::format("note: the profile that was there could not be read and is now {}", old));
    }
    console.data(file.empty()
                     ? "no profile was written"
                     : fmt::format("written to {}; later runs on {} use it", file,
                                   report.drives.size() == 1 ? "this drive" : "these drives"));
  }

  TuneOptions options_;
  bool dry_run_ = false;
};

}  // namespace

std::unique_ptr<Command> make_tune_command() {
  return std::make_unique<TuneCommand>();
}

}  // namespace penstock
