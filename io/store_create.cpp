// Creation. Order on each drive: directory, owner.json (the mark that Penstock began), the data
// file, its headers. Until the first commit there is no manifest, and the creation may be done
// again.
//
// The third drive and those after it never hold a manifest. That their files are of a creation cut
// short is known from data.0: their headers are written after its header, with the same id, and
// taken away before it gets another one.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/units.hpp"
#include "io/page_buffer.hpp"
#include "io/store_global.hpp"
#include "io/store_impl.hpp"
#include "io/store_origin.hpp"
#include "io/store_owner.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kManifestCopies = 2;

/// The id of a new store: its rank's, or one of its own.
StoreUuid choose_uuid(const StoreOptions& options) {
  return options.ranks.count > 1 ? options.ranks.uuid : make_uuid(options.uuid_seed);
}

std::string parent_of(const std::string& directory) {
  std::string path = directory;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// The most that manifests will need.
std::uint64_t manifests_bound(const StoreGeometry& geometry) {
  return longest_manifest(geometry, kMaxBlobBytes) * most_manifests(geometry);
}

/// What one directory of the store takes, and what of it is there already.
struct Need {
  std::uint64_t file_bytes = 0, reserved_bytes = 0;
  std::uint64_t manifest_bytes = 0;
  std::uint64_t existing_bytes = 0;
};

Status check_space(Storage& storage, const std::string& directory, const Need& need) {
  if (const std::uint64_t longest = storage.longest_file_bytes(); need.file_bytes > longest) {
    return make_error(Errc::kNoSpace,
                      fmt::format("{} needs a file of {} ({} bytes) and this process may write "
                                  "files of {} ({} bytes) at most; raise the limit (ulimit -f)",
                                  directory, format_bytes(need.file_bytes), need.file_bytes,
                                  format_bytes(longest), longest));
  }
  const std::uint64_t missing =
      need.reserved_bytes > need.existing_bytes ? need.reserved_bytes - need.existing_bytes : 0;
  const std::uint64_t needed = missing + need.manifest_bytes;
  auto exists = storage.exists(directory);
  if (!exists) return std::move(exists).error();
  auto free = storage.free_bytes(exists.value() ? directory : parent_of(directory));
  if (!free) return std::move(free).error();
  if (free.value() >= needed) return ok();
  return make_error(Errc::kNoSpace,
                    fmt::format("{} needs {} ({} bytes) and its drive has {} ({} bytes) free; free "
                                "{} or use another drive",
                                directory, format_bytes(needed), needed, format_bytes(free.value()),
                                free.value(), format_bytes(needed - free.value())));
}

/// Whether an existing data file may be taken over: it begins with our magic, or it holds nothing
/// and Penstock's mark shows that a creation had begun before the headers were written.
Status check_takeover(Storage& storage, FileId file, std::uint64_t bytes, bool marked,
                      const std::string& path) {
  if (marked) {
    PENSTOCK_TAKE(ours, is_ours(storage, path));
    if (ours) return ok();
  }
  if (bytes >= kHeaderBytes * kHeaderCopies) {
    PageBuffer head(kHeaderBytes * kHeaderCopies);
    if (head.empty()) return make_error(Errc::kNoMemory, "no memory for two pages");
    PENSTOCK_CHECK_OK(storage.read_at(file, 0, head.span()));
    if (has_data_magic(head.span()) || has_data_magic(head.span().subspan(kHeaderBytes))) {
      return ok();
    }
  }
  return make_error(Errc::kState, fmt::format("{} was not made by Penstock, so it is left alone; "
                                              "move it away or use another directory",
                                              path));
}

/// Refuses a directory with a store, or another of its data files, in it; tells whether Penstock's
/// mark is there.
Result<bool> check_directory(Storage& storage, const std::string& directory, std::size_t index) {
  auto names = storage.list(directory);
  if (!names) return std::move(names).error();
  for (const std::string& name : names.value()) {
    const auto manifest = parse_manifest_name(name);
    const auto file = parse_data_name(name);
    const bool others = file && *file != index;
    if (!others && (!manifest || manifest->temporary)) continue;
    return make_error(Errc::kState, fmt::format("{} already holds a store ({}); open it or use "
                                                "another directory",
                                                directory, name));
  }
  const auto owner = read_owner(storage, directory);
  if (!owner && owner.error().code != Errc::kState) {
    Error error = owner.error();
    error.message += "; it is left alone, use another directory";
    return error;
  }
  return owner.ok();
}

struct DataFile {
  OpenFile file;
  std::uint64_t existing_bytes = 0;
};

/// Opens the data file of a creation that did not finish, or makes a new one, and locks it.
Result<DataFile> open_data_file(Storage& storage, const StoreDirectories& directories,
                                std::size_t index, bool exists, bool marked,
                                const StoreOptions& options) {
  const std::string path = data_path(directories, index);
  OpenOptions how;
  how.create = !exists;
  auto id = storage.open(path, how);
  if (!id) return std::move(id).error();
  DataFile data{OpenFile(storage, id.value())};
  PENSTOCK_CHECK_OK(lock_data_file(storage, data.file.id(), path, options));
  if (!exists) return data;
  // Its creator may have committed between our look at the directory and our lock.
  auto still = check_directory(storage, directories[index], index);
  if (!still) return std::move(still).error();
  auto bytes = storage.size_bytes(data.file.id());
  if (!bytes) return std::move(bytes).error();
  data.existing_bytes = bytes.value();
  PENSTOCK_CHECK_OK(check_takeover(storage, data.file.id(), data.existing_bytes, marked, path));
  return data;
}

Status write_headers(Storage& storage, FileId file, const DataHeader& header) {
  PageBuffer pages(kHeaderBytes * kHeaderCopies);
  if (pages.empty()) return make_error(Errc::kNoMemory, "no memory for two pages");
  encode_header(header, pages.first(kHeaderBytes));
  encode_header(header, pages.span().subspan(kHeaderBytes));
  PENSTOCK_CHECK_OK(storage.write_at(file, 0, pages.span()));
  return storage.sync_data(file);
}

Result<std::unique_ptr<Store>> create_scratch(Storage& storage, const StoreDirectories& directories,
                                              const StoreGeometry& geometry, StoreLayout layout,
                                              const StoreOptions& options) {
  std::vector<OpenFile> files;
  std::vector<std::uint64_t> file_bytes;
  for (std::size_t i = 0; i < directories.size(); ++i) {
    const std::uint64_t bytes = layout.files[i].file_bytes;
    PENSTOCK_CHECK_OK(check_space(storage, directories[i], {bytes, bytes, 0, 0}));
    PENSTOCK_CHECK_OK(storage.make_directory(directories[i]));
    OpenOptions how;
    how.create = true;
    how.temporary = true;
    auto id = storage.open(directories[i], how);
    if (!id) return std::move(id).error();
    files.emplace_back(storage, id.value());
    PENSTOCK_CHECK_OK(storage.preallocate(id.value(), bytes));
    file_bytes.push_back(bytes);
  }
  const StoreUuid uuid = choose_uuid(options);
  return std::unique_ptr<Store>(std::make_unique<StoreImpl>(
      StoreImpl::Parts{storage, directories, std::move(files), uuid, uuid, geometry,
                       std::move(layout), std::move(file_bytes), options, true}));
}

/// The directory, durable in its parent. One that is there already may have been made by a creation
/// that was killed at once, so it is synced too; only a user's own directory can have a parent that
/// we may not open, and that one is as durable as the user made it.
Status prepare_directory(Storage& storage, const std::string& directory) {
  auto exists = storage.exists(directory);
  if (!exists) return std::move(exists).error();
  if (!exists.value()) PENSTOCK_CHECK_OK(storage.make_directory(directory));
  PENSTOCK_CHECK_OK(storage.check_private(directory));
  Status synced = storage.sync_directory(parent_of(directory));
  const bool forbidden =
      !synced && (synced.error().sys_errno == EACCES || synced.error().sys_errno == EPERM);
  if (exists.value() && forbidden) return ok();
  return synced;
}

/// One directory of a store in the making.
struct Site {
  std::size_t index = 0;
  Need need;
  bool marked = false;  ///< a creation began there before
  bool exists = false;  ///< its data file
};

/// The directory and Penstock's mark in it; nothing where there is a store or no space.
Status prepare_site(Storage& storage, const StoreDirectories& directories, Site& site) {
  const std::string& directory = directories[site.index];
  PENSTOCK_CHECK_OK(prepare_directory(storage, directory));
  auto marked = check_directory(storage, directory, site.index);
  if (!marked) return std::move(marked).error();
  auto exists = storage.exists(data_path(directories, site.index));
  if (!exists) return std::move(exists).error();
  site.marked = marked.value();
  site.exists = exists.value();
  if (site.exists) return ok();
  PENSTOCK_CHECK_OK(check_space(storage, directory, site.need));
  PENSTOCK_CHECK_OK(write_owner(storage, directory, this_process()));
  return storage.sync_directory(directory);
}

/// The data file, locked; its length is not yet changed.
Result<OpenFile> lock_site(Storage& storage, const StoreDirectories& directories, Site& site,
                           const StoreOptions& options) {
  auto data = open_data_file(storage, directories, site.index, site.exists, site.marked, options);
  if (!data) return std::move(data).error();
  site.need.existing_bytes = data.value().existing_bytes;
  if (site.exists) PENSTOCK_CHECK_OK(check_space(storage, directories[site.index], site.need));
  return std::move(data.value().file);
}

/// The id in a file's headers, if one of them is whole.
Result<std::optional<StoreUuid>> find_uuid(Storage& storage, FileId file, std::uint64_t bytes) {
  std::optional<StoreUuid> found;
  if (bytes < kHeaderBytes * kHeaderCopies) return found;
  PageBuffer head(kHeaderBytes * kHeaderCopies);
  if (head.empty()) return make_error(Errc::kNoMemory, "no memory for two pages");
  PENSTOCK_CHECK_OK(storage.read_at(file, 0, head.span()));
  for (std::uint64_t at = 0; at < head.span().size(); at += kHeaderBytes) {
    const auto header = decode_header(head.span().subspan(at, kHeaderBytes), "header");
    if (header && !found) found = header.value().uuid;
  }
  return found;
}

/// Refuses a third or later file of another store, and takes the headers of an earlier try away.
Status clear_later_files(Storage& storage, const StoreDirectories& directories,
                         const std::vector<OpenFile>& files, const std::vector<Site>& sites) {
  auto first = find_uuid(storage, files[0].id(), sites[0].need.existing_bytes);
  if (!first) return std::move(first).error();
  std::vector<std::size_t> with_header;
  for (std::size_t i = kManifestCopies; i < files.size(); ++i) {
    auto uuid = find_uuid(storage, files[i].id(), sites[i].need.existing_bytes);
    if (!uuid) return std::move(uuid).error();
    if (!uuid.value()) continue;
    with_header.push_back(i);
    if (uuid.value() == first.value()) continue;
    return make_error(Errc::kState, fmt::format("{} belongs to another store; open that one with "
                                                "all its directories, or use another directory",
                                                data_path(directories, i)));
  }
  PageBuffer zeros(kHeaderBytes * kHeaderCopies);
  if (zeros.empty()) return make_error(Errc::kNoMemory, "no memory for two pages");
  for (const std::size_t i : with_header) {
    PENSTOCK_CHECK_OK(storage.write_at(files[i].id(), 0, zeros.span()));
    PENSTOCK_CHECK_OK(storage.sync_data(files[i].id()));
  }
  return ok();
}

/// At its full length, with what will be written before the next opening reserved.
Status reserve(Storage& storage, FileId file, const Need& need, std::uint64_t file_bytes) {
  PENSTOCK_CHECK_OK(storage.preallocate(file, std::max(need.reserved_bytes, need.existing_bytes)));
  if (need.reserved_bytes >= file_bytes) return ok();
  return storage.extend(file, file_bytes);
}

Result<std::unique_ptr<Store>> create_durable(Storage& storage, const StoreDirectories& directories,
                                              const StoreGeometry& geometry, StoreLayout layout,
                                              const StoreOptions& options) {
  const std::uint64_t manifests = manifests_bound(geometry);
  LifetimeCounter lifetime(storage, directories);
  lifetime.begin_life();
  std::vector<Site> sites(directories.size());
  for (std::size_t i = 0; i < sites.size(); ++i) {
    // Copies a are in the first directory, copies b in the second, or all in the only one.
    const std::uint64_t copies = sites.size() == 1 ? kManifestCopies : i < kManifestCopies ? 1 : 0;
    const std::uint64_t bytes = layout.files[i].file_bytes;
    // A copy writes each block once, in the order of the slots.
    const std::uint64_t reserved =
        options.copy.is_copy
            ? layout.files[i].slots_offset_bytes +
                  layout.deal.share_of(static_cast<std::uint32_t>(i), geometry.blocks.size()) *
                      layout.slot_bytes
            : bytes;
    sites[i] = {i, {bytes, reserved, copies * manifests, 0}};
    auto there = storage.exists(directories[i]);
    if (!there) return std::move(there).error();
    if (there.value()) continue;  // before anything is made
    PENSTOCK_CHECK_OK(check_space(storage, directories[i], sites[i].need));
  }
  for (Site& site : sites) PENSTOCK_CHECK_OK(prepare_site(storage, directories, site));
  const StoreUuid uuid = choose_uuid(options);
  std::vector<OpenFile> files;
  std::vector<std::uint64_t> file_bytes;
  for (Site& site : sites) {
    auto file = lock_site(storage, directories, site, options);
    if (!file) return std::move(file).error();
    files.push_back(std::move(file).value());
    // A longer file of an earlier try stays as long as it is.
    file_bytes.push_back(std::max(site.need.file_bytes, site.need.existing_bytes));
  }
  PENSTOCK_CHECK_OK(clear_later_files(storage, directories, files, sites));
  for (std::size_t i = 0; i < sites.size(); ++i) {
    PENSTOCK_CHECK_OK(write_owner(storage, directories[i], this_process()));
    PENSTOCK_CHECK_OK(reserve(storage, files[i].id(), sites[i].need, file_bytes[i]));
  }
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const DataHeader header = make_header(uuid, layout, i, file_bytes[i], geometry.layout_hash);
    PENSTOCK_CHECK_OK(write_headers(storage, files[i].id(), header));
    PENSTOCK_CHECK_OK(storage.sync_directory(directories[i]));
  }
  auto names = list_manifests(storage, directories);
  if (!names) return std::move(names).error();
  const StoreUuid sums_uuid = options.copy.is_copy ? options.copy.sums_uuid : uuid;
  auto store = std::make_unique<StoreImpl>(StoreImpl::Parts{
      storage, directories, std::move(files), uuid, sums_uuid, geometry, std::move(layout),
      std::move(file_bytes), options, true, std::move(lifetime)});
  store->adopt_names(std::move(names).value());
  PENSTOCK_CHECK_OK(store->reserve_manifests());
  return std::unique_ptr<Store>(std::move(store));
}

Status check_directories(const StoreDirectories& directories, const StoreGeometry& geometry) {
  if (directories.size() != geometry.drives.size()) {
    return make_error(Errc::kArgument, fmt::format("{} directories were given for {} data files",
                                                   directories.size(), geometry.drives.size()));
  }
  for (std::size_t i = 0; i < directories.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (directories[i] != directories[k]) continue;
      return make_error(Errc::kArgument, fmt::format("{} was named twice; each data file needs a "
                                                     "directory of its own",
                                                     directories[i]));
    }
  }
  return ok();
}

}  // namespace

Result<std::unique_ptr<Store>> create_store(Storage& storage, const StoreDirectories& directories,
                                            const StoreGeometry& geometry,
                                            const StoreOptions& options) {
  const std::string what = fmt::format("create store in {}", directories.text());
  PENSTOCK_TRY(layout, plan_layout(geometry, options.scratch), what);
  if (Status fits = check_directories(directories, geometry); !fits) {
    return std::move(fits).error().in(what);
  }
  return options.scratch
             ? create_scratch(storage, directories, geometry, std::move(layout), options)
             : create_durable(storage, directories, geometry, std::move(layout), options);
}

}  // namespace penstock
