// Names in a store's directory.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "io/store_impl.hpp"

namespace penstock {
namespace {

constexpr std::string_view kDataPrefix = "data.";
constexpr std::string_view kPrefix = "manifest.";
constexpr std::string_view kPinPrefix = "pin.";
constexpr std::size_t kMaxPinName = 64;
constexpr std::string_view kTemporary = ".tmp";

}  // namespace

std::string data_name(std::size_t file) {
  return fmt::format("{}{}", kDataPrefix, file);
}

std::string data_path(const StoreDirectories& directories, std::size_t file) {
  return directories[file] + "/" + data_name(file);
}

std::optional<std::size_t> parse_data_name(std::string_view name) {
  if (!name.starts_with(kDataPrefix)) return std::nullopt;
  std::size_t file = 0;
  const auto digits = name.substr(kDataPrefix.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), file);
  if (error != std::errc() || data_name(file) != name) return std::nullopt;
  return file;
}

const std::string& directory_of(const StoreDirectories& directories, char copy) {
  return directories[copy == 'b' && directories.size() > 1 ? 1 : 0];
}

std::string manifest_name(const ManifestName& name) {
  const std::string stem = name.pin.empty() ? fmt::format("{}{}", kPrefix, name.sequence)
                                            : fmt::format("{}{}", kPinPrefix, name.pin);
  return fmt::format("{}.{}{}", stem, name.copy, name.temporary ? kTemporary : "");
}

std::string manifest_path(const StoreDirectories& directories, const ManifestName& name) {
  return directory_of(directories, name.copy) + "/" + manifest_name(name);
}

Status check_pin_name(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (!name.empty() && name.size() <= kMaxPinName && name[0] != '.' &&
      std::all_of(name.begin(), name.end(), allowed)) {
    return ok();
  }
  return make_error(
      Errc::kArgument,
      fmt::format(
          "the name \"{}\" cannot be one of a checkpoint; use 1 to {} letters, digits, dots, "
          "dashes and underscores, and not a dot first",
          name.substr(0, kMaxPinName), kMaxPinName));
}

Status check_numbers_left(const std::string& path, std::uint64_t number) {
  constexpr std::uint64_t kNumbersOfARun = std::uint64_t{1} << 32;  // more than years would use
  if (number <= kLastSequence - kNumbersOfARun) return ok();
  return make_error(
      Errc::kState,
      fmt::format("the number in the name of {} leaves too few for further files; move it away "
                  "unless Penstock made it, else copy the store (penstock checkpoint copy), for a "
                  "copy begins at 0",
                  path));
}

Error no_checkpoint(const std::string& name, const StoreDirectories& directories,
                    const std::vector<std::string>& names) {
  return make_error(
      Errc::kState,
      fmt::format("there is no checkpoint \"{}\" in {}, {}", name, directories.text(),
                  names.empty()
                      ? std::string("nor any other; keep a commit with \"penstock "
                                    "checkpoint pin\"")
                      : fmt::format("which has {}; name one of these", fmt::join(names, ", "))));
}

std::optional<ManifestName> parse_manifest_name(std::string_view name) {
  ManifestName parsed;
  std::string_view rest = name;
  if (rest.ends_with(kTemporary)) {
    parsed.temporary = true;
    rest.remove_suffix(kTemporary.size());
  }
  if (!rest.ends_with(".a") && !rest.ends_with(".b")) return std::nullopt;
  parsed.copy = rest.back();
  rest.remove_suffix(2);
  if (rest.starts_with(kPinPrefix)) {
    parsed.pin = rest.substr(kPinPrefix.size());
    if (!check_pin_name(parsed.pin)) return std::nullopt;
  } else if (rest.starts_with(kPrefix)) {
    rest.remove_prefix(kPrefix.size());
    const auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), parsed.sequence);
    if (error != std::errc() || parsed.sequence > kLastSequence) return std::nullopt;
  } else {
    return std::nullopt;
  }
  // Only the one spelling of a number is ours: no leading zeros, signs or further suffixes.
  if (manifest_name(parsed) != name) return std::nullopt;
  return parsed;
}

Result<std::vector<ManifestName>> list_manifests(Storage& storage,
                                                 const StoreDirectories& directories) {
  std::vector<ManifestName> manifests;
  const auto add = [&](const std::string& directory) -> Status {
    auto names = storage.list(directory);
    if (!names) return std::move(names).error();
    for (const std::string& name : names.value()) {
      const auto parsed = parse_manifest_name(name);
      if (parsed && directory_of(directories, parsed->copy) == directory) {
        manifests.push_back(*parsed);
      }
    }
    return ok();
  };
  PENSTOCK_CHECK_OK(add(directory_of(directories, 'a')));
  if (directories.size() > 1) PENSTOCK_CHECK_OK(add(directory_of(directories, 'b')));
  std::stable_sort(
      manifests.begin(), manifests.end(),
      [](const ManifestName& x, const ManifestName& y) { return x.sequence < y.sequence; });
  return manifests;
}

bool any_commit(const std::vector<ManifestName>& names) {
  return std::any_of(names.begin(), names.end(),
                     [](const ManifestName& name) { return !name.temporary && name.pin.empty(); });
}

DataHeader make_header(const StoreUuid& uuid, const StoreLayout& layout, std::size_t file,
                       std::uint64_t file_bytes, std::uint64_t layout_hash) {
  const FileLayout& place = layout.files[file];
  DataHeader header;
  header.uuid = uuid;
  header.file_index = static_cast<std::uint32_t>(file);
  header.file_count = static_cast<std::uint32_t>(layout.files.size());
  header.slot_bytes = layout.slot_bytes;
  header.slot_count = place.slot_count;
  header.slots_offset_bytes = place.slots_offset_bytes;
  header.spill_offset_bytes = place.spill_offset_bytes;
  header.spill_bytes = place.spill_bytes;
  header.file_bytes = file_bytes;
  header.layout_hash = layout_hash;
  return header;
}

}  // namespace penstock
