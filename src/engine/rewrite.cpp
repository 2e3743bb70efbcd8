#include "engine/rewrite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/units.hpp"
#include "base/with_memory.hpp"
#include "engine/drive_set.hpp"
#include "engine/layout.hpp"
#include "io/page_buffer.hpp"
#include "io/section_sums.hpp"

namespace penstock {
namespace {

using nlohmann::json;

/// One group as the source's description has it.
struct SourceGroup {
  std::string name;
  std::uint64_t elements = 0;
  std::uint32_t first_block = 0;
  std::vector<std::uint64_t> first_elements;  // per block, in the group
};

Error bad_description(const Store& store, const std::string& what) {
  return make_error(Errc::kCorrupt, fmt::format("the description in {}: {}; was it written by "
                                                "another program?",
                                                store.directories().text(), what));
}

Result<SourceGroup> read_group(const Store& store, const json& value) {
  SourceGroup group;
  const bool whole = value.is_object() && value.value("name", json()).is_string() &&
                     value.value("elements", json()).is_number_unsigned() &&
                     value.value("first_block", json()).is_number_unsigned() &&
                     value.value("blocks", json()).is_array();
  if (!whole) return bad_description(store, "a group lacks a name, elements or blocks");
  group.name = value["name"].get<std::string>();
  group.elements = value["elements"].get<std::uint64_t>();
  const auto first = value["first_block"].get<std::uint64_t>();
  const std::uint64_t all = store.geometry().blocks.size();
  std::uint64_t sum = 0;
  for (const json& elements : value["blocks"]) {
    if (!elements.is_number_unsigned()) return bad_description(store, "a block is not a number");
    group.first_elements.push_back(sum);
    if (__builtin_add_overflow(sum, elements.get<std::uint64_t>(), &sum)) {
      return bad_description(store, "a sum of blocks overflows");
    }
  }
  if (sum != group.elements || sum == 0 || first > all ||
      group.first_elements.size() > all - first) {
    return bad_description(store, fmt::format("the blocks of group \"{}\" do not make up its {} "
                                              "elements",
                                              group.name, group.elements));
  }
  group.first_block = static_cast<std::uint32_t>(first);
  return group;
}

std::uint64_t element_bytes(const SectionSpec& section) {
  return section.tile_bytes / kTileElements;
}

/// Elements of one section of the source, wherever its blocks end; keeps the last block read.
class SectionReader {
 public:
  /// `buffer` holds the section of any block.
  SectionReader(Store& store, const SlotTable& table, std::size_t section, PageBuffer buffer)
      : store_(store), table_(table), section_(section), buffer_(std::move(buffer)) {}

  /// Elements [first, first + count) of the group.
  Status read(const SourceGroup& group, std::uint64_t first, std::uint64_t count, std::byte* out) {
    const std::uint64_t bytes = element_bytes(store_.geometry().sections[section_]);
    while (count > 0) {
      const auto next =
          std::upper_bound(group.first_elements.begin(), group.first_elements.end(), first);
      const auto index = static_cast<std::size_t>(next - group.first_elements.begin()) - 1;
      const std::uint64_t end = next == group.first_elements.end() ? group.elements : *next;
      PENSTOCK_CHECK_OK(load(group.first_block + index));
      const std::uint64_t part = std::min(count, end - first);
      const std::uint64_t offset = (first - group.first_elements[index]) * bytes;
      const std::uint64_t has = store_.extents(group.first_block + index)[section_].data_bytes;
      if (offset + part * bytes > has) {
        return bad_description(
            store_, fmt::format("a block of group \"{}\" is shorter than it says", group.name));
      }
      std::memcpy(out, buffer_.span().data() + offset, part * bytes);
      out += part * bytes;
      first += part;
      count -= part;
    }
    return ok();
  }

 private:
  Status load(std::size_t block) {
    if (loaded_ == block) return ok();
    loaded_.reset();
    const std::uint64_t bytes = store_.extents(block)[section_].total_bytes();
    PENSTOCK_CHECK_OK(
        store_.read_section(block, section_, table_.entry(block), buffer_.first(bytes)));
    loaded_ = block;
    return ok();
  }

  Store& store_;
  const SlotTable& table_;
  std::size_t section_;
  PageBuffer buffer_;
  std::optional<std::size_t> loaded_;
};

class Rewrite {
 public:
  Rewrite(Storage& storage, const RewriteOptions& options, const RewriteProgress& progress)
      : storage_(storage), options_(options), progress_(progress) {}

  Status run() {
    PENSTOCK_CHECK_OK(open_source());
    PENSTOCK_CHECK_OK(create_target());
    for (std::uint32_t block = 0; block < plan_.blocks.size(); ++block) {
      PENSTOCK_CHECK_OK(write_block(block));
      if (progress_ && !progress_(done_bytes_, total_bytes_)) {
        return make_error(
            Errc::kCancelled,
            fmt::format("stopped before the copy in {} was finished; the same command "
                        "begins it again, and \"penstock clean {} --yes\" removes it",
                        options_.to.text(), fmt::join(options_.to.all(), " ")));
      }
    }
    target_table_->commit_begin();
    for (std::size_t block = 0; block < plan_.blocks.size(); ++block) {
      target_table_->commit_record(block);
    }
    return target_->commit(source_->committed(), target_table_->commit_entries());
  }

 private:
  Status open_source();
  Status create_target();
  Status reserve(const StoreGeometry& geometry);
  Status choose_shares(StoreGeometry& geometry) const;
  Status write_block(std::uint32_t block);

  Storage& storage_;
  const RewriteOptions& options_;
  const RewriteProgress& progress_;
  std::unique_ptr<Store> source_, target_;
  std::unique_ptr<SlotTable> source_table_, target_table_;
  json description_;
  std::vector<SourceGroup> groups_;
  Plan plan_;  // only what make_geometry() looks at
  std::vector<SectionReader> readers_;
  std::optional<PageBuffer> buffer_;  // for a section of any block of the target
  std::uint64_t done_bytes_ = 0, total_bytes_ = 0;
};

Status Rewrite::open_source() {
  StoreOptions options;
  options.pin = options_.pin;
  auto store = open_store(storage_, options_.from, options, false);
  if (!store) return std::move(store).error();
  source_ = std::move(store).value();
  source_table_ = std::make_unique<SlotTable>(source_->make_table());
  description_ = json::parse(source_->geometry().description, nullptr, false);
  const json groups = description_.is_object() ? description_.value("groups", json()) : json();
  if (!groups.is_array() || groups.empty()) return bad_description(*source_, "it lists no groups");
  for (const SectionSpec& section : source_->geometry().sections) {
    if (section.tile_bytes % kTileElements == 0 && element_bytes(section) > 0) continue;
    return make_error(Errc::kUnsupported,
                      fmt::format("section \"{}\" has no whole bytes per element, so its blocks "
                                  "cannot be cut",
                                  section.name));
  }
  for (const json& value : groups) {
    auto group = read_group(*source_, value);
    if (!group) return std::move(group).error();
    groups_.push_back(std::move(group).value());
  }
  return ok();
}

Status Rewrite::create_target() {
  PENSTOCK_TAKE(old_elements,
                block_elements_of(source_->geometry().description, source_->directories().text()));
  const std::uint32_t elements =
      options_.block_elements == 0 ? old_elements : options_.block_elements;
  if (elements % kTileElements != 0) {
    return make_error(Errc::kArgument, fmt::format("blocks of {} elements are not a multiple of {}",
                                                   elements, kTileElements));
  }
  ModelSpec model;
  description_["block_elements"] = elements;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    GroupPlan group;
    group.first_block = static_cast<std::uint32_t>(plan_.blocks.size());
    group.elements = groups_[g].elements;
    group.trainable = !source_->geometry().blocks[groups_[g].first_block].frozen;
    const std::uint64_t share = block_share(group.elements, elements);
    json blocks = json::array();
    for (std::uint64_t first = 0; first < group.elements; first += share) {
      BlockPlan block;
      block.group = g;
      block.first_element = first;
      block.elements = static_cast<std::uint32_t>(std::min(share, group.elements - first));
      plan_.blocks.push_back(block);
      blocks.push_back(block.elements);
    }
    group.block_count = static_cast<std::uint32_t>(plan_.blocks.size()) - group.first_block;
    plan_.groups.push_back(group);
    model.groups.push_back(groups_[g].name);
    description_["groups"][g]["first_block"] = group.first_block;
    description_["groups"][g]["blocks"] = std::move(blocks);
  }
  StoreGeometry geometry =
      make_geometry(model, plan_, description_.dump(), source_->geometry().layout_hash);
  geometry.sections = source_->geometry().sections;
  geometry.pins = options_.checkpoints;
  PENSTOCK_CHECK_OK(reserve(geometry));
  PENSTOCK_CHECK_OK(choose_shares(geometry));
  for (const BlockGeometry& block : geometry.blocks) {
    for (const std::uint64_t bytes : block.lengths) total_bytes_ += bytes;
  }
  StoreOptions create;
  create.uuid_seed = options_.uuid_seed;
  auto store = create_store(storage_, options_.to, geometry, create);
  if (!store) return std::move(store).error();
  target_ = std::move(store).value();
  target_table_ = std::make_unique<SlotTable>(target_->make_table());
  return ok();
}

/// The memory for blocks, before anything is made: what is refused later leaves half a store.
Status Rewrite::reserve(const StoreGeometry& geometry) {
  const std::size_t sections = geometry.sections.size();
  std::vector<std::uint64_t> wanted(sections + 1);  // of the source's sections; of the target
  for (std::size_t block = 0; block < source_->geometry().blocks.size(); ++block) {
    for (std::size_t s = 0; s < sections; ++s) {
      wanted[s] = std::max(wanted[s], source_->extents(block)[s].total_bytes());
    }
  }
  for (const BlockGeometry& block : geometry.blocks) {
    for (const SectionExtent& extent : slot_extents(geometry.sections, block.lengths)) {
      wanted.back() = std::max(wanted.back(), extent.total_bytes());
    }
  }
  std::vector<PageBuffer> buffers;
  for (const std::uint64_t bytes : wanted) {
    buffers.emplace_back(bytes);
    if (!buffers.back().empty()) continue;
    return make_error(
        Errc::kNoMemory,
        fmt::format("copying {} takes {} of memory for the largest blocks, which cannot be had; {}",
                    options_.from.text(),
                    format_bytes(std::accumulate(wanted.begin(), wanted.end(), std::uint64_t{0})),
                    kMoreMemory));
  }
  for (std::size_t s = 0; s < sections; ++s) {
    readers_.emplace_back(*source_, *source_table_, s, std::move(buffers[s]));
  }
  buffer_.emplace(std::move(buffers.back()));
  return ok();
}

Status Rewrite::choose_shares(StoreGeometry& geometry) const {
  geometry.drives =
      options_.shares.empty() ? std::vector<std::uint32_t>(options_.to.size(), 1) : options_.shares;
  if (!options_.shares.empty() || options_.to.size() == 1 ||
      options_.measure_drive_seconds <= 0.0) {
    return ok();
  }
  // A step reads and writes all states, whatever plan it will have.
  constexpr double kReadShare = 0.5;
  PENSTOCK_TAKE(dealt, measure_shares(storage_, options_.to, geometry, false, kReadShare,
                                      options_.measure_drive_seconds, {}));
  geometry.drives = dealt.shares;
  return ok();
}

Status Rewrite::write_block(std::uint32_t block) {
  const BlockPlan& plan = plan_.blocks[block];
  const SourceGroup& group = groups_[plan.group];
  std::uint64_t version = 0;  // of the newest part
  for (std::size_t i = 0; i < group.first_elements.size(); ++i) {
    const bool last = i + 1 == group.first_elements.size();
    const std::uint64_t end = last ? group.elements : group.first_elements[i + 1];
    if (group.first_elements[i] >= plan.first_element + plan.elements) break;
    if (end <= plan.first_element) continue;
    version = std::max(version, source_table_->entry(group.first_block + i).version);
  }
  const SlotIndex slot = target_table_->choose_target(block, version);
  const DriveExtent place = target_->slot(slot);
  for (std::size_t s = 0; s < readers_.size(); ++s) {
    const SectionExtent& extent = target_->extents(block)[s];
    if (extent.data_bytes == 0) continue;
    const auto bytes = buffer_->first(extent.total_bytes());
    PENSTOCK_CHECK_OK(readers_[s].read(group, plan.first_element, plan.elements, bytes.data()));
    const std::uint64_t root = seal_section(*target_, block, version, s, bytes);
    PENSTOCK_CHECK_OK(
        storage_.write_at(place.file, place.offset_bytes + extent.data_offset, bytes));
    target_table_->landed(block, version, slot, s, root);
    done_bytes_ += extent.data_bytes;
  }
  return ok();
}

}  // namespace

Status rewrite_store(Storage& storage, const RewriteOptions& options,
                     const RewriteProgress& progress) {
  try {  // the JSON library and allocations throw
    return Rewrite(storage, options, progress).run();
  } catch (const std::bad_alloc&) {
    return make_error(Errc::kNoMemory, fmt::format("out of memory while {} was copied; {}",
                                                   options.from.text(), kMoreMemory));
  } catch (const std::exception& exception) {
    return make_error(Errc::kCorrupt,
                      fmt::format("the store in {} cannot be copied: {}; check it with \"penstock "
                                  "inspect\"",
                                  options.from.text(), exception.what()));
  }
}

}  // namespace penstock
