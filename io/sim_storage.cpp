// The simulated storage: paths, open files, locks, durability. Content rules are in sim_files.hpp.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "io/sim_storage_impl.hpp"

namespace penstock {

namespace sim {

Result<const OpenFile*> SimStorageImpl::opened(FileId file, std::string_view what) const {
  if (const OpenFile* found = drive_->find(file)) return found;
  return make_error(
      Errc::kArgument,
      fmt::format("{}: file {} is not open in this storage; open it first", what, file));
}

FileId SimStorageImpl::add_open(NodePtr node, const std::string& path, bool write) {
  drive_->open.push_back({std::move(node), path, write});
  return static_cast<FileId>(drive_->open.size());
}

Result<FileId> SimStorageImpl::open(const std::string& path, const OpenOptions& options) {
  if (options.temporary) {
    PENSTOCK_TRY(directory, drive_->find_directory(path, "open a temporary file in"),
                 "simulated drive");
    static_cast<void>(directory);
    return add_open(std::make_shared<Node>(), path + "/(temporary)", true);
  }
  if (!options.create) {
    auto node = drive_->find_file(path, "open");
    if (!node) return std::move(node).error();
    return add_open(std::move(node).value(), path, options.write);
  }
  auto place = drive_->place(path, "create");
  if (!place) return std::move(place).error();
  if (place.value().node) {
    return failure(Errc::kState, "create", path, EEXIST, "open it, or choose another name");
  }
  auto node = std::make_shared<Node>();
  place.value().directory->change({"", place.value().name, node});
  drive_->changed();
  return add_open(std::move(node), path, true);
}

Status SimStorageImpl::close(FileId file) {
  auto found = opened(file, "close");
  if (!found) return std::move(found).error();
  OpenFile& open = drive_->open[file - 1];
  if (open.node->locked_by == file) open.node->locked_by = 0;
  open.node = nullptr;
  return ok();
}

Result<std::uint64_t> SimStorageImpl::size_bytes(FileId file) {
  auto found = opened(file, "size");
  if (!found) return std::move(found).error();
  return found.value()->node->content.bytes();
}

std::uint64_t SimStorageImpl::used_bytes() const {
  std::uint64_t used = tree_bytes(*drive_->root);
  std::set<const Node*> unnamed;
  for (const OpenFile& open : drive_->open) {
    const bool temporary = open.node && open.path.ends_with("/(temporary)");
    if (temporary && unnamed.insert(open.node.get()).second) used += open.node->content.bytes();
  }
  return used;
}

Status SimStorageImpl::preallocate(FileId file, std::uint64_t bytes) {
  auto found = opened(file, "preallocate");
  if (!found) return std::move(found).error();
  const OpenFile& open = *found.value();
  FileContent& content = open.node->content;
  if (!open.write || bytes < content.bytes()) {
    return failure(Errc::kArgument, "preallocate", open.path, EINVAL,
                   "it is open for reading only or already longer");
  }
  const std::uint64_t used = used_bytes(), capacity = drive_->faults.capacity_bytes;
  const std::uint64_t free = capacity > used ? capacity - used : 0;
  if (bytes - content.bytes() > free) {
    return make_error(
        Errc::kNoSpace,
        fmt::format("preallocate \"{}\" (simulated): needs {} more bytes and {} are "
                    "free; free {} bytes",
                    open.path, bytes - content.bytes(), free, bytes - content.bytes() - free),
        ENOSPC);
  }
  content.set_length(bytes);
  drive_->changed();
  return ok();
}

Status SimStorageImpl::extend(FileId file, std::uint64_t bytes) {
  auto found = opened(file, "extend");
  if (!found) return std::move(found).error();
  const OpenFile& open = *found.value();
  if (!open.write || bytes < open.node->content.bytes()) {
    return failure(Errc::kArgument, "extend", open.path, EINVAL,
                   "it is open for reading only or already longer");
  }
  open.node->content.set_length(bytes);
  drive_->changed();
  return ok();
}

Status SimStorageImpl::sync(Node& node, const std::string& path) {
  if (++drive_->totals.syncs == drive_->faults.fail_sync_at) {
    node.content.sync_failed();
    drive_->changed();
    return failure(Errc::kIo, "sync", path, EIO, "do not retry: what was written may be lost");
  }
  node.content.sync();
  drive_->changed();
  return ok();
}

Status SimStorageImpl::sync_data(FileId file) {
  auto found = opened(file, "sync");
  if (!found) return std::move(found).error();
  return sync(*found.value()->node, found.value()->path);
}

Status SimStorageImpl::lock(FileId file) {
  auto found = opened(file, "lock");
  if (!found) return std::move(found).error();
  Node& node = *found.value()->node;
  if (node.locked_by != 0 && node.locked_by != file) {
    return failure(Errc::kState, "lock", found.value()->path, EWOULDBLOCK,
                   "another opening of the file holds the lock; wait for it to close");
  }
  node.locked_by = file;
  return ok();
}

Status SimStorageImpl::check_transfer(const OpenFile& file, std::uint64_t offset_bytes,
                                      std::size_t bytes, std::string_view what) const {
  if (offset_bytes % kPageBytes == 0 && bytes % kPageBytes == 0) return ok();
  return failure(Errc::kArgument, what, file.path, EINVAL,
                 fmt::format("offset {} and length {} must be multiples of {}", offset_bytes, bytes,
                             kPageBytes));
}

Status SimStorageImpl::read_at(FileId file, std::uint64_t offset_bytes, std::span<std::byte> into) {
  auto found = opened(file, "read");
  if (!found) return std::move(found).error();
  const OpenFile& open = *found.value();
  PENSTOCK_CHECK_OK(check_transfer(open, offset_bytes, into.size(), "read"));
  if (drive_->strikes(drive_->faults.read_error, open.path)) {
    return failure(Errc::kIo, "read", open.path, EIO, "check the drive");
  }
  const std::uint64_t got = open.node->content.read(offset_bytes, into);
  if (got != into.size()) {
    return make_error(
        Errc::kIo, fmt::format("read \"{}\" (simulated): the file ends at {}, asked "
                               "for {} bytes at {}; it was cut short",
                               open.path, open.node->content.bytes(), into.size(), offset_bytes));
  }
  if (got != 0 && drive_->strikes(drive_->faults.corrupt_read, open.path)) {
    const std::uint64_t bit = drive_->timeline.random() % (got * 8);
    into[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
  }
  return ok();
}

Status SimStorageImpl::write_at(FileId file, std::uint64_t offset_bytes,
                                std::span<const std::byte> from) {
  auto found = opened(file, "write");
  if (!found) return std::move(found).error();
  const OpenFile& open = *found.value();
  PENSTOCK_CHECK_OK(check_transfer(open, offset_bytes, from.size(), "write"));
  if (!open.write)
    return failure(Errc::kArgument, "write", open.path, EBADF, "open it for writing");
  if (drive_->strikes(drive_->faults.write_error, open.path)) {
    return failure(Errc::kIo, "write", open.path, EIO, "check the drive");
  }
  if (drive_->strikes(drive_->faults.no_space, open.path)) {
    return failure(Errc::kNoSpace, "write", open.path, ENOSPC, "free space");
  }
  if (drive_->strikes(drive_->faults.lost_write, open.path)) return ok();
  const bool misdirected = drive_->strikes(drive_->faults.misdirected_write, open.path);
  open.node->content.write(offset_bytes + (misdirected ? kPageBytes : 0), from);
  drive_->changed();
  return ok();
}

Result<std::vector<std::byte>> SimStorageImpl::read_file(const std::string& path,
                                                         std::uint64_t max_bytes) {
  auto node = drive_->find_file(path, "read");
  if (!node) return std::move(node).error();
  const FileContent& content = node.value()->content;
  if (content.bytes() > max_bytes) {
    return failure(
        Errc::kIo, "read", path, EFBIG,
        fmt::format("it has {} bytes, at most {} were expected", content.bytes(), max_bytes));
  }
  if (drive_->strikes(drive_->faults.read_error, path)) {
    return failure(Errc::kIo, "read", path, EIO, "check the drive");
  }
  std::vector<std::byte> bytes(content.bytes());
  content.read(0, bytes);
  return bytes;
}

Status SimStorageImpl::write_file(const std::string& path, std::span<const std::byte> bytes) {
  auto place = drive_->place(path, "write");
  if (!place) return std::move(place).error();
  if (place.value().node) {
    return failure(Errc::kState, "create", path, EEXIST, "open it, or choose another name");
  }
  place.value().directory->change({"", place.value().name, std::make_shared<Node>()});
  drive_->changed();
  if (drive_->strikes(drive_->faults.no_space, path)) {
    return failure(Errc::kNoSpace, "write", path, ENOSPC, "free space");
  }
  return overwrite_file(path, bytes);
}

Status SimStorageImpl::overwrite_file(const std::string& path, std::span<const std::byte> bytes) {
  const NodePtr node = drive_->find_node(path);
  if (!node || node->is_directory) return failure(Errc::kIo, "write", path, ENOENT, "name a file");
  if (drive_->strikes(drive_->faults.write_error, path)) {
    return failure(Errc::kIo, "write", path, EIO, "check the drive");
  }
  const bool grows = bytes.size() > node->content.bytes();
  if (grows && drive_->faults.full) {
    return failure(Errc::kNoSpace, "write", path, ENOSPC, "free space");
  }
  node->content.write(0, bytes);
  drive_->changed();
  return ok();
}

Status SimStorageImpl::sync_file(const std::string& path) {
  auto node = drive_->find_file(path, "sync");
  if (!node) return std::move(node).error();
  return sync(*node.value(), path);
}

Status SimStorageImpl::rename(const std::string& from, const std::string& to) {
  auto source = drive_->place(from, "rename");
  if (!source) return std::move(source).error();
  auto target = drive_->place(to, "rename to");
  if (!target) return std::move(target).error();
  const Place &a = source.value(), &b = target.value();
  if (!a.node) return failure(Errc::kIo, "rename", from, ENOENT, "check the path");
  if (b.node && b.node->is_directory) {
    return failure(Errc::kIo, "rename to", to, EISDIR, "choose another name");
  }
  if (a.node == b.node) return ok();
  if (a.directory == b.directory) {
    a.directory->change({a.name, b.name, a.node});
  } else {  // two logs: a power loss may keep both names or, unlike a journal, neither
    b.directory->change({"", b.name, a.node});
    a.directory->change({a.name, "", nullptr});
  }
  drive_->changed();
  return ok();
}

Status SimStorageImpl::remove(const std::string& path) {
  auto found = drive_->place(path, "remove");
  if (!found) return std::move(found).error();
  const Place& place = found.value();
  if (!place.node) return failure(Errc::kIo, "remove", path, ENOENT, "check the path");
  if (place.node->is_directory && !place.node->current.empty()) {
    return failure(Errc::kIo, "remove", path, ENOTEMPTY, "remove what is in it first");
  }
  place.directory->change({place.name, "", nullptr});
  drive_->changed();
  return ok();
}

Status SimStorageImpl::sync_directory(const std::string& path) {
  auto node = drive_->find_directory(path, "sync");
  if (!node) return std::move(node).error();
  node.value()->sync_directory();
  drive_->changed();
  return ok();
}

Status SimStorageImpl::make_directory(const std::string& path) {
  const NodePtr node = drive_->find_node(path);
  if (node && node->is_directory) return ok();
  auto found = drive_->place(path, "make directory");
  if (!found) return std::move(found).error();
  if (node) return failure(Errc::kIo, "make directory", path, EEXIST, "a file has that name");
  auto directory = std::make_shared<Node>();
  directory->is_directory = true;
  found.value().directory->change({"", found.value().name, directory});
  drive_->changed();
  return ok();
}

Result<std::vector<std::string>> SimStorageImpl::list(const std::string& directory) {
  auto node = drive_->find_directory(directory, "list");
  if (!node) return std::move(node).error();
  std::vector<std::string> names;
  for (const auto& [name, child] : node.value()->current) names.push_back(name);
  return names;
}

Result<std::uint64_t> SimStorageImpl::free_bytes(const std::string& directory) {
  auto node = drive_->find_directory(directory, "free space of");
  if (!node) return std::move(node).error();
  const std::uint64_t used = used_bytes(), capacity = drive_->faults.capacity_bytes;
  return capacity > used ? capacity - used : 0;
}

}  // namespace sim

std::unique_ptr<SimStorage> make_sim_storage(Timeline& timeline, const SimFaults& faults) {
  return std::make_unique<sim::SimStorageImpl>(timeline, faults);
}

}  // namespace penstock
