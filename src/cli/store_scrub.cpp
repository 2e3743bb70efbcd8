#include "cli/store_scrub.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "io/page_buffer.hpp"

namespace penstock {
namespace {

/// Commits that one block may be overtaken by: a limit on waiting, never reached by a training
/// whose steps take longer than reading one block.
constexpr int kMaxOvertaken = 100;

std::string elements_of(const TensorRun& run) {
  return fmt::format("\"{}\" elements {} to {}", run.tensor->name, run.first,
                     run.first + run.elements - 1);
}

std::string whose(const Damage& damage) {
  constexpr std::size_t kNamed = 4;  // a sentence stays one
  if (damage.bad.kind == SectionFaultKind::kPadding) return "padding";
  if (damage.tensors.empty()) return "between tensors";
  std::string text = damage.tensors.size() == 1 ? "tensor " : "tensors ";
  for (std::size_t i = 0; i < damage.tensors.size() && i < kNamed; ++i) {
    text += (i == 0 ? "" : ", ") + elements_of(damage.tensors[i]);
  }
  const std::size_t more = damage.tensors.size() - std::min(damage.tensors.size(), kNamed);
  return more == 0 ? text : text + fmt::format(" and {} more", more);
}

std::string what_is_wrong(const Damage& damage) {
  const BadTile& bad = damage.bad;
  if (bad.code != Errc::kCorrupt) return "the drive does not return them: " + bad.message;
  switch (bad.kind) {
    case SectionFaultKind::kPadding:
      return "they should be zero; no data is affected";
    case SectionFaultKind::kSums:
      return "the checksums there are damaged, so that the section cannot be checked";
    case SectionFaultKind::kTile:
      break;
  }
  return "they do not match their checksum";
}

class Scrubber {
 public:
  Scrubber(StoreReader& reader, Throttle& throttle, ScrubObserver& observer,
           const std::atomic<bool>& stop)
      : reader_(reader),
        throttle_(throttle),
        observer_(observer),
        stop_(stop),
        places_(reader.description()),
        buffer_(verify_buffer_bytes(reader.store())) {}

  Result<ScrubResult> run() {
    const std::size_t blocks = reader_.store().geometry().blocks.size();
    for (std::size_t block = 0; block < blocks; ++block) {
      result_.total_bytes += block_bytes(block);
    }
    if (buffer_.empty()) {
      return make_error(Errc::kNoMemory, fmt::format("scrub {}: no memory for a section of {} "
                                                     "bytes; free some",
                                                     reader_.store().directory(),
                                                     verify_buffer_bytes(reader_.store())));
    }
    for (std::size_t block = 0; block < blocks; ++block) {
      if (stop_.load(std::memory_order_relaxed)) return result_;
      PENSTOCK_CHECK_OK(scrub_block(block));
      result_.bytes += block_bytes(block);
      observer_.on_progress(result_.bytes, result_.total_bytes);
    }
    result_.complete = true;
    return result_;
  }

 private:
  [[nodiscard]] std::uint64_t block_bytes(std::size_t block) const {
    std::uint64_t bytes = 0;
    for (const SectionExtent& extent : reader_.store().extents(block)) {
      bytes += extent.total_bytes();
    }
    return bytes;
  }

  Status scrub_block(std::size_t block) {
    for (int attempt = 0; attempt < kMaxOvertaken; ++attempt) {
      const SlotEntry entry = reader_.entry(block);
      const std::vector<BadTile> bad =
          verify_block(reader_.storage(), reader_.store(), block, entry, buffer_);
      throttle_.moved(block_bytes(block), stop_);
      if (bad.empty()) return ok();
      PENSTOCK_CHECK_OK(reader_.advance());
      const SlotEntry& now = reader_.entry(block);
      if (now.slot == entry.slot && now.version == entry.version) {
        for (const BadTile& tile : bad) report(tile);
        return ok();
      }
      ++result_.reread_blocks;
    }
    return make_error(
        Errc::kState,
        fmt::format("scrub {}: {} was written anew {} times while it was read; try "
                    "again when the training has ended",
                    reader_.store().directory(), reader_.store().block_name(block), kMaxOvertaken));
  }

  void report(const BadTile& bad) {
    Damage damage;
    damage.bad = bad;
    damage.section = reader_.store().geometry().sections[bad.section].name;
    if (const DescribedGroup* group = reader_.description().group_of(bad.block)) {
      damage.group = group->name;
      const std::uint64_t elements = group->blocks[bad.block - group->first_block];
      const bool tile = bad.kind == SectionFaultKind::kTile;
      const std::uint64_t first =
          tile ? std::min(elements, std::uint64_t{bad.tile} * kTileElements) : 0;
      const std::uint64_t count = tile ? std::min(kTileElements, elements - first) : elements;
      if (bad.kind != SectionFaultKind::kPadding) {
        damage.tensors = places_.tensors_in(bad.block, first, count);
      }
    }
    damage.message =
        fmt::format("{}, section \"{}\": {} bytes at offset {} of {}: {}", whose(damage),
                    damage.section, bad.bytes, bad.offset_bytes, bad.path, what_is_wrong(damage));
    ++result_.damaged;
    observer_.on_damage(damage);
  }

  StoreReader& reader_;
  Throttle& throttle_;
  ScrubObserver& observer_;
  const std::atomic<bool>& stop_;
  BlockPlaces places_;
  PageBuffer buffer_;
  ScrubResult result_;
};

}  // namespace

std::string damaged_store(const std::string& directory, std::uint64_t places) {
  return fmt::format("the store {} is damaged in {} places; restore a checkpoint or train anew",
                     directory, places);
}

Result<ScrubResult> scrub_store(StoreReader& reader, Throttle& throttle, ScrubObserver& observer,
                                const std::atomic<bool>& stop) {
  return Scrubber(reader, throttle, observer, stop).run();
}

}  // namespace penstock
