// Paths of a simulated drive: from names to nodes, and the errors of those that lead nowhere.

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "io/sim_drive.hpp"

namespace penstock::sim {

Error failure(Errc code, std::string_view what, std::string_view path, int error,
              std::string_view advice) {
  return make_error(code,
                    fmt::format("{} \"{}\" (simulated): {} ({}); {}", what, path,
                                std::generic_category().message(error), error, advice),
                    error);
}

namespace {

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (end > at && path.substr(at, end - at) != ".") parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

}  // namespace

NodePtr Drive::find_node(const std::string& path) const {
  NodePtr node = root;
  for (const std::string& part : split(path)) {
    if (!node->is_directory) return nullptr;
    const auto it = node->current.find(part);
    if (it == node->current.end()) return nullptr;
    node = it->second;
  }
  return node;
}

Result<Place> Drive::place(const std::string& path, std::string_view what) const {
  std::vector<std::string> parts = split(path);
  if (parts.empty()) {
    return failure(Errc::kIo, what, path, EISDIR, "name something inside the root");
  }
  Place place{root, nullptr, parts.back()};
  parts.pop_back();
  for (const std::string& part : parts) {
    const auto it = place.directory->current.find(part);
    if (it == place.directory->current.end() || !it->second->is_directory) {
      return failure(Errc::kIo, what, path, ENOENT, "make its directory first");
    }
    place.directory = it->second;
  }
  const auto it = place.directory->current.find(place.name);
  if (it != place.directory->current.end()) place.node = it->second;
  return place;
}

Result<NodePtr> Drive::find_file(const std::string& path, std::string_view what) const {
  NodePtr node = find_node(path);
  if (!node) return failure(Errc::kIo, what, path, ENOENT, "check the path");
  if (node->is_directory) return failure(Errc::kIo, what, path, EISDIR, "name a file");
  return node;
}

Result<NodePtr> Drive::find_directory(const std::string& path, std::string_view what) const {
  NodePtr node = find_node(path);
  if (!node) return failure(Errc::kIo, what, path, ENOENT, "make the directory first");
  if (!node->is_directory) return failure(Errc::kIo, what, path, ENOTDIR, "name a directory");
  return node;
}

}  // namespace penstock::sim
