#pragma once

/// The last block read of one section: small tensors of a block cost one read together.
///
/// Memory:  the section of the largest block read so far. Threads: one.
/// Errors:  those of StoreReader::read_section(), kNoMemory, kCorrupt (a section that does not have
///          the same bytes for every element).

#include <optional>
#include <span>
#include <string_view>

#include "cli/block_parts.hpp"
#include "cli/store_reader.hpp"
#include "io/page_buffer.hpp"

namespace penstock {

/// The index of a section of this name that is stored so; nothing where there is none.
[[nodiscard]] std::optional<std::size_t> find_section(const Store& store, std::string_view name,
                                                      std::string_view codec);

class SectionCache {
 public:
  SectionCache(StoreReader& reader, std::size_t section) : reader_(reader), section_(section) {}

  /// The bytes of the part's elements, checked; valid until the next call. Empty where the block
  /// has no such section (frozen).
  Result<std::span<const std::byte>> read(const BlockPart& part);

  [[nodiscard]] const SectionSpec& spec() const {
    return reader_.store().geometry().sections[section_];
  }

 private:
  Status load(std::size_t block);

  StoreReader& reader_;
  std::size_t section_;
  std::optional<PageBuffer> buffer_;
  std::optional<std::size_t> block_;
};

}  // namespace penstock
