// Creation. Order on the drive: directory, owner.json (the mark that Penstock began), data.0, its
// headers. Until the first commit there is no manifest, and the creation may be done again.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "base/random.hpp"
#include "base/units.hpp"
#include "io/page_buffer.hpp"
#include "io/store_impl.hpp"
#include "io/store_owner.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kManifestsOnDrive = 6;  // two commits and one on its way, two copies each

StoreUuid make_uuid(std::uint64_t seed) {
  if (seed != 0) return {mix64(seed, 0, 0), mix64(seed, 0, 1)};
  std::random_device device;
  const auto word = [&] { return (std::uint64_t{device()} << 32) | device(); };
  const std::uint64_t low = word();
  return {low, word()};
}

std::string parent_of(const std::string& directory) {
  std::string path = directory;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// The length of a manifest with the largest blob.
Result<std::uint64_t> manifest_bound(const StoreGeometry& geometry) {
  Manifest manifest;
  manifest.geometry = geometry;
  manifest.table.resize(geometry.blocks.size());
  auto bytes = encode_manifest(manifest);
  if (!bytes) return std::move(bytes).error();
  return std::uint64_t{bytes.value().size()} + kMaxBlobBytes;
}

Status check_space(Storage& storage, const std::string& directory, std::uint64_t file_bytes,
                   std::uint64_t existing_bytes, const StoreGeometry* with_manifests) {
  if (const std::uint64_t longest = storage.longest_file_bytes(); file_bytes > longest) {
    return make_error(Errc::kNoSpace,
                      fmt::format("{} needs a file of {} ({} bytes) and this process may write "
                                  "files of {} ({} bytes) at most; raise the limit (ulimit -f)",
                                  directory, format_bytes(file_bytes), file_bytes,
                                  format_bytes(longest), longest));
  }
  std::uint64_t needed = file_bytes > existing_bytes ? file_bytes - existing_bytes : 0;
  if (with_manifests != nullptr) {
    auto manifest = manifest_bound(*with_manifests);
    if (!manifest) return std::move(manifest).error();
    needed += kManifestsOnDrive * round_up(manifest.value(), kPageBytes);
  }
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

/// Whether the existing data.0 may be taken over: it begins with our magic, or Penstock's mark
/// shows that a creation had begun before the headers were written.
Status check_takeover(Storage& storage, FileId file, std::uint64_t bytes, bool marked,
                      const std::string& directory) {
  if (marked) return ok();
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
                                              data_path(directory)));
}

/// Refuses a directory with a store in it; tells whether Penstock's mark is there.
Result<bool> check_directory(Storage& storage, const std::string& directory) {
  auto manifests = list_manifests(storage, directory);
  if (!manifests) return std::move(manifests).error();
  for (const ManifestName& name : manifests.value()) {
    if (name.temporary) continue;
    return make_error(Errc::kState,
                      fmt::format("{} already holds a store (manifest of step {}); open it or use "
                                  "another directory",
                                  directory, name.step));
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

/// Opens the data.0 of a creation that did not finish, or makes a new one, and locks it.
Result<DataFile> open_data_file(Storage& storage, const std::string& directory, bool exists,
                                bool marked, const StoreOptions& options) {
  OpenOptions how;
  how.create = !exists;
  auto id = storage.open(data_path(directory), how);
  if (!id) return std::move(id).error();
  DataFile data{OpenFile(storage, id.value())};
  PENSTOCK_CHECK_OK(lock_data_file(storage, data.file.id(), data_path(directory), options));
  if (!exists) return data;
  // Its creator may have committed between our look at the directory and our lock.
  auto still = check_directory(storage, directory);
  if (!still) return std::move(still).error();
  auto bytes = storage.size_bytes(data.file.id());
  if (!bytes) return std::move(bytes).error();
  data.existing_bytes = bytes.value();
  PENSTOCK_CHECK_OK(
      check_takeover(storage, data.file.id(), data.existing_bytes, marked, directory));
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

Result<std::unique_ptr<Store>> create_scratch(Storage& storage, const std::string& directory,
                                              const StoreGeometry& geometry, StoreLayout layout,
                                              const StoreOptions& options) {
  PENSTOCK_CHECK_OK(check_space(storage, directory, layout.file_bytes, 0, nullptr));
  PENSTOCK_CHECK_OK(storage.make_directory(directory));
  OpenOptions how;
  how.create = true;
  how.temporary = true;
  auto id = storage.open(directory, how);
  if (!id) return std::move(id).error();
  OpenFile file(storage, id.value());
  PENSTOCK_CHECK_OK(storage.preallocate(file.id(), layout.file_bytes));
  const std::uint64_t bytes = layout.file_bytes;
  return std::unique_ptr<Store>(std::make_unique<StoreImpl>(
      StoreImpl::Parts{storage, directory, std::move(file), make_uuid(options.uuid_seed), geometry,
                       std::move(layout), bytes, options, true}));
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

Result<std::unique_ptr<Store>> create_durable(Storage& storage, const std::string& directory,
                                              const StoreGeometry& geometry, StoreLayout layout,
                                              const StoreOptions& options) {
  auto there = storage.exists(directory);
  if (!there) return std::move(there).error();
  if (!there.value()) {  // before anything is made
    PENSTOCK_CHECK_OK(check_space(storage, directory, layout.file_bytes, 0, &geometry));
  }
  PENSTOCK_CHECK_OK(prepare_directory(storage, directory));
  auto marked = check_directory(storage, directory);
  if (!marked) return std::move(marked).error();
  auto exists = storage.exists(data_path(directory));
  if (!exists) return std::move(exists).error();
  if (!exists.value()) {
    PENSTOCK_CHECK_OK(check_space(storage, directory, layout.file_bytes, 0, &geometry));
    PENSTOCK_CHECK_OK(write_owner(storage, directory, this_process()));
    PENSTOCK_CHECK_OK(storage.sync_directory(directory));
  }
  auto data = open_data_file(storage, directory, exists.value(), marked.value(), options);
  if (!data) return std::move(data).error();
  const FileId id = data.value().file.id();
  const std::uint64_t existing = data.value().existing_bytes;
  if (exists.value()) {
    PENSTOCK_CHECK_OK(check_space(storage, directory, layout.file_bytes, existing, &geometry));
  }
  PENSTOCK_CHECK_OK(write_owner(storage, directory, this_process()));

  // A longer file of an earlier try stays as long as it is.
  const std::uint64_t file_bytes = std::max(layout.file_bytes, existing);
  PENSTOCK_CHECK_OK(storage.preallocate(id, file_bytes));
  const StoreUuid uuid = make_uuid(options.uuid_seed);
  PENSTOCK_CHECK_OK(
      write_headers(storage, id, make_header(uuid, layout, file_bytes, geometry.layout_hash)));
  PENSTOCK_CHECK_OK(storage.sync_directory(directory));
  auto names = list_manifests(storage, directory);
  if (!names) return std::move(names).error();
  auto store = std::make_unique<StoreImpl>(
      StoreImpl::Parts{storage, directory, std::move(data.value().file), uuid, geometry,
                       std::move(layout), file_bytes, options, true});
  store->adopt_names(std::move(names).value());
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace

Result<std::unique_ptr<Store>> create_store(Storage& storage, const std::string& directory,
                                            const StoreGeometry& geometry,
                                            const StoreOptions& options) {
  PENSTOCK_TRY(layout, plan_layout(geometry, options.scratch),
               fmt::format("create store in {}", directory));
  return options.scratch ? create_scratch(storage, directory, geometry, std::move(layout), options)
                         : create_durable(storage, directory, geometry, std::move(layout), options);
}

}  // namespace penstock
