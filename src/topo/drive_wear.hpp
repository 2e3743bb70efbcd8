#pragma once

/// What is written to the drives under some directories while a program runs.
///
/// Invariant: nothing here fails; what cannot be read is a sentence in the report.
/// Threads:   one.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "topo/block_devices.hpp"
#include "topo/drive_counters.hpp"

namespace penstock {

struct DriveWear {
  std::string drive;                     ///< "nvme0n1"
  std::optional<std::uint64_t> bytes{};  ///< the system counted, of all programs
  std::optional<std::uint64_t> ours{};  ///< this program wrote; none where directories share drives
  std::optional<DriveHealth> health{};  ///< what the drive counted in its life
  std::vector<std::string> notes{};     ///< why something is not there, one sentence each
};

struct WearReport {
  std::vector<DriveWear> drives;   ///< by name
  std::vector<std::string> notes;  ///< of directories whose drives are not known
};

/// Where the counters are; other sources in tests.
struct WearSources {
  SystemFiles files;
  std::function<Result<std::vector<std::byte>>(const std::string& device_path)> smart_page =
      read_smart_page;
};

/// What the drives say of their lives; nothing is counted.
[[nodiscard]] WearReport drive_lives(const std::vector<std::string>& directories,
                                     const WearSources& sources = {});

class WearMeter {
 public:
  /// Begins to count. The directories must exist.
  explicit WearMeter(const std::vector<std::string>& directories, WearSources sources = {});

  /// Since the beginning. `written`: what this program wrote to each directory since then.
  [[nodiscard]] WearReport read(const std::vector<std::uint64_t>& written) const;

 private:
  struct Start {
    std::string drive;
    Result<std::uint64_t> bytes;
  };
  [[nodiscard]] Result<std::uint64_t> written(const std::string& drive) const;

  /// What was written to directories that lie on this drive alone; none if one lies on others too.
  [[nodiscard]] std::optional<std::uint64_t> ours(const std::string& drive,
                                                  const std::vector<std::uint64_t>& written) const;

  WearSources sources_;
  std::vector<std::string> notes_;                   // filled while the drives are found
  std::vector<std::vector<std::string>> drives_of_;  // of each directory
  std::vector<Start> starts_;                        // of each drive
};

}  // namespace penstock
