#include "engine/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/checksum.hpp"
#include "io/store_format.hpp"
#include "kernels/cpu/optimizer.hpp"
#include "mem/arena.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::uint64_t kSmallAlignment = 64;
constexpr std::size_t kMaxName = 255, kMaxDimensions = 8;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 48;
constexpr std::string_view kRule = "adamw", kLadder = "fp32";

Result<std::uint64_t> count_elements(const TensorSpec& tensor) {
  const auto bad = [&](const std::string& why) {
    return make_error(Errc::kArgument, fmt::format("tensor \"{}\": {}", tensor.name, why));
  };
  if (tensor.name.empty() || tensor.name.size() > kMaxName) {
    return bad(fmt::format("a name has 1 to {} bytes, this one {}", kMaxName, tensor.name.size()));
  }
  if (tensor.shape.empty() || tensor.shape.size() > kMaxDimensions) {
    return bad(fmt::format("a shape has 1 to {} dimensions, this one {}", kMaxDimensions,
                           tensor.shape.size()));
  }
  std::uint64_t elements = 1;
  for (const std::int64_t dimension : tensor.shape) {
    if (dimension < 1) return bad(fmt::format("dimension {} is not positive", dimension));
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(dimension), &elements) ||
        elements > kMaxElements) {
      return bad("the shape has more than 2^48 elements");
    }
  }
  if (tensor.contributions < 1) return bad("contributions must be at least 1");
  return elements;
}

json shape_of(const TensorSpec& tensor) {
  json shape = json::array();
  for (const std::int64_t dimension : tensor.shape) shape.push_back(dimension);
  return shape;
}

/// Deeper values than any of ours are left out: comparing and printing them would take stack.
json parse(std::string_view text) {
  constexpr int kDepth = 32;
  const auto shallow = [](int depth, json::parse_event_t, const json&) { return depth < kDepth; };
  return json::parse(text, shallow, /*allow_exceptions=*/false);
}

Error not_ours(std::string_view directory) {
  return make_error(Errc::kCorrupt,
                    fmt::format("the description of the store in {} is not one of this program; "
                                "use the version that wrote it",
                                directory));
}

}  // namespace

Result<Layout> Layout::make(const ModelSpec& model) {
  Layout layout;
  layout.groups_.resize(model.groups.size());
  for (GroupShape& group : layout.groups_) group.trainable = false;
  std::set<std::string_view> names;
  std::vector<bool> seen(model.groups.size(), false);
  for (TensorId id = 0; id < model.tensors.size(); ++id) {
    const TensorSpec& tensor = model.tensors[id];
    PENSTOCK_TAKE(elements, count_elements(tensor));
    if (tensor.group >= model.groups.size()) {
      return make_error(Errc::kArgument,
                        fmt::format("tensor \"{}\" is in group {}, but there are only {}",
                                    tensor.name, tensor.group, model.groups.size()));
    }
    if (!names.insert(tensor.name).second) {
      return make_error(Errc::kArgument, fmt::format("two tensors are called \"{}\"", tensor.name));
    }
    GroupShape& group = layout.groups_[tensor.group];
    if (seen[tensor.group] && (group.trainable != tensor.trainable || group.lent != tensor.lent)) {
      return make_error(
          Errc::kArgument,
          fmt::format("tensor \"{}\" cannot join group \"{}\": frozen and trainable, or "
                      "lent and other tensors, do not share a group",
                      tensor.name, model.groups[tensor.group]));
    }
    if (tensor.lent && (tensor.weights == nullptr || tensor.weight_type != WeightType::kBf16 ||
                        model.level != Level::kStates)) {
      return make_error(Errc::kArgument,
                        fmt::format("tensor \"{}\" can be lent only at level 1 and as a "
                                    "bf16 array",
                                    tensor.name));
    }
    seen[tensor.group] = true;
    group.trainable = tensor.trainable;
    group.lent = tensor.lent;
    const std::uint64_t alignment = elements >= kNormBlock ? kNormBlock : kSmallAlignment;
    const std::uint64_t offset = round_up(group.elements, alignment);
    group.elements = round_up(offset + elements, kSmallAlignment);
    layout.tensors_.push_back({tensor.group, offset, elements});
    layout.by_name_.push_back(id);
  }
  std::sort(layout.by_name_.begin(), layout.by_name_.end(),
            [&](TensorId a, TensorId b) { return model.tensors[a].name < model.tensors[b].name; });
  return layout;
}

void Layout::cut(const Plan& plan) {
  tensor_ranges_.assign(tensors_.size(), {});
  block_ranges_.assign(plan.blocks.size(), {});
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    const TensorPlace& place = tensors_[id];
    const GroupPlan& group = plan.groups[place.group];
    for (std::uint32_t b = group.first_block; b < group.first_block + group.block_count; ++b) {
      const BlockPlan& block = plan.blocks[b];
      const std::uint64_t first = std::max(place.offset, block.first_element);
      const std::uint64_t last =
          std::min(place.offset + place.elements, block.first_element + block.elements);
      if (first >= last) continue;
      const Range range{id, b, static_cast<std::uint32_t>(first - block.first_element),
                        static_cast<std::uint32_t>(last - first), first - place.offset};
      tensor_ranges_[id].push_back(range);
      block_ranges_[b].push_back(range);
    }
  }
}

PlanRequest make_plan_request(const EngineOptions& options, const ModelSpec& model,
                              const Layout& layout) {
  PlanRequest request;
  request.level = model.level;
  request.groups = layout.groups();
  request.forward = model.forward;
  if (request.forward.empty()) {
    for (GroupId g = 0; g < model.groups.size(); ++g) request.forward.push_back(g);
  }
  if (model.level == Level::kWeights) {
    request.backward = model.backward;
    if (request.backward.empty()) {
      request.backward.assign(request.forward.rbegin(), request.forward.rend());
    }
  }
  request.host_bytes = options.host_bytes;
  request.workspace_bytes = round_up(options.workspace_bytes, kPageBytes);
  request.block_elements = options.block_elements;
  request.commit_every = options.commit_every;
  request.drives = static_cast<std::uint32_t>(1 + options.further_directories.size());
  std::uint64_t largest = 0, tiles = 0;
  for (TensorId id = 0; id < model.tensors.size(); ++id) {
    const std::uint64_t elements = layout.tensors()[id].elements;
    if (model.tensors[id].contributions > 1) {
      request.accumulator_bytes += round_up(elements * sizeof(float), kPageBytes);
    }
    largest = std::max(largest, elements);
  }
  // The planner makes no smaller blocks than of 64 Ki elements unless it is told to.
  constexpr std::uint32_t kSmallestBlock = 64U << 10;
  const std::uint32_t smallest = options.block_elements > 0
                                     ? std::min(options.block_elements, kSmallestBlock)
                                     : kSmallestBlock;
  std::uint64_t blocks = 0;  // at most
  for (const GroupShape& group : request.groups) {
    tiles += group.elements / kTileElements + 2;
    blocks += group.elements / smallest + 1;
  }
  // Sums and flags per tile, norm parts of the largest tensor, entries and operations per block,
  // and the manifests that are kept for the next commit: the store's and that of its copy (tee).
  constexpr std::uint64_t kBlockBytes = 2048, kTensorBytes = 512, kDescribedBytes = 256;
  const std::uint64_t manifests =
      2 * (blocks * manifest_block_bytes(kSectionCount) + model.tensors.size() * kDescribedBytes);
  request.table_bytes =
      round_up(tiles * 16 + (largest / kNormBlock + 1) * sizeof(NormPart) + blocks * kBlockBytes +
                   model.tensors.size() * kTensorBytes + manifests,
               kPageBytes) +
      kHugePageBytes;  // the arena is rounded up to whole huge pages
  return request;
}

std::uint64_t layout_hash(const ModelSpec& model, const Layout& layout) {
  StreamHash128 hash;
  const auto add = [&](const auto& value) { hash.update(&value, sizeof value); };
  const auto add_text = [&](std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    hash.update(text.data(), text.size());
  };
  add_text(kRule);
  add_text(kLadder);
  for (const SectionSpec& section : fp32_sections()) {
    add_text(section.name);
    add_text(section.codec);
  }
  for (TensorId id = 0; id < model.tensors.size(); ++id) {
    const TensorSpec& tensor = model.tensors[id];
    add_text(tensor.name);
    add_text(model.groups[tensor.group]);
    for (const std::int64_t dimension : tensor.shape) add(dimension);
    add(layout.tensors()[id].offset);
    add(static_cast<std::uint8_t>(tensor.trainable));
  }
  return hash.digest().low;
}

std::string describe_model(const EngineOptions& options, const ModelSpec& model,
                           const Layout& layout, const Plan& plan) {
  json groups = json::array(), tensors = json::array();
  for (GroupId g = 0; g < model.groups.size(); ++g) {
    const GroupPlan& group = plan.groups[g];
    json blocks = json::array();
    for (std::uint32_t b = 0; b < group.block_count; ++b) {
      blocks.push_back(plan.blocks[group.first_block + b].elements);
    }
    groups.push_back({{"name", model.groups[g]},
                      {"elements", group.elements},
                      {"first_block", group.first_block},
                      {"blocks", blocks}});
  }
  for (TensorId id = 0; id < model.tensors.size(); ++id) {
    const TensorSpec& tensor = model.tensors[id];
    tensors.push_back({{"name", tensor.name},
                       {"group", tensor.group},
                       {"offset", layout.tensors()[id].offset},
                       {"shape", shape_of(tensor)},
                       {"trainable", tensor.trainable},
                       {"decay", tensor.decay}});
  }
  json trainer = parse(options.description_json);
  if (trainer.is_discarded()) trainer = json::object();
  const json description = {{"schema", "penstock.store/1"},
                            {"rule", kRule},
                            {"ladder", kLadder},
                            {"block_elements", plan.block_elements},
                            {"seed", options.seed},
                            {"groups", groups},
                            {"tensors", tensors},
                            {"trainer", trainer}};
  return description.dump();
}

Result<std::uint32_t> block_elements_of(std::string_view description, std::string_view directory) {
  const json value = parse(description);
  if (!value.is_object() || !value.contains("block_elements") ||
      !value["block_elements"].is_number_unsigned()) {
    return not_ours(directory);
  }
  const auto elements = value["block_elements"].get<std::uint64_t>();
  if (elements == 0 || elements % kTileElements != 0 ||
      elements > std::numeric_limits<std::uint32_t>::max()) {
    return not_ours(directory);
  }
  return static_cast<std::uint32_t>(elements);
}

namespace {

// Each names the first difference between a store and a model, or is empty.

std::string rule_difference(const json& stored, const std::vector<SectionSpec>& sections) {
  for (const auto& [key, mine] : {std::pair{"rule", kRule}, std::pair{"ladder", kLadder}}) {
    const std::string theirs = stored.value(key, "");
    if (theirs == mine) continue;
    return fmt::format("its {} is \"{}\", this run's is \"{}\"", key, theirs, mine);
  }
  const std::vector<SectionSpec> mine = fp32_sections();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const std::string codec = i < sections.size() ? sections[i].codec : "";
    const std::string name = i < sections.size() ? sections[i].name : "";
    if (name == mine[i].name && codec == mine[i].codec) continue;
    return fmt::format(
        "its section {} is \"{}\" of type \"{}\", this run's is \"{}\" of type \"{}\"", i, name,
        codec, mine[i].name, mine[i].codec);
  }
  if (sections.size() == mine.size()) return "";
  return fmt::format("it has {} sections, this run {}", sections.size(), mine.size());
}

std::string group_difference(const json& groups, const ModelSpec& model) {
  for (GroupId id = 0; id < model.groups.size() && id < groups.size(); ++id) {
    const std::string theirs = groups[id].is_object() ? groups[id].value("name", "") : "";
    if (theirs == model.groups[id]) continue;
    return fmt::format("its group {} is \"{}\", this model's is \"{}\"", id, theirs,
                       model.groups[id]);
  }
  if (groups.size() == model.groups.size()) return "";
  return fmt::format("it has {} groups, this model {}", groups.size(), model.groups.size());
}

std::string tensor_difference(const json& tensors, const ModelSpec& model, const Layout& layout) {
  for (TensorId id = 0; id < model.tensors.size(); ++id) {
    const TensorSpec& tensor = model.tensors[id];
    if (id >= tensors.size()) return fmt::format("it has no tensor \"{}\"", tensor.name);
    const json& stored = tensors[id];
    const std::string name = stored.is_object() ? stored.value("name", "") : "";
    if (name != tensor.name) {
      return fmt::format("its tensor {} is \"{}\", this model's is \"{}\"", id, name, tensor.name);
    }
    for (const auto& [key, mine] : {std::pair<const char*, json>{"shape", shape_of(tensor)},
                                    {"trainable", tensor.trainable},
                                    {"group", tensor.group},
                                    {"offset", layout.tensors()[id].offset}}) {
      const json theirs = stored.value(key, json());
      if (theirs == mine) continue;
      return fmt::format("tensor \"{}\" has {} {} there and {} here", name, key, theirs.dump(),
                         mine.dump());
    }
  }
  if (tensors.size() == model.tensors.size()) return "";
  return fmt::format("it has {} tensors, this model {}", tensors.size(), model.tensors.size());
}

}  // namespace

Status compare_model(const StoreGeometry& stored, std::string_view directory,
                     const ModelSpec& model, const Layout& layout) {
  const json value = parse(stored.description);
  if (!value.is_object() || !value.contains("tensors") || !value["tensors"].is_array() ||
      !value.contains("groups") || !value["groups"].is_array()) {
    return not_ours(directory);
  }
  std::string difference = rule_difference(value, stored.sections);
  if (difference.empty()) difference = tensor_difference(value["tensors"], model, layout);
  if (difference.empty()) difference = group_difference(value["groups"], model);
  if (!difference.empty()) {
    return make_error(Errc::kState,
                      fmt::format("the store in {} holds another model: {}; use the model it was "
                                  "made with or another directory",
                                  directory, difference));
  }
  if (stored.layout_hash == layout_hash(model, layout)) return ok();
  return make_error(
      Errc::kCorrupt,
      fmt::format("the store in {} describes this model, but its layout hash is {:#x} instead of "
                  "{:#x}; it was put together from two stores",
                  directory, stored.layout_hash, layout_hash(model, layout)));
}

Status compare_trainer(std::string_view description, std::string_view directory,
                       std::string_view trainer_json) {
  const json value = parse(description);
  const json here = parse(trainer_json);
  if (!value.is_object() || !here.is_object()) return ok();
  const json there = value.value("trainer", json::object());
  std::string differences;
  for (const auto& [key, mine] : here.items()) {
    if (there.contains(key) && there[key] != mine) {
      differences += fmt::format("{}{} (store {}, now {})", differences.empty() ? "" : ", ", key,
                                 there[key].dump(), mine.dump());
    }
  }
  if (differences.empty()) return ok();
  return make_error(
      Errc::kState,
      fmt::format("the store in {} was made with other values: {}; give the values and the "
                  "data it was made with, or use another directory",
                  directory, differences));
}

StoreGeometry make_geometry(const ModelSpec& model, const Plan& plan, std::string description,
                            std::uint64_t hash) {
  StoreGeometry geometry;
  geometry.sections = fp32_sections();
  geometry.description = std::move(description);
  geometry.layout_hash = hash;
  for (const BlockPlan& block : plan.blocks) {
    const GroupPlan& group = plan.groups[block.group];
    BlockGeometry out;
    out.key = hash_name(fmt::format("{}\x1f{}", model.groups[block.group], block.first_element));
    out.lengths = section_lengths(block.elements, group.trainable);
    out.frozen = !group.trainable;
    geometry.blocks.push_back(std::move(out));
    if (group.trainable) geometry.spill_bytes.push_back(std::uint64_t{block.elements} * 2);
  }
  return geometry;
}

}  // namespace penstock
