#include "cli/store_description.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/strict_json.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr JsonLimits kLimits{.bytes = std::uint64_t{1} << 30, .depth = 32};

Error bad(const Store& store, const std::string& what) {
  return make_error(Errc::kCorrupt,
                    fmt::format("the description in the store {}: {}; was it written by another "
                                "program?",
                                store.directory(), what));
}

bool get(const json& object, const char* name, std::uint64_t& into) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return false;
  into = found->get<std::uint64_t>();
  return true;
}

bool get(const json& object, const char* name, std::string& into) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return false;
  into = found->get<std::string>();
  return true;
}

bool get(const json& object, const char* name, std::vector<std::uint64_t>& into) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array()) return false;
  for (const json& value : *found) {
    if (!value.is_number_unsigned()) return false;
    into.push_back(value.get<std::uint64_t>());
  }
  return true;
}

Result<DescribedGroup> read_group(const Store& store, const json& value) {
  DescribedGroup group;
  if (!value.is_object() || !get(value, "name", group.name) ||
      !get(value, "elements", group.elements) || !get(value, "first_block", group.first_block) ||
      !get(value, "blocks", group.blocks)) {
    return bad(store, fmt::format("a group is {}", json_excerpt(value)));
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t elements : group.blocks) {
    if (__builtin_add_overflow(sum, elements, &sum)) return bad(store, "a sum of blocks overflows");
  }
  const std::uint64_t all = store.geometry().blocks.size();
  if (sum != group.elements || group.first_block > all ||
      group.blocks.size() > all - group.first_block) {
    return bad(store, fmt::format("the blocks of group \"{}\" do not make up its {} elements",
                                  group.name, group.elements));
  }
  return group;
}

Result<DescribedTensor> read_tensor(const Store& store, const json& value,
                                    const std::vector<DescribedGroup>& groups) {
  DescribedTensor tensor;
  std::uint64_t group = 0;
  if (!value.is_object() || !get(value, "name", tensor.name) || !get(value, "group", group) ||
      !get(value, "offset", tensor.offset) || !get(value, "shape", tensor.shape)) {
    return bad(store, fmt::format("a tensor is {}", json_excerpt(value)));
  }
  tensor.trainable = value.value("trainable", json(true)) != json(false);
  tensor.elements = 1;
  for (const std::uint64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(tensor.elements, dimension, &tensor.elements)) {
      return bad(store, fmt::format("the shape of tensor \"{}\" overflows", tensor.name));
    }
  }
  tensor.group = group;
  if (group >= groups.size() || tensor.offset > groups[group].elements ||
      tensor.elements > groups[group].elements - tensor.offset) {
    return bad(store, fmt::format("tensor \"{}\" does not lie in its group", tensor.name));
  }
  return tensor;
}

}  // namespace

std::uint64_t StoreDescription::parameters() const {
  std::uint64_t sum = 0;
  for (const DescribedTensor& tensor : tensors) sum += tensor.elements;
  return sum;
}

const DescribedGroup* StoreDescription::group_of(std::size_t block) const {
  for (const DescribedGroup& group : groups) {
    if (block >= group.first_block && block - group.first_block < group.blocks.size()) {
      return &group;
    }
  }
  return nullptr;
}

const DescribedTensor* StoreDescription::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const DescribedTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found == tensors.end() || found->name != name ? nullptr : &*found;
}

Result<StoreDescription> read_description(const Store& store) {
  json root;
  const Status parsed = parse_strict_json(store.geometry().description, "it", kLimits, root);
  if (!parsed) return bad(store, parsed.error().message);
  if (!root.is_object() || !root.contains("groups") || !root["groups"].is_array() ||
      !root.contains("tensors") || !root["tensors"].is_array()) {
    return bad(store, "it lists no groups and tensors");
  }
  StoreDescription description;
  for (const json& value : root["groups"]) {
    PENSTOCK_TAKE(group, read_group(store, value));
    description.groups.push_back(std::move(group));
  }
  for (const json& value : root["tensors"]) {
    PENSTOCK_TAKE(tensor, read_tensor(store, value, description.groups));
    description.tensors.push_back(std::move(tensor));
  }
  std::sort(description.tensors.begin(), description.tensors.end(),
            [](const DescribedTensor& a, const DescribedTensor& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < description.tensors.size(); ++i) {
    if (description.tensors[i].name == description.tensors[i - 1].name) {
      return bad(store, fmt::format("two tensors are named \"{}\"", description.tensors[i].name));
    }
  }
  description.trainer_json = root.value("trainer", json::object()).dump();
  return description;
}

}  // namespace penstock
