#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/clean.hpp"
#include "cli/command.hpp"
#include "cli/json_line.hpp"

namespace penstock {
namespace {

using nlohmann::json;

std::string_view kind_name(LeftoverKind kind) {
  switch (kind) {
    case LeftoverKind::kUnfinishedStore:
      return "unfinished store";
    case LeftoverKind::kUnfinishedCommit:
      return "unfinished commit";
    case LeftoverKind::kUnfinishedExport:
      return "unfinished export";
    case LeftoverKind::kStore:
      return "store";
    case LeftoverKind::kDamagedStore:
      return "damaged store";
  }
  return "store";
}

std::size_t file_count(const Leftover& leftover) {
  std::size_t count = 0;
  for (const LeftoverPart& part : leftover.parts) count += part.entries.size();
  return count;
}

json to_json(const Leftover& leftover, bool removed) {
  json files = json::array();
  for (const LeftoverPart& part : leftover.parts) {
    for (const Directory::Entry& entry : part.entries) {
      files.push_back(part.directory->path() + "/" + entry.name);
    }
  }
  return {{"kind", kind_name(leftover.kind)},
          {"path", leftover.path},
          {"bytes", leftover.bytes},
          {"files", files},
          {"removable", leftover.removable},
          {"removed", removed},
          {"why", leftover.why}};
}

class CleanCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "clean"; }
  [[nodiscard]] std::string summary() const override {
    return "Remove what killed programs left behind";
  }
  [[nodiscard]] std::string example() const override {
    return "Examples: penstock clean /mnt/nvme0          shows what would go\n"
           "          penstock clean /mnt/nvme0 --yes    removes it\n"
           "Looks at the directories and those in them. Only files that Penstock made and that\n"
           "nobody uses are removed; links are not followed.";
  }

  void declare(Flags& flags) override {
    flags.arguments("DIR", paths_, "Directories to look at, and the directories in them");
    flags.on("--yes", yes_, "Remove what is shown");
    flags.on("--stores", options_.stores, "Whole stores too: all that a training has made");
  }

  Result<ExitCode> run(Console& console) override {
    PENSTOCK_TAKE(found, find_leftovers(paths_, options_));
    json items = json::array();
    std::uint64_t bytes = 0;
    std::size_t removable = 0;
    Status status = ok();
    for (const Leftover& leftover : found) {
      bool removed = false;
      if (leftover.removable && yes_ && status) {
        status = remove_leftover(leftover);
        removed = status.ok();
      }
      if (leftover.removable) {
        ++removable;
        bytes += leftover.bytes;
      }
      items.push_back(to_json(leftover, removed));
      if (!console.json()) show(console, leftover, removed);
    }
    if (console.json()) {
      const json value = {
          {"schema", "penstock.clean/1"}, {"items", items}, {"bytes", bytes}, {"removed", yes_}};
      console.data(json_line(value));
    } else {
      summarize(console, removable, bytes);
    }
    if (!status) return status.error();
    return ExitCode::kOk;
  }

 private:
  void show(Console& console, const Leftover& leftover, bool removed) const {
    const char* action = removed ? "removed" : leftover.removable ? "to remove" : "stays";
    console.data(fmt::format("{:<9}  {:<17}  {:>11}  {} ({} files): {}", action,
                             kind_name(leftover.kind), format_bytes(leftover.bytes), leftover.path,
                             file_count(leftover), leftover.why));
  }

  void summarize(Console& console, std::size_t removable, std::uint64_t bytes) const {
    if (removable == 0) {
      console.data("nothing to remove");
    } else if (!yes_) {
      console.data(fmt::format("{} in {} finds; nothing was removed, --yes removes them",
                               format_bytes(bytes), removable));
    }
  }

  std::vector<std::string> paths_;
  CleanOptions options_;
  bool yes_ = false;
};

}  // namespace

std::unique_ptr<Command> make_clean_command() {
  return std::make_unique<CleanCommand>();
}

}  // namespace penstock
