#pragma once

/// What "penstock tune" found for the drives of a store, put into the options of its queue.
///
/// Precedence: what the options say themselves, then the profile, then the default. A setting that
/// has its default is taken as not said. The settings were measured with one backend, so options
/// that ask for another one leave all of them out. Of drives with different profiles, or with none,
/// only what all of them have is used: the options of a queue are the same for all its drives.
/// A profile changes how fast a run is, never its results, and never fails a run: one that cannot
/// be read is a warning.
/// Threads: one.

#include <string>
#include <vector>

#include "base/log.hpp"
#include "io/storage.hpp"
#include "topo/block_devices.hpp"
#include "topo/profile_file.hpp"

namespace penstock {

/// Of `drives`, each of which may have one (null: none).
[[nodiscard]] QueueTuning common_tuning(const std::vector<const DriveProfile*>& drives);

/// Sets what `tuning` has and `options` leaves at its default; whether anything was set.
bool apply_tuning(const QueueTuning& tuning, QueueOptions& options);

/// Reads the profile for the drives of `directories` (those not there yet: of what is above them)
/// and applies it. Returns the file where something was set, for the user to see; else empty.
std::string tune_queue(QueueOptions& options, const std::vector<std::string>& directories,
                       const ProfilePlace& place, const Logger& logger,
                       const SystemFiles& files = {});

}  // namespace penstock
