#include "cli/store_export.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/section_cache.hpp"
#include "kernels/math/convert_bits.hpp"
#include "model/hf_config.hpp"
#include "model/safetensors.hpp"
#include "train/run_setup.hpp"

namespace penstock {
namespace {

constexpr int kAttempts = 5;                       // at one commit while a training goes on
constexpr std::size_t kPieceElements = 64 * 1024;  // converted at a time
constexpr std::size_t kMaxShards = 99'999;         // their names have five digits

/// A file of the export before it is written.
struct Shard {
  ExportFile file;
  std::string header;
  std::vector<const DescribedTensor*> tensors;
};

/// Everything that is known before the first byte is written.
struct ExportPlan {
  std::vector<Shard> shards;
  std::string index;   // text of model.safetensors.index.json; empty: none
  std::string config;  // text of config.json; empty: none
  std::uint64_t tensor_bytes = 0;
  std::uint64_t tensors = 0;

  [[nodiscard]] std::vector<ExportFile> files() const {
    std::vector<ExportFile> all;
    for (const Shard& shard : shards) all.push_back(shard.file);
    if (!config.empty()) all.push_back({"config.json", config.size()});
    if (!index.empty()) all.push_back({"model.safetensors.index.json", index.size()});
    return all;
  }
};

/// In the order of their bytes in the store, so that each block is read once.
std::vector<const DescribedTensor*> in_store_order(const StoreDescription& description) {
  std::vector<const DescribedTensor*> tensors;
  for (const DescribedTensor& tensor : description.tensors) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) {
    return std::tie(a->group, a->offset, a->name) < std::tie(b->group, b->offset, b->name);
  });
  return tensors;
}

std::string shard_name(const ExportOptions& options, std::size_t index, std::size_t count) {
  if (options.single_file) return std::filesystem::path(options.place).filename().string();
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

Result<Shard> make_shard(std::string name, std::vector<const DescribedTensor*> tensors, bool f32,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<safetensors::Tensor> described;
  for (const DescribedTensor* tensor : tensors) {
    described.push_back({tensor->name, f32 ? "F32" : "BF16", tensor->shape, 0, 0});
  }
  PENSTOCK_TAKE(header, safetensors::encode_header(metadata, described));
  Shard shard;
  const std::uint64_t data_bytes = described.empty() ? 0 : described.back().end;
  shard.file = {std::move(name), header.size() + data_bytes};
  shard.header = std::move(header);
  shard.tensors = std::move(tensors);
  return shard;
}

std::string make_index(const ExportPlan& plan) {
  nlohmann::json map = nlohmann::json::object();
  for (const Shard& shard : plan.shards) {
    for (const DescribedTensor* tensor : shard.tensors) map[tensor->name] = shard.file.name;
  }
  const nlohmann::json index = {{"metadata", {{"total_size", plan.tensor_bytes}}},
                                {"weight_map", map}};
  return index.dump(2) + "\n";
}

Result<ExportPlan> make_plan(const StoreReader& reader, const ExportOptions& options) {
  ExportPlan plan;
  const auto tensors = in_store_order(reader.description());
  std::vector<std::uint64_t> sizes;
  for (const DescribedTensor* tensor : tensors) {
    sizes.push_back(tensor->elements * (options.f32 ? 4 : 2));
    plan.tensor_bytes += sizes.back();
  }
  plan.tensors = tensors.size();
  const std::uint64_t limit = options.single_file ? ~std::uint64_t{0} : options.max_shard_bytes;
  const std::vector<std::size_t> counts = plan_shards(sizes, limit);
  if (counts.size() > kMaxShards) {
    return make_error(Errc::kArgument,
                      fmt::format("--max-shard {}: that makes {} files; give more bytes",
                                  options.max_shard_bytes, counts.size()));
  }
  // `penstock clean` knows a file that was not finished by the first of these.
  const std::map<std::string, std::string> metadata = {
      {"format", "pt"},
      {"penstock", "export"},
      {"penstock.step", fmt::format("{}", reader.step())},
      {"penstock.updates", fmt::format("{}", reader.store().committed().updates)}};
  std::size_t first = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto begin = tensors.begin() + static_cast<std::ptrdiff_t>(first);
    PENSTOCK_TAKE(shard, make_shard(shard_name(options, i, counts.size()),
                                    {begin, begin + static_cast<std::ptrdiff_t>(counts[i])},
                                    options.f32, metadata));
    plan.shards.push_back(std::move(shard));
    first += counts[i];
  }
  if (options.single_file) return plan;
  if (plan.shards.size() > 1) plan.index = make_index(plan);
  const auto run = read_stored_run(reader.store().geometry().description);
  if (run) plan.config = write_hf_config(run.value().config, options.f32 ? "float32" : "bfloat16");
  return plan;
}

/// Sections of the store that weights are read from.
struct WeightSections {
  std::size_t hi = 0;
  std::optional<std::size_t> lo;
};

Result<WeightSections> find_sections(const Store& store, bool f32) {
  const auto hi = find_section(store, "hi", "bf16"), lo = find_section(store, "lo", "i16");
  if (hi && (lo || !f32)) return WeightSections{*hi, lo};
  return make_error(Errc::kUnsupported,
                    fmt::format("the store {} does not keep its weights as hi (bf16) and lo (i16); "
                                "use a newer Penstock",
                                store.directory()));
}

/// Appends the weights of tensors to files.
class WeightWriter {
 public:
  WeightWriter(StoreReader& reader, const WeightSections& sections, bool f32,
               const std::atomic<bool>& stop, std::function<void(std::uint64_t)> wrote)
      : reader_(reader),
        hi_(reader, sections.hi),
        f32_(f32),
        stop_(stop),
        wrote_(std::move(wrote)),
        piece_(f32 ? kPieceElements : 0) {
    if (f32 && sections.lo) lo_.emplace(reader, *sections.lo);
  }

  Status append(const DescribedTensor& tensor, OutputFile& file) {
    for (const BlockPart& part : parts_of(reader_.description(), tensor)) {
      if (stop_.load(std::memory_order_relaxed)) {
        return make_error(Errc::kCancelled,
                          "stopped before the export was complete; nothing of it "
                          "was kept");
      }
      PENSTOCK_CHECK_OK(append_part(part, file));
    }
    return ok();
  }

 private:
  Status append_part(const BlockPart& part, OutputFile& file) {
    PENSTOCK_TAKE(hi, hi_.read(part));
    std::span<const std::byte> lo;
    if (f32_) {
      PENSTOCK_TAKE(low, lo_->read(part));
      lo = low;
    }
    // Frozen weights have no lo; everything else has as many bytes of it as of hi.
    if (hi.size() != part.elements * 2 || (!lo.empty() && lo.size() != hi.size())) {
      return make_error(Errc::kCorrupt, fmt::format("the store {}: {} does not hold 2 bytes of hi "
                                                    "and lo for each element",
                                                    reader_.store().directory(),
                                                    reader_.store().block_name(part.block)));
    }
    PENSTOCK_CHECK_OK(f32_ ? append_f32(hi, lo, file) : file.append(hi));
    wrote_(part.elements * (f32_ ? 4 : 2));
    return ok();
  }

  /// The exact master weights.
  Status append_f32(std::span<const std::byte> hi, std::span<const std::byte> lo,
                    OutputFile& file) {
    const std::size_t elements = hi.size() / 2;
    for (std::size_t first = 0; first < elements; first += kPieceElements) {
      const std::size_t count = std::min(kPieceElements, elements - first);
      for (std::size_t i = 0; i < count; ++i) {
        std::uint16_t high = 0;
        std::int16_t low = 0;
        std::memcpy(&high, hi.data() + 2 * (first + i), 2);
        if (!lo.empty()) std::memcpy(&low, lo.data() + 2 * (first + i), 2);
        piece_[i] = math::master_bits(high, low);
      }
      PENSTOCK_CHECK_OK(file.append(std::as_bytes(std::span(piece_).first(count))));
    }
    return ok();
  }

  StoreReader& reader_;
  SectionCache hi_;
  std::optional<SectionCache> lo_;
  bool f32_;
  const std::atomic<bool>& stop_;
  std::function<void(std::uint64_t)> wrote_;
  std::vector<std::uint32_t> piece_;
};

Status write_text(ExportTarget& target, const std::string& name, const std::string& text) {
  if (text.empty()) return ok();
  PENSTOCK_TAKE(file, target.create({name, text.size()}));
  PENSTOCK_CHECK_OK(file.append(text));
  return file.finish();
}

/// One try, of the commit that the reader is at.
Result<ExportResult> export_once(StoreReader& reader, const ExportOptions& options,
                                 const std::atomic<bool>& stop, const ExportProgress& progress) {
  PENSTOCK_TAKE(sections, find_sections(reader.store(), options.f32));
  PENSTOCK_TAKE(planned, make_plan(reader, options));
  const ExportPlan& plan = planned;
  ExportResult result;
  result.files = plan.files();
  PENSTOCK_TAKE(begun, ExportTarget::begin(options.place, options.single_file, result.files));
  ExportTarget& target = *begun;
  std::uint64_t done = 0;
  WeightWriter weights(reader, sections, options.f32, stop, [&](std::uint64_t bytes) {
    done += bytes;
    if (progress) progress(done, plan.tensor_bytes);
  });
  for (const Shard& shard : plan.shards) {
    PENSTOCK_TAKE(file, target.create(shard.file));
    PENSTOCK_CHECK_OK(file.append(shard.header));
    for (const DescribedTensor* tensor : shard.tensors) {
      PENSTOCK_CHECK_OK(weights.append(*tensor, file));
    }
    PENSTOCK_CHECK_OK(file.finish());
  }
  PENSTOCK_CHECK_OK(write_text(target, "config.json", plan.config));
  PENSTOCK_CHECK_OK(write_text(target, "model.safetensors.index.json", plan.index));
  PENSTOCK_CHECK_OK(target.publish());
  result.step = reader.step();
  result.updates = reader.store().committed().updates;
  result.tensors = plan.tensors;
  result.tensor_bytes = plan.tensor_bytes;
  result.has_config = !plan.config.empty();
  return result;
}

}  // namespace

std::vector<std::size_t> plan_shards(const std::vector<std::uint64_t>& tensor_bytes,
                                     std::uint64_t max_bytes) {
  std::vector<std::size_t> counts(1, 0);  // a model of no tensors is one empty file
  std::uint64_t used = 0;
  for (const std::uint64_t bytes : tensor_bytes) {
    if (counts.back() != 0 && (used > max_bytes || bytes > max_bytes - used)) {
      counts.push_back(0);
      used = 0;
    }
    ++counts.back();
    used += bytes;
  }
  return counts;
}

Result<ExportResult> export_store(StoreReader& reader, const ExportOptions& options,
                                  const std::atomic<bool>& stop, const ExportProgress& progress) {
  if (options.step && *options.step != reader.step()) {
    return make_error(Errc::kState, fmt::format("--step {}: {} of the store {} is of step {}; name "
                                                "that, or leave --step out",
                                                *options.step, reader.state_name(),
                                                reader.store().directory(), reader.step()));
  }
  ExportResult result;
  const Status done = reader.with_one_commit(options.step ? 1 : kAttempts, [&]() -> Status {
    PENSTOCK_TAKE(exported, export_once(reader, options, stop, progress));
    result = std::move(exported);
    return ok();
  });
  if (!done) return done.error();
  return result;
}

}  // namespace penstock
