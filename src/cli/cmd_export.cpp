#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/json_line.hpp"
#include "cli/signals.hpp"
#include "cli/store_export.hpp"
#include "cli/store_reader.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::string_view kFileSuffix = ".safetensors";

class ExportCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "export"; }
  [[nodiscard]] std::string summary() const override {
    return "Write the weights in a store as safetensors";
  }
  [[nodiscard]] std::string example() const override {
    return "Examples: penstock export run1 --out model\n"
           "          penstock export run1 --out model.safetensors --dtype f32\n"
           "Works while a training runs. Nothing is written over.";
  }

  void declare(Flags& flags) override {
    flags.arguments("STORE", stores_, kStoreHelp);
    flags.text("--out", options_.place,
               "Directory that is made, or a file if it ends in .safetensors (required)", "PLACE");
    flags.choice(
        "--dtype", {"bf16", "f32"}, [this](std::size_t index) { options_.f32 = index == 1; },
        "Type of the weights: as the model reads them (default), or exact");
    flags.custom(
        "--max-shard", "SIZE", [this](const std::string& value) { return take_shard(value); },
        "Largest safetensors file in a directory, by its tensors (default 5GB)");
    flags.text("--checkpoint", checkpoint_,
               "This checkpoint instead of the last commit; no training overtakes it", "NAME");
    flags.custom(
        "--step", "committed|N", [this](const std::string& value) { return take_step(value); },
        "Only if this is the step of the state that is written (default: whichever it is)");
  }

  Result<ExitCode> run(Console& console) override {
    PENSTOCK_CHECK_OK(finish_options());
    PENSTOCK_CHECK_OK(check_store_directories(stores_));
    const std::unique_ptr<Storage> storage = make_posix_storage();
    PENSTOCK_TAKE(opened, StoreReader::open(*storage, stores_, checkpoint_));
    StoreReader& reader = *opened;
    if (!reader.store().open_note().empty()) console.warn(reader.store().open_note());
    auto exported = export_store(
        reader, options_, stop_requested(), [&console](std::uint64_t done, std::uint64_t total) {
          if (!console.is_live()) return;
          console.live(fmt::format("wrote {} of {}", format_bytes(done), format_bytes(total)));
        });
    if (!exported) return std::move(exported).error();
    console.finish_live();
    report(console, exported.value());
    return ExitCode::kOk;
  }

 private:
  Status take_shard(const std::string& value) {
    auto bytes = parse_bytes(value);
    if (!bytes) return std::move(bytes).error().in("--max-shard");
    if (bytes.value() == 0) {
      return make_error(Errc::kArgument, "--max-shard 0: a file of no bytes holds nothing");
    }
    options_.max_shard_bytes = bytes.value();
    shard_given_ = true;
    return ok();
  }

  Status take_step(const std::string& value) {
    options_.step.reset();
    if (value == "committed") return ok();
    std::uint64_t step = 0;
    const char* end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, step);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      return make_error(Errc::kArgument,
                        fmt::format("--step \"{}\" is neither \"committed\" nor a number", value));
    }
    options_.step = step;
    return ok();
  }

  Status finish_options() {
    if (options_.place.empty()) {
      return make_error(Errc::kArgument, fmt::format("--out is missing; name a directory to make, "
                                                     "for example: penstock export {} --out model",
                                                     fmt::join(stores_, " ")));
    }
    options_.single_file = options_.place.ends_with(kFileSuffix);
    if (options_.single_file && shard_given_) {
      return make_error(Errc::kArgument,
                        fmt::format("--max-shard: {} is one file; name a directory to get several",
                                    options_.place));
    }
    return ok();
  }

  void report(Console& console, const ExportResult& result) const {
    if (console.json()) {
      json files = json::array();
      for (const ExportFile& file : result.files) {
        files.push_back({{"name", file.name}, {"bytes", file.bytes}});
      }
      const json value = {{"schema", "penstock.export/1"},
                          {"store", StoreDirectories(stores_).text()},
                          {"out", options_.place},
                          {"single_file", options_.single_file},
                          {"checkpoint", checkpoint_.empty() ? json() : json(checkpoint_)},
                          {"step", result.step},
                          {"updates", result.updates},
                          {"dtype", options_.f32 ? "f32" : "bf16"},
                          {"tensors", result.tensors},
                          {"tensor_bytes", result.tensor_bytes},
                          {"files", files}};
      console.data(json_line(value));
      return;
    }
    console.data(fmt::format("step {} of {}: {} tensors, {} as {}, in {}", result.step,
                             StoreDirectories(stores_).text(), result.tensors,
                             format_bytes(result.tensor_bytes), options_.f32 ? "f32" : "bf16",
                             options_.place));
    if (options_.single_file) return;
    for (const ExportFile& file : result.files) {
      console.data(fmt::format("  {}  {}", file.name, format_bytes(file.bytes)));
    }
    if (!result.has_config) {
      console.note("the store was not made by penstock train, so there is no config.json");
    }
  }

  std::vector<std::string> stores_;
  std::string checkpoint_;
  ExportOptions options_;
  bool shard_given_ = false;
};

}  // namespace

std::unique_ptr<Command> make_export_command() {
  return std::make_unique<ExportCommand>();
}

}  // namespace penstock
