#include "cli/inspect_file.hpp"

#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/json_line.hpp"
#include "model/did_you_mean.hpp"
#include "model/safetensors.hpp"

namespace penstock {
namespace {

using nlohmann::json;
using Tensors = std::vector<const safetensors::Tensor*>;

Result<Tensors> choose(const safetensors::Header& header, const std::string& path,
                       const std::string& wanted) {
  Tensors chosen;
  std::vector<std::string_view> names;
  for (const safetensors::Tensor& tensor : header.tensors) {
    names.push_back(tensor.name);
    if (wanted.empty() || wanted == tensor.name) chosen.push_back(&tensor);
  }
  if (!chosen.empty() || wanted.empty()) return chosen;
  return make_error(Errc::kArgument, fmt::format("--tensor \"{}\": {} has no such tensor{}", wanted,
                                                 path, did_you_mean(wanted, names)));
}

void print_json(const std::string& path, const safetensors::Header& header, const Tensors& tensors,
                Console& console) {
  json list = json::array();
  for (const safetensors::Tensor* tensor : tensors) {
    list.push_back({{"name", tensor->name},
                    {"dtype", tensor->dtype},
                    {"shape", tensor->shape},
                    {"offset_bytes", header.data_start + tensor->begin},
                    {"bytes", tensor->end - tensor->begin}});
  }
  const json value = {{"schema", "penstock.safetensors/1"},
                      {"file", path},
                      {"data_bytes", header.data_bytes},
                      {"metadata", header.metadata},
                      {"tensors", list}};
  console.data(json_line(value));
}

void print_text(const std::string& path, const safetensors::Header& header, const Tensors& tensors,
                Console& console) {
  console.data(fmt::format("file      {}", path));
  console.data(
      fmt::format("tensors   {}, {}", header.tensors.size(), format_bytes(header.data_bytes)));
  for (const auto& [key, value] : header.metadata) {
    console.data(fmt::format("metadata  {} = {}", json(key).dump(), json(value).dump()));
  }
  for (const safetensors::Tensor* tensor : tensors) {
    console.data(fmt::format("tensor    {}: {} [{}], {} at offset {}", tensor->name, tensor->dtype,
                             fmt::join(tensor->shape, ", "),
                             format_bytes(tensor->end - tensor->begin),
                             header.data_start + tensor->begin));
  }
}

}  // namespace

Status inspect_safetensors(const std::string& path, const std::string& tensor, Console& console) {
  PENSTOCK_TAKE(header, safetensors::read_header(path));
  PENSTOCK_TAKE(tensors, choose(header, path, tensor));
  if (console.json()) {
    print_json(path, header, tensors, console);
  } else {
    print_text(path, header, tensors, console);
  }
  return ok();
}

}  // namespace penstock
