#include "cli/section_cache.hpp"

#include <utility>

#include <fmt/format.h>

namespace penstock {

std::optional<std::size_t> find_section(const Store& store, std::string_view name,
                                        std::string_view codec) {
  const std::vector<SectionSpec>& specs = store.geometry().sections;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name && specs[i].codec == codec) return i;
  }
  return std::nullopt;
}

Result<std::span<const std::byte>> SectionCache::read(const BlockPart& part) {
  const Store& store = reader_.store();
  const std::uint64_t length = store.geometry().blocks[part.block].lengths[section_];
  if (length == 0) return std::span<const std::byte>();
  if (length % part.block_elements != 0) {
    return make_error(
        Errc::kCorrupt,
        fmt::format("the store {}: {} has {} bytes of \"{}\" for {} elements; was it written by "
                    "another program?",
                    store.directory(), store.block_name(part.block), length, spec().name,
                    part.block_elements));
  }
  if (block_ != part.block) PENSTOCK_CHECK_OK(load(part.block));
  const std::uint64_t width = length / part.block_elements;
  return std::span<const std::byte>(
      buffer_->span().subspan(part.first * width, part.elements * width));
}

Status SectionCache::load(std::size_t block) {
  const std::uint64_t bytes = reader_.store().extents(block)[section_].total_bytes();
  block_.reset();
  if (!buffer_ || buffer_->span().size() < bytes) {
    buffer_.reset();  // the smaller one goes first
    buffer_.emplace(bytes);
  }
  if (buffer_->empty()) {
    return make_error(Errc::kNoMemory, fmt::format("no memory for {} bytes of {}; free some", bytes,
                                                   reader_.store().block_name(block)));
  }
  PENSTOCK_CHECK_OK(reader_.read_section(block, section_, buffer_->first(bytes)));
  block_ = block;
  return ok();
}

}  // namespace penstock
