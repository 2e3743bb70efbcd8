#include "cli/store_hash.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/section_cache.hpp"

namespace penstock {
namespace {

class Hasher {
 public:
  Hasher(StoreReader& reader, const std::atomic<bool>& stop, const HashProgress& progress)
      : reader_(reader), stop_(stop), progress_(progress) {
    for (std::size_t i = 0; i < reader.store().geometry().sections.size(); ++i) {
      caches_.emplace_back(reader, i);
    }
  }

  Result<Hash128> run() {
    for (const BlockGeometry& block : reader_.store().geometry().blocks) {
      for (const std::uint64_t length : block.lengths) total_bytes_ += length;
    }
    for (const DescribedTensor& tensor : reader_.description().tensors) {
      const std::vector<BlockPart> parts = parts_of(reader_.description(), tensor);
      for (SectionCache& cache : caches_) PENSTOCK_CHECK_OK(add(parts, cache));
    }
    const std::vector<std::byte>& blob = reader_.store().committed().blob;
    hash_.update(blob.data(), blob.size());
    return hash_.digest();
  }

 private:
  Status add(const std::vector<BlockPart>& parts, SectionCache& cache) {
    for (const BlockPart& part : parts) {
      if (stop_.load(std::memory_order_relaxed)) {
        return make_error(Errc::kCancelled, "stopped before the hash was complete");
      }
      PENSTOCK_TAKE(bytes, cache.read(part));
      hash_.update(bytes.data(), bytes.size());
      done_bytes_ += bytes.size();
      if (progress_) progress_(done_bytes_, total_bytes_);
    }
    return ok();
  }

  StoreReader& reader_;
  const std::atomic<bool>& stop_;
  const HashProgress& progress_;
  std::vector<SectionCache> caches_;
  StreamHash128 hash_;
  std::uint64_t done_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace

Result<Hash128> hash_store(StoreReader& reader, const std::atomic<bool>& stop,
                           const HashProgress& progress) {
  if (!reader.store().has_commit()) {
    return make_error(Errc::kState, fmt::format("the store {} has no committed step to hash",
                                                reader.store().directory()));
  }
  return Hasher(reader, stop, progress).run();
}

}  // namespace penstock
