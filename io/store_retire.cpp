#include "io/store_retire.hpp"

#include <fmt/format.h>

#include "io/store_impl.hpp"
#include "io/store_origin.hpp"

namespace penstock {
namespace {

Status sync_both(Storage& storage, const StoreDirectories& directories) {
  for (const char copy : {'a', 'b'}) {
    PENSTOCK_CHECK_OK(storage.sync_directory(directory_of(directories, copy)));
  }
  return ok();
}

}  // namespace

Status retire_store(Storage& storage, const StoreDirectories& directories,
                    const KnownState& known) {
  PENSTOCK_TAKE(seen, open_store(storage, directories, {}, /*writable=*/false));
  const StoreDirectories ordered = seen->directories();
  std::vector<OpenFile> files;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    PENSTOCK_TAKE(id, storage.open(data_path(ordered, i), {}));
    files.emplace_back(storage, id);
    StoreOptions at_once;
    at_once.lock_wait_ns = 0;
    PENSTOCK_CHECK_OK(lock_data_file(storage, id, data_path(ordered, i), at_once));
  }
  // Looked at again under the lock: it is an ordinary store, which others may have trained on.
  PENSTOCK_TAKE(store, open_store(storage, ordered, {}, /*writable=*/false));
  if (store->sums_uuid() != known.sums_uuid || store->committed().step != known.step ||
      !store->pins().empty()) {
    return make_error(Errc::kState,
                      fmt::format("the store in {} is not as it was made (step {}), so it is left "
                                  "alone; move it away",
                                  ordered.text(), known.step));
  }
  PENSTOCK_TAKE(names, list_manifests(storage, ordered));
  for (const bool newest : {false, true}) {
    for (const ManifestName& name : names) {
      if (name.temporary || (name.sequence == store->sequence()) != newest) continue;
      const std::string path = manifest_path(ordered, name);
      PENSTOCK_CHECK_OK(require_ours(storage, path));
      PENSTOCK_CHECK_OK(storage.remove(path));
    }
    PENSTOCK_CHECK_OK(sync_both(storage, ordered));
  }
  return ok();
}

}  // namespace penstock
