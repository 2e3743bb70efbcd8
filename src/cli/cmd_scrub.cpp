#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/json_line.hpp"
#include "cli/signals.hpp"
#include "cli/store_reader.hpp"
#include "cli/store_scrub.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "penstock.scrub/1";
constexpr std::uint64_t kDefaultRate = 200'000'000;  // leaves most of any drive to a training

std::string_view kind_name(SectionFaultKind kind) {
  switch (kind) {
    case SectionFaultKind::kSums:
      return "sums";
    case SectionFaultKind::kTile:
      return "tile";
    case SectionFaultKind::kPadding:
      return "padding";
  }
  return "tile";
}

json to_json(const Damage& damage) {
  json tensors = json::array();
  for (const TensorRun& run : damage.tensors) {
    tensors.push_back(
        {{"name", run.tensor->name}, {"first_element", run.first}, {"elements", run.elements}});
  }
  const BadTile& bad = damage.bad;
  return {{"schema", kSchema},
          {"event", "damage"},
          {"tensors", tensors},
          {"group", damage.group},
          {"checkpoint", damage.checkpoint.empty() ? json() : json(damage.checkpoint)},
          {"block", bad.block},
          {"section", damage.section},
          {"kind", kind_name(bad.kind)},
          {"tile", bad.kind == SectionFaultKind::kTile ? json(bad.tile) : json()},
          {"cause", bad.code == Errc::kCorrupt ? "checksum" : "unreadable"},
          {"file", bad.path},
          {"offset_bytes", bad.offset_bytes},
          {"bytes", bad.bytes},
          {"message", damage.message}};
}

/// Says what is found as it is found: a scrub may take hours.
class ScrubView final : public ScrubObserver {
 public:
  ScrubView(Console& console, const Throttle& throttle) : console_(console), throttle_(throttle) {}

  void on_damage(const Damage& damage) override {
    console_.data(console_.json() ? json_line(to_json(damage)) : damage.message);
  }

  void on_progress(std::uint64_t done_bytes, std::uint64_t total_bytes) override {
    if (!console_.is_live()) return;  // nothing is said where nobody watches
    console_.live(fmt::format("scrubbed {} of {}, {}", format_bytes(done_bytes),
                              format_bytes(total_bytes),
                              format_rate(throttle_.bytes_per_second())));
  }

 private:
  Console& console_;
  const Throttle& throttle_;
};

class ScrubCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "scrub"; }
  [[nodiscard]] std::string summary() const override {
    return "Read all of a store and name every damaged place";
  }
  [[nodiscard]] std::string example() const override {
    return "Example: penstock scrub run1 --rate 1GB/s\n"
           "Reads only, and works while a training runs. Exit code 1: something is damaged.";
  }

  void declare(Flags& flags) override {
    flags.arguments("STORE", stores_, kStoreHelp);
    flags.custom(
        "--rate", "RATE|max", [this](const std::string& value) { return take_rate(value); },
        "Bytes per second that are read at most: 200MB/s (default), 1GiB/s, or no limit");
  }

  Result<ExitCode> run(Console& console) override {
    PENSTOCK_CHECK_OK(check_store_directories(stores_));
    const std::unique_ptr<Storage> storage = make_posix_storage();
    PENSTOCK_TAKE(opened, StoreReader::open(*storage, stores_));
    StoreReader& reader = *opened;
    if (!reader.store().open_note().empty()) console.warn(reader.store().open_note());
    Throttle throttle(rate_);
    ScrubView view(console, throttle);
    auto done = scrub_store(reader, throttle, view, stop_requested());
    console.finish_live();
    if (!done) return without_flags(std::move(done).error());
    const ScrubResult& scrubbed = done.value();
    report(console, reader, scrubbed);
    if (scrubbed.damaged != 0) {
      console.error(damaged_store(reader.store(), scrubbed.damaged));
      return ExitCode::kFailed;
    }
    return scrubbed.complete ? ExitCode::kOk : ExitCode::kStopped;
  }

 private:
  Status take_rate(const std::string& value) {
    rate_ = 0;
    if (value == "max") return ok();
    const bool per_second = value.ends_with("/s");
    auto bytes = parse_bytes(per_second ? value.substr(0, value.size() - 2) : value);
    if (!bytes || bytes.value() == 0) {
      return make_error(Errc::kArgument,
                        fmt::format("--rate \"{}\" is not a rate such as 200MB/s, or max", value));
    }
    rate_ = bytes.value();
    return ok();
  }

  void report(Console& console, const StoreReader& reader, const ScrubResult& result) const {
    if (console.json()) {
      const json end = {{"schema", kSchema},
                        {"event", "end"},
                        {"store", StoreDirectories(stores_).text()},
                        {"step", reader.step()},
                        {"complete", result.complete},
                        {"bytes", result.bytes},
                        {"total_bytes", result.total_bytes},
                        {"damaged", result.damaged},
                        {"reread_blocks", result.reread_blocks},
                        {"checkpoints", result.checkpoints},
                        {"note", reader.store().open_note()}};
      console.data(json_line(end));
      return;
    }
    if (!result.complete) {
      console.data(fmt::format("stopped after {} of {}", format_bytes(result.bytes),
                               format_bytes(result.total_bytes)));
    } else if (result.damaged == 0) {
      console.data(fmt::format(
          "{} of step {}{} in {} match their checksums", format_bytes(result.bytes), reader.step(),
          result.checkpoints == 0 ? std::string()
                                  : fmt::format(" and {} checkpoints", result.checkpoints),
          StoreDirectories(stores_).text()));
    }
  }

  std::vector<std::string> stores_;
  std::uint64_t rate_ = kDefaultRate;
};

}  // namespace

std::unique_ptr<Command> make_scrub_command() {
  return std::make_unique<ScrubCommand>();
}

}  // namespace penstock
