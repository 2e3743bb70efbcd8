#include "measure/drive_facts.hpp"

#include <fstream>
#include <system_error>

#include <fmt/format.h>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLayers = 16;  // of devices over devices; a limit on what a broken /sys can do

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::uint64_t number_in(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : 0;
}

/// The directory of a block device in /sys; empty where it has none.
fs::path device_place(const Mount& mount, const SystemFiles& files) {
  std::error_code error;
  fs::path place = fs::canonical(
      files.sys / "dev/block" / fmt::format("{}:{}", mount.device.major, mount.device.minor),
      error);
  if (!error) return place;
  // A file system such as btrfs has a number of its own; its source says where it is.
  constexpr std::string_view kDev = "/dev/";
  if (!mount.source.starts_with(kDev)) return {};
  const fs::path device = fs::canonical(files.dev / mount.source.substr(kDev.size()), error);
  if (error) return {};
  place = fs::canonical(files.sys / "class/block" / device.filename(), error);
  return error ? fs::path() : place;
}

void add_layers(const fs::path& given, int left, std::vector<std::string>& layers) {
  std::error_code error;
  fs::path place = fs::canonical(given, error);
  if (error || left == 0) return;
  if (fs::exists(place / "partition", error)) {
    layers.push_back("partition " + place.filename().string());
    place = place.parent_path();
  }
  const std::string name = place.filename().string();
  const std::string mapper = first_line(place / "dm/name");
  if (!mapper.empty()) {
    const std::string uuid = first_line(place / "dm/uuid");
    const char* kind = uuid.starts_with("LVM-")     ? "logical volume"
                       : uuid.starts_with("CRYPT-") ? "encrypted volume"
                                                    : "mapped volume";
    layers.push_back(fmt::format("{} {}", kind, mapper));
  }
  const std::string level = first_line(place / "md/level");
  if (!level.empty()) layers.push_back(fmt::format("RAID {} {}", level, name));
  const std::string backing = first_line(place / "loop/backing_file");
  if (!backing.empty()) layers.push_back(fmt::format("loop device {} on {}", name, backing));
  for (fs::directory_iterator lower(place / "slaves", error), end; !error && lower != end;
       lower.increment(error)) {
    add_layers(lower->path(), left - 1, layers);
  }
}

/// "none [mq-deadline] kyber"
std::string chosen_word(const std::string& line) {
  const std::size_t begin = line.find('['), end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return line;
  return line.substr(begin + 1, end - begin - 1);
}

}  // namespace

std::vector<std::string> layers_under(const Mount& mount, const SystemFiles& files) {
  std::vector<std::string> layers;
  const fs::path place = device_place(mount, files);
  if (!place.empty()) add_layers(place, kMaxLayers, layers);
  return layers;
}

DriveFacts read_drive_facts(const std::string& name, const WearSources& sources) {
  DriveFacts facts{.name = name};
  const fs::path place = sources.files.sys / "class/block" / name;
  facts.model = first_line(place / "device/model");
  facts.scheduler = chosen_word(first_line(place / "queue/scheduler"));
  const std::string rotational = first_line(place / "queue/rotational");
  if (!rotational.empty()) facts.is_rotational = rotational != "0";
  facts.sector_bytes = number_in(place / "queue/logical_block_size");
  facts.physical_sector_bytes = number_in(place / "queue/physical_block_size");
  if (!name.starts_with("nvme")) return facts;
  const auto page = sources.smart_page((sources.files.dev / name).string());
  const auto health = page ? decode_smart_page(page.value()) : Result<DriveHealth>(page.error());
  if (health) {
    facts.health = health.value();
  } else {
    facts.health_note = health.error().message;
  }
  return facts;
}

}  // namespace penstock
