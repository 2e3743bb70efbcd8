#include <utility>

#include <fmt/format.h>

#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/inspect_file.hpp"
#include "cli/inspect_view.hpp"
#include "cli/signals.hpp"
#include "cli/store_hash.hpp"
#include "cli/store_reader.hpp"
#include "cli/store_scrub.hpp"
#include "cli/tensor_stats.hpp"
#include "cli/wear_view.hpp"
#include "model/did_you_mean.hpp"

namespace penstock {
namespace {

constexpr std::size_t kMaxKept = 1000;  // damaged tiles; scrub has no limit
constexpr int kAttempts = 5;            // at one commit while a training goes on

/// Progress is for people who wait: nothing is said where nobody watches.
class Progress {
 public:
  Progress(Console& console, std::string what) : console_(console), what_(std::move(what)) {}
  void operator()(std::uint64_t done, std::uint64_t total) const {
    if (!console_.is_live()) return;
    console_.live(fmt::format("{} {} of {}", what_, format_bytes(done), format_bytes(total)));
  }

 private:
  Console& console_;
  std::string what_;
};

class Collector final : public ScrubObserver {
 public:
  Collector(Console& console, std::vector<Damage>& damage)
      : progress_(console, "verified"), damage_(damage) {}
  void on_damage(const Damage& damage) override {
    if (damage_.size() < kMaxKept) damage_.push_back(damage);
  }
  void on_progress(std::uint64_t done_bytes, std::uint64_t total_bytes) override {
    progress_(done_bytes, total_bytes);
  }

 private:
  Progress progress_;
  std::vector<Damage>& damage_;
};

class InspectCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "inspect"; }
  [[nodiscard]] std::string summary() const override {
    return "What a store or a safetensors file holds, whether it is whole";
  }
  [[nodiscard]] std::string example() const override {
    return "Examples: penstock inspect run1 --verify --hash\n"
           "          penstock inspect run1 --tensor model.norm.weight --stats\n"
           "Reads only, and works while a training runs.";
  }

  void declare(Flags& flags) override {
    flags.arguments(
        "STORE", stores_,
        "Directory of the store; all of them, if several drives. Or a .safetensors file");
    flags.on("--verify", verify_, "Read everything and compare it with its checksums");
    flags.on("--hash", hash_, "One hash of weights, moments and trainer state");
    flags.text("--checkpoint", checkpoint_, "This checkpoint instead of the last commit", "NAME");
    flags.text("--tensor", tensor_, "Only this tensor", "NAME");
    declare_endurance(flags, endurance_bytes_);
    flags.on("--stats", stats_,
             "Smallest, largest, mean, root mean square, and how many are not finite");
  }

  Result<ExitCode> run(Console& console) override {
    if (stores_.size() == 1 && stores_[0].ends_with(".safetensors")) return inspect_file(console);
    PENSTOCK_CHECK_OK(check_store_directories(stores_));
    const std::unique_ptr<Storage> storage = make_posix_storage();
    PENSTOCK_TAKE(opened, StoreReader::open(*storage, stores_, checkpoint_));
    StoreReader& reader = *opened;
    Findings findings;
    findings.endurance_bytes = endurance_bytes_;
    findings.wear = drive_lives(stores_);
    findings.is_checkpoint = !checkpoint_.empty();
    PENSTOCK_CHECK_OK(find_tensor(reader, findings));
    if (verify_) PENSTOCK_CHECK_OK(verify(reader, findings, console));
    PENSTOCK_CHECK_OK(
        reader.with_one_commit(kAttempts, [&] { return read_values(reader, findings, console); }));
    console.finish_live();
    show_findings(findings, reader, console);
    if (findings.scrub.damaged == 0) return ExitCode::kOk;
    console.error(damaged_store(reader.store(), findings.scrub.damaged));
    return ExitCode::kFailed;
  }

 private:
  Result<ExitCode> inspect_file(Console& console) const {
    if (verify_ || hash_ || stats_) {
      return make_error(
          Errc::kArgument,
          fmt::format("--verify, --hash and --stats are for stores, and {} is a file; "
                      "name the store",
                      stores_[0]));
    }
    PENSTOCK_CHECK_OK(inspect_safetensors(stores_[0], tensor_, console));
    return ExitCode::kOk;
  }

  Status find_tensor(const StoreReader& reader, Findings& findings) const {
    if (tensor_.empty()) return ok();
    const StoreDescription& description = reader.description();
    findings.only = description.find(tensor_);
    if (findings.only != nullptr) return ok();
    std::vector<std::string_view> names;
    for (const DescribedTensor& tensor : description.tensors) names.push_back(tensor.name);
    return make_error(Errc::kArgument,
                      fmt::format("--tensor \"{}\": the store {} has no such tensor{}", tensor_,
                                  reader.store().directory(), did_you_mean(tensor_, names)));
  }

  static Status verify(StoreReader& reader, Findings& findings, Console& console) {
    Throttle unlimited(0);
    Collector collector(console, findings.damage);
    PENSTOCK_TAKE(scrubbed, scrub_store(reader, unlimited, collector, stop_requested()));
    if (!scrubbed.complete) {
      return make_error(Errc::kCancelled, "stopped before everything was verified");
    }
    findings.scrub = scrubbed;
    findings.verified = true;
    return ok();
  }

  /// What must be of one commit.
  Status read_values(StoreReader& reader, Findings& findings, Console& console) const {
    if (hash_) {
      PENSTOCK_TAKE(hash, hash_store(reader, stop_requested(), Progress(console, "hashed")));
      findings.hash = hash;
    }
    findings.stats.clear();
    if (!stats_) return ok();
    std::uint64_t total = 0, done = 0;
    for (const BlockGeometry& block : reader.store().geometry().blocks) {
      for (const std::uint64_t length : block.lengths) total += length;
    }
    const Progress show(console, "read");
    for (const DescribedTensor& tensor : reader.description().tensors) {
      if (findings.only != nullptr && findings.only != &tensor) continue;
      std::uint64_t of_tensor = 0;
      auto stats = tensor_stats(reader, tensor, stop_requested(), [&](std::uint64_t bytes) {
        of_tensor = bytes;
        show(done + bytes, total);
      });
      if (!stats) return std::move(stats).error();
      done += of_tensor;
      findings.stats.push_back({&tensor, std::move(stats).value()});
    }
    return ok();
  }

  std::vector<std::string> stores_;
  std::string checkpoint_;
  std::string tensor_;
  std::uint64_t endurance_bytes_ = 0;
  bool verify_ = false;
  bool hash_ = false;
  bool stats_ = false;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command() {
  return std::make_unique<InspectCommand>();
}

}  // namespace penstock
