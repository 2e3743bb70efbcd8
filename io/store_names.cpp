// Names in a store's directory.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "io/store_impl.hpp"

namespace penstock {
namespace {

constexpr std::string_view kPrefix = "manifest.";
constexpr std::string_view kTemporary = ".tmp";

}  // namespace

std::string data_path(const std::string& directory) {
  return directory + "/data.0";
}

std::string manifest_name(std::uint64_t step, char copy) {
  return fmt::format("{}{}.{}", kPrefix, step, copy);
}

std::optional<ManifestName> parse_manifest_name(std::string_view name) {
  ManifestName parsed;
  std::string_view rest = name;
  if (!rest.starts_with(kPrefix)) return std::nullopt;
  rest.remove_prefix(kPrefix.size());
  if (rest.ends_with(kTemporary)) {
    parsed.temporary = true;
    rest.remove_suffix(kTemporary.size());
  }
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), parsed.step);
  if (error != std::errc() || rest.empty()) return std::nullopt;
  parsed.copy = rest.back();
  if (parsed.copy != 'a' && parsed.copy != 'b') return std::nullopt;
  // Only the one spelling of a step is ours: no leading zeros, signs or further suffixes.
  const std::string expected = manifest_name(parsed.step, parsed.copy) +
                               std::string(parsed.temporary ? kTemporary : std::string_view());
  if (expected != name) return std::nullopt;
  return parsed;
}

Result<std::vector<ManifestName>> list_manifests(Storage& storage, const std::string& directory) {
  auto names = storage.list(directory);
  if (!names) return std::move(names).error();
  std::vector<ManifestName> manifests;
  for (const std::string& name : names.value()) {
    if (const auto parsed = parse_manifest_name(name)) manifests.push_back(*parsed);
  }
  std::stable_sort(manifests.begin(), manifests.end(),
                   [](const ManifestName& x, const ManifestName& y) { return x.step < y.step; });
  return manifests;
}

DataHeader make_header(const StoreUuid& uuid, const StoreLayout& layout, std::uint64_t file_bytes,
                       std::uint64_t layout_hash) {
  DataHeader header;
  header.uuid = uuid;
  header.slot_bytes = layout.slot_bytes;
  header.slot_count = layout.slot_count;
  header.slots_offset_bytes = layout.slots_offset_bytes;
  header.spill_offset_bytes = layout.spill_offset_bytes;
  header.spill_bytes = layout.spill_bytes;
  header.file_bytes = file_bytes;
  header.layout_hash = layout_hash;
  return header;
}

}  // namespace penstock
