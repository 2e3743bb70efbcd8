#include "cli/store_scrub.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/units.hpp"
#include "base/with_memory.hpp"
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
      : last_commit_(reader),
        reader_(&reader),
        throttle_(throttle),
        observer_(observer),
        stop_(stop),
        places_(reader.description()),
        buffer_(verify_buffer_bytes(reader.store())) {}

  Result<ScrubResult> run() {
    PENSTOCK_CHECK_OK(scrub_state());
    if (!reader_->checkpoint().empty()) return result_;
    const std::vector<Pin> pins = reader_->store().pins();
    for (const Pin& pin : pins) {
      if (!result_.complete) return result_;
      const Status done = scrub_checkpoint(pin.name);
      if (done) {
        ++result_.checkpoints;
      } else if (done.error().code == Errc::kState) {
        result_.complete = true;  // it was dropped meanwhile
      } else {
        return done.error();
      }
    }
    return result_;
  }

 private:
  Status scrub_checkpoint(const std::string& name) {
    PENSTOCK_TAKE(opened, StoreReader::open(last_commit_.storage(),
                                            last_commit_.store().directories(), name));
    reader_ = opened.get();
    Status done = scrub_state();
    reader_ = &last_commit_;
    return done;
  }

  /// Everything that the reader's state names and that was not read before.
  Status scrub_state() {
    result_.complete = false;
    const std::size_t blocks = reader_->store().geometry().blocks.size();
    std::vector<std::size_t> unread;
    for (std::size_t block = 0; block < blocks; ++block) {
      if (seen_.contains(place_of(reader_->entry(block)))) continue;
      unread.push_back(block);
      result_.total_bytes += block_bytes(block);
    }
    if (buffer_.empty()) {
      return make_error(
          Errc::kNoMemory,
          fmt::format("scrub {}: there is no memory for a section of {}; {}",
                      reader_->store().directory(),
                      format_bytes(verify_buffer_bytes(reader_->store())), kMoreMemory));
    }
    for (const std::size_t block : unread) {
      if (stop_.load(std::memory_order_relaxed)) return ok();
      PENSTOCK_CHECK_OK(scrub_block(block));
      result_.bytes += block_bytes(block);
      observer_.on_progress(result_.bytes, result_.total_bytes);
    }
    result_.complete = true;
    return ok();
  }

  using Place = std::pair<SlotIndex, std::uint64_t>;
  static Place place_of(const SlotEntry& entry) { return {entry.slot, entry.version}; }

  [[nodiscard]] std::uint64_t block_bytes(std::size_t block) const {
    std::uint64_t bytes = 0;
    for (const SectionExtent& extent : reader_->store().extents(block)) {
      bytes += extent.total_bytes();
    }
    return bytes;
  }

  Status scrub_block(std::size_t block) {
    for (int attempt = 0; attempt < kMaxOvertaken; ++attempt) {
      const SlotEntry entry = reader_->entry(block);
      const std::vector<BadTile> bad =
          verify_block(reader_->storage(), reader_->store(), block, entry, buffer_);
      throttle_.moved(block_bytes(block), stop_);
      if (!bad.empty()) PENSTOCK_CHECK_OK(reader_->advance());
      if (bad.empty() || same_bytes(reader_->entry(block), entry)) {
        for (const BadTile& tile : bad) report(tile);
        seen_.insert(place_of(entry));
        return ok();
      }
      ++result_.reread_blocks;
    }
    return make_error(Errc::kTimeout,
                      fmt::format("scrub {}: {} was written anew {} times while it was read; try "
                                  "again when the training has ended",
                                  reader_->store().directory(), reader_->store().block_name(block),
                                  kMaxOvertaken));
  }

  void report(const BadTile& bad) {
    Damage damage;
    damage.bad = bad;
    damage.checkpoint = reader_->checkpoint();
    damage.section = reader_->store().geometry().sections[bad.section].name;
    if (const DescribedGroup* group = reader_->description().group_of(bad.block)) {
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
    if (!damage.checkpoint.empty()) {
      damage.message += fmt::format(" (of the checkpoint \"{}\")", damage.checkpoint);
    }
    ++result_.damaged;
    observer_.on_damage(damage);
  }

  StoreReader& last_commit_;
  StoreReader* reader_;  // of the state being read
  Throttle& throttle_;
  ScrubObserver& observer_;
  const std::atomic<bool>& stop_;
  BlockPlaces places_;
  PageBuffer buffer_;
  std::set<Place> seen_;  // a slot that did not change is named by several states
  ScrubResult result_;
};

}  // namespace

std::string damaged_store(const Store& store, std::uint64_t places) {
  return fmt::format(
      "the store {} is damaged in {} places; go back to a checkpoint (penstock "
      "checkpoint list), use a copy, or train anew",
      store.directories().text(), places);
}

Result<ScrubResult> scrub_store(StoreReader& reader, Throttle& throttle, ScrubObserver& observer,
                                const std::atomic<bool>& stop) {
  return Scrubber(reader, throttle, observer, stop).run();
}

}  // namespace penstock
