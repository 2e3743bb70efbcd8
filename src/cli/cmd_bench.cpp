#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/bench_view.hpp"
#include "cli/command.hpp"
#include "cli/json_line.hpp"
#include "cli/measure_command.hpp"
#include "cli/signals.hpp"
#include "measure/bench.hpp"
#include "measure/bench_json.hpp"
#include "measure/bench_words.hpp"
#include "topo/drive_identity.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* kWhats[] = {"io", "copy", "mem", "all"};

class BenchCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "bench"; }
  [[nodiscard]] std::string summary() const override {
    return "Measure what drives, memory and the links between them can do";
  }
  [[nodiscard]] std::string example() const override {
    return "Examples: penstock bench all /mnt/nvme0\n"
           "          penstock bench io /mnt/nvme0 /mnt/nvme1 --time 2m --fio\n"
           "          penstock bench io /mnt/nvme0 --json > before.json\n"
           "          penstock bench io /mnt/nvme0 --compare before.json\n"
           "Writes a file without a name in each PATH, 8 GiB or a tenth of what is free, which is\n"
           "gone at the end. Nothing else on the machine should be busy.";
  }

  void declare(Flags& flags) override {
    flags.arguments("WHAT [PATH...]", words_,
                    "io, copy, mem or all; for io and all a directory on each drive (default .)");
    size_flag(flags, "--block", options_.block_bytes,
              "Bytes of a sequential request (default 1MiB)");
    flags.count("--depth", options_.depth, 1, 1024,
                "Requests in flight for each drive (default 8)");
    flags.choice(
        "--rw", {"all", "read", "write", "mix", "random"},
        [this](std::size_t index) { options_.rw = static_cast<BenchRw>(index); },
        "Only these transfers (default all, with pipeline, small tensors and latencies)");
    flags.choice(
        "--queue", {"auto", "uring", "threads"},
        [this](std::size_t index) { options_.backend = static_cast<QueueBackend>(index); },
        "How the drive is reached (default auto)");
    flags.custom(
        "--time", "TIME",
        [this](const std::string& value) -> Status {
          PENSTOCK_TAKE(seconds, parse_seconds("--time", value));
          options_.seconds = seconds;
          return ok();
        },
        "For the whole command: 30s (default), 2m");
    size_flag(flags, "--size", options_.size_bytes,
              "Of the file in each PATH (default: 8GiB, a tenth of what is free at most)");
    flags.on("--fio", options_.with_fio, "Let fio do the same, in the same rounds, and compare");
    flags.text("--compare", compare_, "A report of --json: exit code 1 where this run is slower");
    flags.real("--tolerance", tolerance_percent_, 0.0, 100.0,
               "Per cent by which a figure may be worse than in --compare (default 5)");
    flags.count("--seed", options_.seed, 0, UINT64_MAX, "Of the order in a round (default 1)");
  }

  Result<ExitCode> run(Console& console) override {
    PENSTOCK_CHECK_OK(take_words());
    std::optional<BenchReport> before;
    if (!compare_.empty()) {
      PENSTOCK_TAKE(report, read_bench_report(compare_));
      before = std::move(report);
      PENSTOCK_CHECK_OK(check_drives(*before));
    }
    options_.version = PENSTOCK_VERSION_TEXT;
    ConsoleObserver observer(console);
    PENSTOCK_TAKE(report, run_bench(options_, observer, stop_requested()));
    console.finish_live();
    std::optional<BenchComparison> comparison;
    if (before) {
      // What was measured is shown even where it cannot be compared.
      auto compared = compare_benches(*before, report, tolerance_percent_ * 0.01);
      if (!compared) {
        show(console, report, nullptr);
        return std::move(compared).error();
      }
      comparison = std::move(compared).value();
    }
    show(console, report, comparison ? &*comparison : nullptr);
    if (!comparison || comparison->regressions().empty()) return ExitCode::kOk;
    return regressed(console, *comparison);
  }

 private:
  Status take_words() {
    const std::string& what = words_.front();
    for (std::size_t i = 0; i < std::size(kWhats); ++i) {
      if (what != kWhats[i]) continue;
      options_.what = static_cast<BenchWhat>(i);
      options_.paths.assign(words_.begin() + 1, words_.end());
      return check_paths();
    }
    return make_error(Errc::kArgument,
                      fmt::format("\"{}\" is not io, copy, mem or all; for example: penstock "
                                  "bench all /mnt/nvme0",
                                  what));
  }

  Status check_paths() {
    const bool wanted = options_.what == BenchWhat::kIo || options_.what == BenchWhat::kAll;
    if (wanted && options_.paths.empty()) options_.paths.emplace_back(".");
    if (!wanted && !options_.paths.empty()) {
      return make_error(Errc::kArgument,
                        fmt::format("bench {} measures no drive, so \"{}\" has no use; leave it "
                                    "away, or take io or all",
                                    name_of(options_.what), options_.paths.front()));
    }
    if (!wanted && options_.with_fio) {
      return make_error(Errc::kArgument,
                        fmt::format("--fio measures drives, and bench {} does not; take io or all",
                                    name_of(options_.what)));
    }
    return ok();
  }

  /// Before half a minute is spent on it.
  Status check_drives(const BenchReport& before) const {
    if (options_.paths.empty() || before.targets.empty()) return ok();
    std::vector<BenchTarget> now;
    for (const std::string& path : options_.paths) {
      const DriveIdentity drive = identify_drives(path);
      BenchTarget target;
      target.path = path;
      target.device_id = drive.id;
      target.filesystem = drive.filesystem;
      now.push_back(std::move(target));
    }
    return check_same_drives(before.targets, now);
  }

  void show(Console& console, const BenchReport& report, const BenchComparison* comparison) const {
    if (console.json()) {
      json value = to_json(report);
      if (report.what == name_of(BenchWhat::kAll)) value["words"] = bench_words(report);
      if (comparison != nullptr) {
        value["comparison"] = comparison_json(*comparison, compare_, tolerance_percent_ * 0.01);
      }
      console.data(json_line(value));
      return;
    }
    for (const std::string& line : bench_lines(report)) console.data(line);
    for (const std::string& note : report.notes) console.data("note: " + note);
    if (report.what == name_of(BenchWhat::kAll)) {
      console.data("");
      for (const std::string& line : bench_words(report)) console.data(line);
    }
    if (comparison == nullptr) return;
    console.data("");
    for (const std::string& line : comparison_lines(*comparison, compare_)) console.data(line);
  }

  [[nodiscard]] ExitCode regressed(Console& console, const BenchComparison& comparison) const {
    std::string list;
    for (const BenchChange* change : comparison.regressions()) {
      list += fmt::format("{}\"{}\" {} {:+.1f} %", list.empty() ? "" : ", ", change->row,
                          change->figure, 100.0 * change->change);
    }
    console.error(
        fmt::format("slower than in {} by more than the noise: {}; look for other load, "
                    "then compare again",
                    compare_, list));
    return ExitCode::kFailed;
  }

  std::vector<std::string> words_;
  BenchOptions options_;
  std::string compare_;
  double tolerance_percent_ = 100.0 * kDefaultTolerance;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() {
  return std::make_unique<BenchCommand>();
}

}  // namespace penstock
