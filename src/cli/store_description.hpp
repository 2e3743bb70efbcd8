#pragma once

/// What lies in a store, read from the description kept in it and checked against its geometry.
///
///   {"groups":  [{"name", "elements", "first_block", "blocks": [elements, ...]}, ...],
///    "tensors": [{"name", "group": index, "offset", "shape": [...], "trainable"}, ...],
///    "trainer": {...}}
/// Errors: kCorrupt names the part that does not fit. Threads: pure functions.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "io/store.hpp"

namespace penstock {

struct DescribedGroup {
  std::string name;
  std::uint64_t elements = 0;
  std::uint64_t first_block = 0;
  std::vector<std::uint64_t> blocks;  ///< elements of each, in order
};

struct DescribedTensor {
  std::string name;
  std::size_t group = 0;
  std::uint64_t offset = 0;    ///< in elements, in its group
  std::uint64_t elements = 0;  ///< product of the shape
  std::vector<std::uint64_t> shape;
  bool trainable = true;
};

struct StoreDescription {
  std::vector<DescribedGroup> groups;
  std::vector<DescribedTensor> tensors;  ///< by name
  std::string trainer_json;              ///< "{}" where there is none
  [[nodiscard]] std::uint64_t parameters() const;
  /// Null where the block belongs to none.
  [[nodiscard]] const DescribedGroup* group_of(std::size_t block) const;
  [[nodiscard]] const DescribedTensor* find(std::string_view name) const;
};

Result<StoreDescription> read_description(const Store& store);

}  // namespace penstock
