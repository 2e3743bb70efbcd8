#include "cli/clean_export.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/export_target.hpp"

namespace penstock {
namespace {

constexpr std::size_t kMaxMarkBytes = std::size_t{16} << 20;
/// What a safetensors file of an export begins with, behind the length of its header.
constexpr std::string_view kFileStart = R"({"__metadata__":{"format":"pt","penstock":"export")";
constexpr std::size_t kLengthBytes = 8;

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

/// The names that the mark of an export lists; empty where it is no such mark.
std::set<std::string> names_of(std::string_view text) {
  std::set<std::string> names;
  const nlohmann::json mark = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!mark.is_object() || !mark.contains("penstock") || mark["penstock"] != "export" ||
      !mark.contains("files") || !mark["files"].is_array()) {
    return names;
  }
  for (const nlohmann::json& file : mark["files"]) {
    if (!file.is_string()) continue;
    std::string name = file.get<std::string>();
    if (is_plain_name(name)) names.insert(std::move(name));
  }
  return names;
}

}  // namespace

bool is_export_name(std::string_view name) {
  return name == kExportMark || name.ends_with(kExportSuffix);
}

Result<std::vector<Leftover>> find_export_files(const std::shared_ptr<Directory>& directory) {
  std::vector<Leftover> found;
  PENSTOCK_TAKE(entries, directory->entries());
  for (const Directory::Entry& entry : entries) {
    if (entry.kind != Directory::Kind::kFile || !entry.name.ends_with(kExportSuffix)) continue;
    const auto head = directory->head(entry, kLengthBytes + kFileStart.size());
    const bool ours =
        head && (head->empty() || (head->size() > kLengthBytes &&
                                   text_in(*head).substr(kLengthBytes) == kFileStart));
    if (!ours) continue;
    PENSTOCK_TAKE(locked, directory->lock(entry));
    Leftover leftover;
    leftover.kind = LeftoverKind::kUnfinishedExport;
    leftover.path = directory->path() + "/" + entry.name;
    leftover.parts.push_back({directory, {entry}});
    leftover.bytes = entry.bytes;
    leftover.removable = locked;
    leftover.why = locked ? "an export that did not finish" : "it is in use";
    found.push_back(std::move(leftover));
  }
  return found;
}

Result<std::vector<Leftover>> find_export_directory(const std::shared_ptr<Directory>& directory,
                                                    const std::shared_ptr<Directory>& parent) {
  std::vector<Leftover> found;
  if (!std::string_view(directory->path()).ends_with(kExportSuffix)) return found;
  PENSTOCK_TAKE(entries, directory->entries());
  const auto mark = std::find_if(entries.begin(), entries.end(), [](const Directory::Entry& entry) {
    return entry.name == kExportMark && entry.kind == Directory::Kind::kFile;
  });
  Leftover leftover;
  leftover.kind = LeftoverKind::kUnfinishedExport;
  leftover.path = directory->path();
  leftover.removable = true;
  leftover.why = "an export that did not finish";
  LeftoverPart part{directory, {}};
  if (mark != entries.end()) {
    const auto text = directory->head(*mark, kMaxMarkBytes);
    const std::set<std::string> names = text ? names_of(text_in(*text)) : std::set<std::string>();
    if (names.empty() && !(text && text->empty())) return found;  // not one of ours
    PENSTOCK_TAKE(locked, directory->lock(*mark));
    leftover.removable = locked;
    if (!locked) leftover.why = "it is in use";
    for (const Directory::Entry& entry : entries) {
      if (entry.kind == Directory::Kind::kFile && names.contains(entry.name)) {
        part.entries.push_back(entry);
      }
    }
    part.entries.push_back(*mark);  // last: it says what the others are
  } else if (!entries.empty()) {
    return found;
  }
  for (const Directory::Entry& entry : part.entries) leftover.bytes += entry.bytes;
  const bool emptied = part.entries.size() == entries.size();
  if (!part.entries.empty()) leftover.parts.push_back(std::move(part));
  if (parent != nullptr && emptied) {
    PENSTOCK_TAKE(beside, parent->entries());
    for (const Directory::Entry& entry : beside) {
      if (parent->path() + "/" + entry.name == directory->path()) {
        leftover.parts.push_back({parent, {entry}});
      }
    }
  }
  if (!leftover.parts.empty()) found.push_back(std::move(leftover));
  return found;
}

}  // namespace penstock
