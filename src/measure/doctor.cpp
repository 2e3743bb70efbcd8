#include "measure/doctor.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/units.hpp"
#include "io/storage.hpp"
#include "measure/check_memory.hpp"
#include "measure/check_place.hpp"
#include "measure/check_processor.hpp"
#include "measure/check_profile.hpp"
#include "measure/check_speed.hpp"
#include "measure/check_uring.hpp"
#include "mem/arena.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kArenaBytes = 64 * kMiB;

/// Memory for all trials, as a training has it.
struct TrialMemory {
  ByteBudget budget{"host", kArenaBytes};
  Result<Arena> arena = Arena::create(budget, "doctor", kArenaBytes);

  [[nodiscard]] std::span<std::byte> span() const {
    if (!arena) return {};
    return {arena.value().data(), arena.value().bytes()};
  }
};

class Doctor {
 public:
  explicit Doctor(const DoctorOptions& options) : options_(options) {}

  Result<std::vector<Check>> run() {
    PENSTOCK_CHECK_OK(read_places());
    check_machine();
    for (const PlaceFacts& place : places_) {
      if (is_stopped()) break;
      PENSTOCK_CHECK_OK(check_place(place));
    }
    if (is_stopped()) return make_error(Errc::kCancelled, "doctor: stopped before the end");
    return std::move(checks_);
  }

 private:
  [[nodiscard]] bool is_stopped() const { return options_.stop != nullptr && *options_.stop; }

  void add(Check check) {
    if (options_.report) options_.report(check);
    checks_.push_back(std::move(check));
  }

  /// Tries all directories, before anything is said: a wrong one is a mistake of the caller's.
  Status read_places() {
    std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>> seen;
    for (const std::string& path : options_.paths) {
      PlaceFacts place = read_place(path, options_.sources);
      const PlaceTrial& trial = place.trial;
      if (trial.look_errno == ENOENT || trial.look_errno == ENOTDIR) {
        return make_error(
            Errc::kArgument,
            fmt::format("doctor {}: no such directory; make it, or name another", path),
            trial.look_errno);
      }
      const bool was_seen =
          trial.stage != TrialStage::kNotStarted && trial.look_errno == 0 && !trial.is_late;
      if (was_seen && !trial.is_directory) {
        return make_error(Errc::kArgument,
                          fmt::format("doctor {}: not a directory; name the one it is in", path),
                          ENOTDIR);
      }
      if (was_seen && !seen.emplace(trial.device_major, trial.device_minor, trial.inode).second) {
        repeated_.push_back(path);
        continue;
      }
      places_.push_back(std::move(place));
    }
    return ok();
  }

  void check_machine() {
    const UringFacts uring = try_uring(memory_->span());
    add(check_uring(uring));
    add(check_registered_memory(uring));
    add(check_huge_pages(
        read_huge_page_facts(memory_->arena, kArenaBytes, options_.sources.files)));
    add(check_memory(read_memory_facts(options_.sources.files, options_.root)));
    add(check_limits(read_limit_facts()));
    const ProcessorFacts processor = read_processor_facts();
    add(check_processor(processor));
    add(check_instructions(processor));
    check_libraries();
    if (auto shared = check_shared_drives(places_)) add(std::move(*shared));
    for (const std::string& path : repeated_) {
      Check check{.name = "repeated"};
      check.found(CheckStatus::kWarn,
                  fmt::format("{} is the same directory as one before it", path),
                  "it counts once: a store needs a directory for each of its drives",
                  "name each directory once");
      add(std::move(check));
    }
  }

  Status check_place(const PlaceFacts& place) {
    add(check_directory(place));
    if (place.trial.stage > TrialStage::kFilesystem && !place.trial.is_late) {
      add(check_filesystem(place));
    }
    if (place.trial.stage >= TrialStage::kWrite && !place.trial.is_late) add(check_direct(place));
    if (place.trial.stage > TrialStage::kFilesystem && place.trial.total_bytes > 0) {
      add(check_space(place));
      add(check_drive(place));
    }
    if (!is_usable(place)) return ok();
    add_profile(place.path);
    return probe(place);
  }

  void add_profile(const std::string& path) {
    ProfileFacts facts{path, {}, identify_drives(path, options_.sources.files), options_.profile};
    std::error_code error;
    facts.absolute = std::filesystem::absolute(path, error).lexically_normal().string();
    const std::time_t now = std::time(nullptr);
    facts.unix_seconds = static_cast<std::uint64_t>(std::max<std::time_t>(now, 0));
    add(check_profile(facts, read_profiles(options_.profile)));
  }

  Status probe(const PlaceFacts& place) {
    const auto storage = make_posix_storage();
    const std::uint64_t bytes = probe_bytes(place.trial.free_bytes, storage->longest_file_bytes());
    if (!options_.probe || bytes == 0 || memory_->span().empty()) {
      add(skip_speed(place.path, !options_.probe ? "left out, as --no-probe asks"
                                 : bytes == 0
                                     ? "there is too little room for a file to measure with"
                                     : "there is no memory to measure with"));
      return ok();
    }
    ProbeLimits limits{.most_bytes = bytes};
    limits.stop = options_.stop;
    const auto result = probe_drive(*storage, place.path, memory_->span(), limits);
    if (!result && result.error().code == Errc::kCancelled) return result.error();
    add(check_speed(place.path, result));
    if (!result && result.error().code == Errc::kTimeout) {
      // The kernel still writes to it, for as long as the drive hangs.
      (void)memory_.release();
      memory_ = std::make_unique<TrialMemory>();
    }
    return ok();
  }

  void check_libraries() {
    add(check_cuda(try_cuda(options_.libraries.cuda, options_.sources.files)));
    add(check_nccl(try_nccl(options_.libraries.nccl)));
    add(check_mpi(try_mpi(options_.libraries.mpi)));
  }

  const DoctorOptions& options_;
  std::unique_ptr<TrialMemory> memory_ = std::make_unique<TrialMemory>();
  std::vector<PlaceFacts> places_;
  std::vector<std::string> repeated_;
  std::vector<Check> checks_;
};

}  // namespace

Result<std::vector<Check>> run_doctor(const DoctorOptions& options) {
  return Doctor(options).run();
}

}  // namespace penstock
