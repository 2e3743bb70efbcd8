#include "cli/store_hash.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/page_buffer.hpp"

namespace penstock {
namespace {

/// The last block read of one section: small tensors of a block cost one read together.
class SectionCache {
 public:
  SectionCache(Store& store, const SlotTable& table, std::size_t section)
      : store_(store), table_(table), section_(section) {}

  /// The data of the section of that block, checked.
  Result<std::span<const std::byte>> block(std::size_t block) {
    const SectionExtent& extent = store_.extents(block)[section_];
    if (block_ != block) {
      block_.reset();
      if (!buffer_ || buffer_->span().size() < extent.total_bytes()) {
        buffer_.emplace(extent.total_bytes());
      }
      if (buffer_->empty()) {
        return make_error(Errc::kNoMemory,
                          fmt::format("no memory for {} bytes of {}; free some",
                                      extent.total_bytes(), store_.block_name(block)));
      }
      PENSTOCK_CHECK_OK(store_.read_section(block, section_, table_.entry(block),
                                            buffer_->first(extent.total_bytes())));
      block_ = block;
    }
    return std::span<const std::byte>(buffer_->first(extent.data_bytes));
  }

 private:
  Store& store_;
  const SlotTable& table_;
  std::size_t section_;
  std::optional<PageBuffer> buffer_;
  std::optional<std::size_t> block_;
};

class Hasher {
 public:
  Hasher(Store& store, const StoreDescription& description, const std::atomic<bool>& stop,
         const HashProgress& progress)
      : store_(store),
        description_(description),
        stop_(stop),
        progress_(progress),
        table_(store.make_table()) {
    for (std::size_t i = 0; i < store.geometry().sections.size(); ++i) {
      caches_.emplace_back(store, table_, i);
    }
  }

  Result<Hash128> run() {
    for (const BlockGeometry& block : store_.geometry().blocks) {
      for (const std::uint64_t length : block.lengths) total_bytes_ += length;
    }
    for (const DescribedTensor& tensor : description_.tensors) {
      for (std::size_t section = 0; section < caches_.size(); ++section) {
        PENSTOCK_CHECK_OK(add(tensor, section));
      }
    }
    const std::vector<std::byte>& blob = store_.committed().blob;
    hash_.update(blob.data(), blob.size());
    return hash_.digest();
  }

 private:
  Status add(const DescribedTensor& tensor, std::size_t section) {
    const DescribedGroup& group = description_.groups[tensor.group];
    std::uint64_t block_first = 0;
    const std::uint64_t end = tensor.offset + tensor.elements;
    for (std::size_t i = 0; i < group.blocks.size() && block_first < end; ++i) {
      const std::uint64_t block_end = block_first + group.blocks[i];
      if (block_end > tensor.offset) {
        PENSTOCK_CHECK_OK(add_part(group.first_block + i, section, group.blocks[i],
                                   std::max(tensor.offset, block_first) - block_first,
                                   std::min(end, block_end) - block_first));
      }
      block_first = block_end;
    }
    return ok();
  }

  // Elements [first, end) of a block of so many.
  Status add_part(std::size_t block, std::size_t section, std::uint64_t elements,
                  std::uint64_t first, std::uint64_t end) {
    if (stop_.load(std::memory_order_relaxed)) {
      return make_error(Errc::kCancelled, "stopped before the hash was complete");
    }
    const std::uint64_t length = store_.geometry().blocks[block].lengths[section];
    if (length == 0) return ok();  // frozen: no such section
    if (length % elements != 0) {
      return make_error(Errc::kCorrupt,
                        fmt::format("the store {}: {} has {} bytes of \"{}\" for {} elements",
                                    store_.directory(), store_.block_name(block), length,
                                    store_.geometry().sections[section].name, elements));
    }
    const std::uint64_t width = length / elements;
    auto bytes = caches_[section].block(block);
    if (!bytes) return std::move(bytes).error();
    const auto part = bytes.value().subspan(first * width, (end - first) * width);
    hash_.update(part.data(), part.size());
    done_bytes_ += part.size();
    if (progress_) progress_(done_bytes_, total_bytes_);
    return ok();
  }

  Store& store_;
  const StoreDescription& description_;
  const std::atomic<bool>& stop_;
  const HashProgress& progress_;
  SlotTable table_;
  std::vector<SectionCache> caches_;
  StreamHash128 hash_;
  std::uint64_t done_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace

Result<Hash128> hash_store(Store& store, const StoreDescription& description,
                           const std::atomic<bool>& stop, const HashProgress& progress) {
  if (!store.has_commit()) {
    return make_error(Errc::kState,
                      fmt::format("the store {} has no committed step to hash", store.directory()));
  }
  return Hasher(store, description, stop, progress).run();
}

}  // namespace penstock
