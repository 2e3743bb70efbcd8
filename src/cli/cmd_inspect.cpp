#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/signals.hpp"
#include "cli/store_description.hpp"
#include "cli/store_hash.hpp"
#include "io/storage.hpp"
#include "io/store.hpp"
#include "io/store_verify.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxShown = 20;  // damaged tiles, in text

/// What was found out about a store; printed as text or JSON.
struct Findings {
  const Store* store = nullptr;
  StoreDescription description;
  bool verified = false;
  std::vector<BadTile> damage;
  std::optional<Hash128> hash;
};

std::string share(std::uint64_t done, std::uint64_t total) {
  return fmt::format("{} of {}", format_bytes(done), format_bytes(total));
}

json to_json(const Findings& findings) {
  const Store& store = *findings.store;
  json value = {{"schema", "penstock.inspect/1"},
                {"store", store.directory()},
                {"step", store.committed().step},
                {"updates", store.committed().updates},
                {"parameters", findings.description.parameters()},
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
  for (const DescribedGroup& group : findings.description.groups) {
    groups.push_back(
        {{"name", group.name}, {"elements", group.elements}, {"blocks", group.blocks.size()}});
  }
  json tensors = json::array();
  for (const DescribedTensor& tensor : findings.description.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"group", findings.description.groups[tensor.group].name},
                       {"shape", tensor.shape},
                       {"trainable", tensor.trainable}});
  }
  value["sections"] = sections;
  value["groups"] = groups;
  value["tensors"] = tensors;
  value["trainer"] = json::parse(findings.description.trainer_json, nullptr, false);
  if (findings.verified) {
    json damage = json::array();
    for (const BadTile& bad : findings.damage) {
      damage.push_back({{"block", bad.block},
                        {"section", store.geometry().sections[bad.section].name},
                        {"offset_bytes", bad.offset_bytes},
                        {"message", bad.message}});
    }
    value["damage"] = damage;
  }
  if (findings.hash) value["hash"] = to_hex(*findings.hash);
  return value;
}

void print_text(const Findings& findings, Console& console) {
  const Store& store = *findings.store;
  console.data(fmt::format("store       {}", store.directory()));
  console.data(fmt::format("committed   step {}, {} updates", store.committed().step,
                           store.committed().updates));
  console.data(fmt::format("parameters  {} in {} tensors, {} groups, {} blocks",
                           findings.description.parameters(), findings.description.tensors.size(),
                           findings.description.groups.size(), store.geometry().blocks.size()));
  console.data(fmt::format("file        {} in {} slots of {}", format_bytes(store.file_bytes()),
                           store.slot_count(), format_bytes(store.slot_bytes())));
  std::string sections;
  for (const SectionSpec& section : store.geometry().sections) {
    sections += fmt::format("{}{} ({})", sections.empty() ? "" : ", ", section.name, section.codec);
  }
  console.data(fmt::format("sections    {}", sections));
  console.data(fmt::format("trainer     {}", findings.description.trainer_json));
  if (!store.open_note().empty()) console.data(fmt::format("note        {}", store.open_note()));
  if (findings.verified) {
    console.data(findings.damage.empty()
                     ? std::string("verify      all committed bytes match their checksums")
                     : fmt::format("verify      {} damaged places", findings.damage.size()));
    for (std::size_t i = 0; i < findings.damage.size() && i < kMaxShown; ++i) {
      console.data(fmt::format("  {}", findings.damage[i].message));
    }
    if (findings.damage.size() > kMaxShown) {
      console.data(
          fmt::format("  and {} more; --json lists all", findings.damage.size() - kMaxShown));
    }
  }
  if (findings.hash) console.data(fmt::format("hash        {}", to_hex(*findings.hash)));
}

class InspectCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "inspect"; }
  [[nodiscard]] std::string summary() const override {
    return "What a store holds, whether it is whole, and its hash";
  }

  void declare(Flags& flags) override {
    flags.argument("STORE", directory_, "Directory of the store");
    flags.on("--verify", verify_, "Read everything and compare it with its checksums");
    flags.on("--hash", hash_, "One hash of weights, moments and trainer state");
  }

  Result<ExitCode> run(Console& console) override {
    PENSTOCK_CHECK_OK(check_directory());
    const std::unique_ptr<Storage> storage = make_posix_storage();
    auto store = open_store(*storage, directory_, StoreOptions{}, /*writable=*/false);
    if (!store) return std::move(store).error();
    Findings findings;
    findings.store = store.value().get();
    auto description = read_description(*store.value());
    if (!description) return std::move(description).error();
    findings.description = std::move(description).value();

    const Status looked = look_inside(*store.value(), findings, console);
    if (!looked) return looked.error();
    console.finish_live();
    if (console.json()) {
      console.data(to_json(findings).dump(-1, ' ', false, json::error_handler_t::replace));
    } else {
      print_text(findings, console);
    }
    if (findings.damage.empty()) return ExitCode::kOk;
    console.error(
        fmt::format("the store {} is damaged in {} places; restore a checkpoint or train "
                    "anew",
                    directory_, findings.damage.size()));
    return ExitCode::kFailed;
  }

 private:
  [[nodiscard]] Status check_directory() const {
    struct stat info {};
    const bool found = ::stat(directory_.c_str(), &info) == 0;
    if (found && S_ISDIR(info.st_mode)) return ok();
    const int error = found ? ENOTDIR : errno;
    return make_error(Errc::kArgument,
                      fmt::format("cannot open the store {}: {}; name the directory that was given "
                                  "to train --store",
                                  directory_, std::generic_category().message(error)),
                      error);
  }

  Status look_inside(Store& store, Findings& findings, Console& console) const {
    // Progress is for people who wait: nothing is said where nobody watches.
    const auto show = [&console](const char* what, std::uint64_t done, std::uint64_t total) {
      if (console.is_live()) console.live(fmt::format("{} {}", what, share(done, total)));
    };
    if (verify_) {
      auto damage = verify_store(store, [&show](std::uint64_t done, std::uint64_t total) {
        show("verified", done, total);
      });
      if (!damage) return std::move(damage).error();
      findings.damage = std::move(damage).value();
      findings.verified = true;
    }
    if (hash_) {
      auto hash = hash_store(
          store, findings.description, stop_requested(),
          [&show](std::uint64_t done, std::uint64_t total) { show("hashed", done, total); });
      if (!hash) return std::move(hash).error();
      findings.hash = hash.value();
    }
    return ok();
  }

  std::string directory_;
  bool verify_ = false;
  bool hash_ = false;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command() {
  return std::make_unique<InspectCommand>();
}

}  // namespace penstock
