#pragma once

/// Where tensors lie in their groups and blocks: pure arithmetic, the same on every machine.
///
/// Tensors of a group follow one another in registration order. One of at least 4096 elements
/// starts at a multiple of 4096, so that its norm blocks never cross a block; smaller ones at a
/// multiple of
/// 64. Elements between tensors are zero and are never updated.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "plan/plan.hpp"

namespace penstock {

/// A run of one tensor inside one block.
struct Range {
  TensorId tensor = 0;
  std::uint32_t block = 0;
  std::uint32_t first_in_block = 0;
  std::uint32_t elements = 0;
  std::uint64_t first_in_tensor = 0;
};

struct TensorPlace {
  GroupId group = 0;
  std::uint64_t offset = 0;  ///< elements from the start of the group
  std::uint64_t elements = 0;
};

class Layout {
 public:
  /// Errors: kArgument names the tensor or group and the limit.
  static Result<Layout> make(const ModelSpec& model);

  /// Cuts the tensors along the plan's blocks.
  void cut(const Plan& plan);

  [[nodiscard]] const std::vector<TensorPlace>& tensors() const { return tensors_; }
  [[nodiscard]] const std::vector<GroupShape>& groups() const { return groups_; }
  [[nodiscard]] const std::vector<TensorId>& by_name() const { return by_name_; }
  [[nodiscard]] const std::vector<Range>& tensor_ranges(TensorId tensor) const {
    return tensor_ranges_[tensor];
  }
  [[nodiscard]] const std::vector<Range>& block_ranges(std::uint32_t block) const {
    return block_ranges_[block];
  }

 private:
  std::vector<TensorPlace> tensors_;
  std::vector<GroupShape> groups_;
  std::vector<TensorId> by_name_;  // name order, for sums over tensors
  std::vector<std::vector<Range>> tensor_ranges_, block_ranges_;
};

/// The planner's request for a model under these options (tables estimated).
[[nodiscard]] PlanRequest make_plan_request(const EngineOptions& options, const ModelSpec& model,
                                            const Layout& layout);

/// The JSON kept with the store, and the hash over names, shapes, places, types, rule and ladder.
[[nodiscard]] std::string describe_model(const EngineOptions& options, const ModelSpec& model,
                                         const Layout& layout, const Plan& plan);
[[nodiscard]] std::uint64_t layout_hash(const ModelSpec& model, const Layout& layout);

/// The block size a store was created with. kCorrupt when the description is not ours. Here and
/// below `directory` names the store in messages.
[[nodiscard]] Result<std::uint32_t> block_elements_of(std::string_view description,
                                                      std::string_view directory);
/// kState names the first thing that differs from the store's: rule, ladder, the type of a section,
/// a group or a tensor. kCorrupt when nothing does and yet the layout hashes differ.
Status compare_model(const StoreGeometry& stored, std::string_view directory,
                     const ModelSpec& model, const Layout& layout);
/// kState names the trainer's values that differ, unless one of both is absent.
Status compare_trainer(std::string_view description, std::string_view directory,
                       std::string_view trainer_json);

/// Geometry of the store for a plan.
[[nodiscard]] StoreGeometry make_geometry(const ModelSpec& model, const Plan& plan,
                                          std::string description, std::uint64_t hash);

}  // namespace penstock
