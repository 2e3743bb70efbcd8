#include "engine/tuned_queue.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/system_drives.hpp"

namespace penstock {

QueueTuning common_tuning(const std::vector<const DriveProfile*>& drives) {
  if (drives.empty() || std::count(drives.begin(), drives.end(), nullptr) != 0) return {};
  QueueTuning common = drives.front()->tuning;
  const auto keep = [](auto& value, const auto& other) {
    if (value != other) value = {};
  };
  for (const DriveProfile* drive : drives) {
    // Sizes were measured with the backend, so they go with it.
    if (drive->tuning.threads != common.threads) return {};
    keep(common.piece_bytes, drive->tuning.piece_bytes);
    keep(common.read_credit_bytes, drive->tuning.read_credit_bytes);
    keep(common.write_credit_bytes, drive->tuning.write_credit_bytes);
    keep(common.plain_memory, drive->tuning.plain_memory);
  }
  return common;
}

bool apply_tuning(const QueueTuning& tuning, QueueOptions& options) {
  const QueueBackend measured = tuning.threads ? QueueBackend::kThreads : QueueBackend::kUring;
  if (options.backend != QueueBackend::kAuto && options.backend != measured) return false;
  const QueueOptions by_default;
  bool is_set = false;
  const auto set = [&is_set](auto& option, const auto& usual, const auto& wanted, bool is_wanted) {
    if (!is_wanted || option != usual || option == wanted) return;
    option = wanted;
    is_set = true;
  };
  // io_uring is left to kAuto: where the kernel has begun to refuse it, threads do the same.
  set(options.backend, by_default.backend, QueueBackend::kThreads, tuning.threads);
  set(options.piece_bytes, by_default.piece_bytes, tuning.piece_bytes, tuning.piece_bytes != 0);
  set(options.read_credit_bytes, by_default.read_credit_bytes, tuning.read_credit_bytes,
      tuning.read_credit_bytes != 0);
  set(options.write_credit_bytes, by_default.write_credit_bytes, tuning.write_credit_bytes,
      tuning.write_credit_bytes != 0);
  set(options.register_memory, by_default.register_memory, false, tuning.plain_memory);
  return is_set;
}

std::string tune_queue(QueueOptions& options, const std::vector<std::string>& directories,
                       const ProfilePlace& place, const Logger& logger, const SystemFiles& files) {
  if (place.file.empty()) return {};
  const auto profiles = read_profiles(place);
  if (!profiles) {
    PENSTOCK_LOG(logger, LogLevel::kWarning, "{}; the defaults are used", profiles.error().message);
    return {};
  }
  if (profiles.value().empty()) return {};
  std::vector<const DriveProfile*> drives;
  for (const std::string& directory : directories) {
    drives.push_back(
        find_profile(profiles.value(), identify_drives(existing_place(directory), files)));
  }
  const QueueTuning tuning = common_tuning(drives);
  if (!apply_tuning(tuning, options)) {
    PENSTOCK_LOG(logger, LogLevel::kDebug, "the profile {} changes nothing here", place.file);
    return {};
  }
  PENSTOCK_LOG(logger, LogLevel::kInfo, "the profile {} of {} sets {}", place.file,
               format_time(drives.front()->unix_seconds), words_of(tuning));
  return place.file;
}

}  // namespace penstock
