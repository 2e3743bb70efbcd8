#include "cli/inspect_view.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/json_line.hpp"
#include "cli/store_wear.hpp"
#include "cli/wear_view.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxShown = 20;  // damaged tiles, in text

std::vector<const DescribedTensor*> shown_tensors(const Findings& findings,
                                                  const StoreDescription& description) {
  std::vector<const DescribedTensor*> tensors;
  for (const DescribedTensor& tensor : description.tensors) {
    if (findings.only == nullptr || findings.only == &tensor) tensors.push_back(&tensor);
  }
  return tensors;
}

json damage_json(const Findings& findings) {
  json damage = json::array();
  for (const Damage& found : findings.damage) {
    damage.push_back({{"block", found.bad.block},
                      {"section", found.section},
                      {"file", found.bad.path},
                      {"offset_bytes", found.bad.offset_bytes},
                      {"message", found.message}});
  }
  return damage;
}

json stats_json(const Findings& findings) {
  json all = json::array();
  for (const TensorFindings& found : findings.stats) {
    for (const SectionStats& stats : found.stats) {
      const bool any = stats.count > stats.non_finite;
      const auto value = [any](double number) { return any ? json(number) : json(); };
      all.push_back({{"tensor", found.tensor->name},
                     {"section", stats.section},
                     {"codec", stats.codec},
                     {"count", stats.count},
                     {"non_finite", stats.non_finite},
                     {"min", value(stats.min)},
                     {"max", value(stats.max)},
                     {"mean", value(stats.mean)},
                     {"rms", value(stats.rms)}});
    }
  }
  return all;
}

/// That the store's life had; 0: not known from here.
std::uint64_t steps_of(const Findings& findings, const Store& store) {
  return findings.is_checkpoint ? 0 : store.committed().step;
}

json wear_json(const Findings& findings, const Store& store) {
  return {{"most_bytes_per_step", most_bytes_per_step(store)},
          {"most_bytes", most_bytes_so_far(store)},
          {"endurance_used", endurance_json(most_bytes_so_far(store), findings.endurance_bytes)},
          {"lifetime", lifetime_json(store.lifetime(), store.directories().all(),
                                     steps_of(findings, store), findings.endurance_bytes)},
          {"drives", drives_json(findings.wear)},
          {"notes", findings.wear.notes}};
}

json to_json(const Findings& findings, const StoreReader& reader) {
  const Store& store = reader.store();
  const StoreDescription& description = reader.description();
  json value = {{"schema", "penstock.inspect/1"},
                {"store", store.directories().text()},
                {"step", store.committed().step},
                {"updates", store.committed().updates},
                {"parameters", description.parameters()},
                {"blocks", store.geometry().blocks.size()},
                {"slots", store.slot_count()},
                {"slot_bytes", store.slot_bytes()},
                {"file_bytes", store.file_bytes()},
                {"blob_bytes", store.committed().blob.size()},
                {"note", store.open_note()}};
  json sections = json::array();
  for (const SectionSpec& section : store.geometry().sections) {
    sections.push_back({{"name", section.name}, {"codec", section.codec}});
  }
  json groups = json::array();
  for (const DescribedGroup& group : description.groups) {
    groups.push_back(
        {{"name", group.name}, {"elements", group.elements}, {"blocks", group.blocks.size()}});
  }
  json tensors = json::array();
  for (const DescribedTensor* tensor : shown_tensors(findings, description)) {
    tensors.push_back({{"name", tensor->name},
                       {"group", description.groups[tensor->group].name},
                       {"shape", tensor->shape},
                       {"trainable", tensor->trainable}});
  }
  value["sections"] = sections;
  value["groups"] = groups;
  value["tensors"] = tensors;
  value["wear"] = wear_json(findings, store);
  value["trainer"] = json::parse(description.trainer_json, nullptr, false);
  if (findings.verified) {
    value["damaged"] = findings.scrub.damaged;
    value["damage"] = damage_json(findings);
  }
  if (findings.hash) value["hash"] = to_hex(*findings.hash);
  if (!findings.stats.empty()) value["stats"] = stats_json(findings);
  return value;
}

void print_store(const StoreReader& reader, Console& console) {
  const Store& store = reader.store();
  const StoreDescription& description = reader.description();
  console.data(fmt::format("store       {}", store.directories().text()));
  console.data(fmt::format("committed   step {}, {} updates", store.committed().step,
                           store.committed().updates));
  console.data(fmt::format("parameters  {} in {} tensors, {} groups, {} blocks",
                           description.parameters(), description.tensors.size(),
                           description.groups.size(), store.geometry().blocks.size()));
  console.data(fmt::format("file        {} in {} slots of {}", format_bytes(store.file_bytes()),
                           store.slot_count(), format_bytes(store.slot_bytes())));
  std::string sections;
  for (const SectionSpec& section : store.geometry().sections) {
    sections += fmt::format("{}{} ({})", sections.empty() ? "" : ", ", section.name, section.codec);
  }
  console.data(fmt::format("sections    {}", sections));
  console.data(fmt::format("trainer     {}", description.trainer_json));
  if (!store.open_note().empty()) console.data(fmt::format("note        {}", store.open_note()));
}

void print_wear(const Findings& findings, const Store& store, Console& console) {
  const std::uint64_t bytes = most_bytes_so_far(store);
  // What was counted is the better share.
  console.data(
      fmt::format("wear        at most {} a step, {} for the file and the {} steps to this state{}",
                  format_drive_bytes(most_bytes_per_step(store)), format_drive_bytes(bytes),
                  store.committed().step,
                  store.lifetime() ? "" : endurance_text(bytes, findings.endurance_bytes)));
  const auto show = [&](const std::string& line) {
    console.data(fmt::format("            {}", line));
  };
  if (const auto lifetime = store.lifetime()) {
    for (const std::string& line :
         lifetime_lines(*lifetime, store.directories().all(), findings.endurance_bytes)) {
      show(line);
    }
  } else {
    show("what was written in the store's life was not counted");
  }
  for (const std::string& line : wear_lines(findings.wear)) show(line);
}

void print_tensor(const DescribedTensor& tensor, const StoreDescription& description,
                  Console& console) {
  const std::vector<BlockPart> parts = parts_of(description, tensor);
  const std::size_t first = parts.empty() ? 0 : parts.front().block;
  const std::size_t last = parts.empty() ? 0 : parts.back().block;
  const std::string blocks =
      first == last ? fmt::format("block {}", first) : fmt::format("blocks {} to {}", first, last);
  console.data(fmt::format("tensor      {}: [{}], {}, {} of group \"{}\"", tensor.name,
                           fmt::join(tensor.shape, ", "), tensor.trainable ? "trainable" : "frozen",
                           blocks, description.groups[tensor.group].name));
}

void print_stats(const Findings& findings, Console& console) {
  std::size_t width = 6;
  for (const TensorFindings& found : findings.stats) {
    width = std::max(width, found.tensor->name.size());
  }
  console.data(fmt::format("{:<{}}  {:<7} {:>12} {:>12} {:>12} {:>12} {:>12} {:>10}", "tensor",
                           width, "section", "count", "min", "max", "mean", "rms", "not finite"));
  for (const TensorFindings& found : findings.stats) {
    for (const SectionStats& stats : found.stats) {
      const bool any = stats.count > stats.non_finite;
      const auto value = [any](double number) {
        return any ? fmt::format("{:.5g}", number) : std::string("-");
      };
      console.data(fmt::format("{:<{}}  {:<7} {:>12} {:>12} {:>12} {:>12} {:>12} {:>10}",
                               found.tensor->name, width, stats.section, stats.count,
                               value(stats.min), value(stats.max), value(stats.mean),
                               value(stats.rms), stats.non_finite));
    }
  }
}

void print_damage(const Findings& findings, const StoreReader& reader, Console& console) {
  console.data(findings.scrub.damaged == 0
                   ? std::string("verify      all committed bytes match their checksums")
                   : fmt::format("verify      {} damaged places", findings.scrub.damaged));
  const std::size_t shown = std::min(findings.damage.size(), kMaxShown);
  for (std::size_t i = 0; i < shown; ++i) {
    console.data(fmt::format("  {}", findings.damage[i].message));
  }
  if (findings.scrub.damaged > shown) {
    console.data(fmt::format("  and {} more; \"penstock scrub {}\" names all",
                             findings.scrub.damaged - shown,
                             fmt::join(reader.store().directories().all(), " ")));
  }
}

}  // namespace

void show_findings(const Findings& findings, const StoreReader& reader, Console& console) {
  if (console.json()) {
    console.data(json_line(to_json(findings, reader)));
    return;
  }
  print_store(reader, console);
  print_wear(findings, reader.store(), console);
  if (findings.only != nullptr) print_tensor(*findings.only, reader.description(), console);
  if (findings.verified) print_damage(findings, reader, console);
  if (findings.hash) console.data(fmt::format("hash        {}", to_hex(*findings.hash)));
  if (!findings.stats.empty()) print_stats(findings, console);
}

}  // namespace penstock
