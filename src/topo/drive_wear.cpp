#include "topo/drive_wear.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace penstock {
namespace {

/// The drives of each directory; what is not known goes to `notes`.
std::vector<std::vector<std::string>> find_drives(const std::vector<std::string>& directories,
                                                  const SystemFiles& files,
                                                  std::vector<std::string>& notes) {
  std::vector<std::vector<std::string>> found;
  for (const std::string& directory : directories) {
    auto device = device_of(directory, files);
    auto drives = device ? drives_under(device.value(), directory, files)
                         : Result<std::vector<std::string>>(std::move(device).error());
    if (!drives) notes.push_back(drives.error().message);
    found.push_back(drives ? std::move(drives).value() : std::vector<std::string>());
  }
  return found;
}

/// Each once, by name.
std::set<std::string> all_of(const std::vector<std::vector<std::string>>& drives_of) {
  std::set<std::string> names;
  for (const auto& drives : drives_of) names.insert(drives.begin(), drives.end());
  return names;
}

void add_life(const WearSources& sources, DriveWear& wear) {
  if (!wear.drive.starts_with("nvme")) {
    wear.notes.push_back(
        fmt::format("{} is no NVMe drive, so what it wrote in its life is not known", wear.drive));
    return;
  }
  const auto page = sources.smart_page((sources.files.dev / wear.drive).string());
  const auto health = page ? decode_smart_page(page.value()) : Result<DriveHealth>(page.error());
  if (health) {
    wear.health = health.value();
  } else {
    wear.notes.push_back(health.error().message);
  }
}

}  // namespace

WearReport drive_lives(const std::vector<std::string>& directories, const WearSources& sources) {
  WearReport report;
  for (const std::string& name : all_of(find_drives(directories, sources.files, report.notes))) {
    DriveWear& wear = report.drives.emplace_back();
    wear.drive = name;
    add_life(sources, wear);
  }
  return report;
}

WearMeter::WearMeter(const std::vector<std::string>& directories, WearSources sources)
    : sources_(std::move(sources)), drives_of_(find_drives(directories, sources_.files, notes_)) {
  for (const std::string& name : all_of(drives_of_)) {
    starts_.push_back({name, written(name)});
  }
}

Result<std::uint64_t> WearMeter::written(const std::string& drive) const {
  const std::filesystem::path path = sources_.files.proc / "diskstats";
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file.is_open() || file.bad()) {
    return make_error(Errc::kIo, fmt::format("{} cannot be read", path.string()));
  }
  return written_bytes_of(text, drive);
}

std::optional<std::uint64_t> WearMeter::ours(const std::string& drive,
                                             const std::vector<std::uint64_t>& written) const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < drives_of_.size() && i < written.size(); ++i) {
    const std::vector<std::string>& drives = drives_of_[i];
    if (std::find(drives.begin(), drives.end(), drive) == drives.end()) continue;
    if (drives.size() > 1) return std::nullopt;  // how it is dealt over them is not ours to know
    sum += written[i];
  }
  return sum;
}

WearReport WearMeter::read(const std::vector<std::uint64_t>& written_here) const {
  WearReport report;
  report.notes = notes_;
  for (const Start& start : starts_) {
    DriveWear& wear = report.drives.emplace_back();
    wear.drive = start.drive;
    wear.ours = ours(start.drive, written_here);
    const Result<std::uint64_t> now = start.bytes ? written(start.drive) : start.bytes;
    if (!now) {
      wear.notes.push_back(now.error().message);
    } else if (now.value() < start.bytes.value()) {
      wear.notes.push_back(fmt::format("the system began to count anew for {}", start.drive));
    } else {
      wear.bytes = now.value() - start.bytes.value();
    }
    add_life(sources_, wear);
  }
  return report;
}

}  // namespace penstock
