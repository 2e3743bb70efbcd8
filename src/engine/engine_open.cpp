// From options and a model to a running engine: store, plan, arena, first versions.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/checksum.hpp"
#include "base/random.hpp"
#include "base/units.hpp"
#include "engine/engine_impl.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kDrainNs = 130'000'000'000;
/// First values are made in pieces of this many elements, each a function of its elements only.
constexpr std::uint32_t kFillPiece = 4096;

}  // namespace

EngineImpl::EngineImpl(const EngineParts& parts, const EngineOptions& options,
                       const ModelSpec& model)
    : parts_(parts),
      options_(options),
      model_(model),
      kernels_(optimizer_kernels(options.isa)),
      policy_(options.isa) {}

EngineImpl::~EngineImpl() {
  {
    const Lock lock(mutex_);
    closing_ = true;
  }
  if (queue_) (void)queue_->drop_queued();
  const std::uint64_t start = parts_.now_ns();
  if (parts_.executor.driven_by_caller()) {
    const auto busy = [&] {
      const Lock lock(mutex_);
      return tasks_in_flight_ > 0 || (queue_ && queue_->stats().in_flight_requests > 0);
    };
    while (busy() && parts_.executor.run_one()) {
    }
  } else {
    Lock lock(mutex_);
    while (tasks_in_flight_ > 0 && parts_.now_ns() - start < kDrainNs) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
  }
  queue_.reset();  // waits for the drive; what outlives the wait stays the kernel's
}

// --- store and plan --------------------------------------------------------------------------

Status EngineImpl::plan_for(std::uint32_t block_elements) {
  EngineOptions options = options_;
  options.block_elements = block_elements;
  PENSTOCK_TAKE(plan, make_plan(make_plan_request(options, model_, layout_)));
  plan_ = std::move(plan);
  layout_.cut(plan_);
  return ok();
}

Status EngineImpl::open_store_and_plan() {
  const StoreOptions store_options{options_.scratch, options_.faults, StoreOptions{}.lock_wait_ns,
                                   options_.uuid_seed};
  bool resume = false;
  if (!options_.scratch) {
    PENSTOCK_TAKE(found, holds_commit(parts_.storage, options_.directory));
    if (options_.mode == OpenMode::kResume && !found) {
      return make_error(
          Errc::kState,
          fmt::format("{} holds no committed store; start without resuming", options_.directory));
    }
    resume = found;
  }
  if (!resume) {
    PENSTOCK_CHECK_OK(plan_for(options_.block_elements));
    const StoreGeometry geometry =
        make_geometry(model_, plan_, describe_model(options_, model_, layout_, plan_),
                      layout_hash(model_, layout_));
    PENSTOCK_TAKE(store, create_store(parts_.storage, options_.directory, geometry, store_options));
    store_ = std::move(store);
    return ok();
  }
  if (options_.mode == OpenMode::kCreate) {
    return make_error(Errc::kState,
                      fmt::format("{} already holds a store; resume it or choose another "
                                  "directory",
                                  options_.directory));
  }
  PENSTOCK_TAKE(store, open_store(parts_.storage, options_.directory, store_options, true));
  store_ = std::move(store);
  resumed_ = true;
  const std::string& description = store_->geometry().description;
  PENSTOCK_CHECK_OK(compare_model(description, options_.directory, model_, layout_));
  PENSTOCK_CHECK_OK(compare_trainer(description, options_.directory, options_.description_json));
  PENSTOCK_TAKE(block_elements, block_elements_of(description, options_.directory));
  PENSTOCK_CHECK_OK(plan_for(block_elements));
  if (plan_.blocks.size() != store_->geometry().blocks.size() ||
      store_->geometry().layout_hash != layout_hash(model_, layout_)) {
    return make_error(
        Errc::kState,
        fmt::format("the store in {} was laid out for another model; use the model it "
                    "was made with or another directory",
                    options_.directory));
  }
  return ok();
}

// --- memory ----------------------------------------------------------------------------------

Status EngineImpl::allocate() {
  budget_ = std::make_unique<ByteBudget>("host", options_.host_bytes);
  const PlanRequest request = make_plan_request(options_, model_, layout_);
  const std::uint64_t tables = request.table_bytes - kHugePageBytes;
  PENSTOCK_TAKE(reserved, budget_->take("engine tables", tables));
  tables_ = std::move(reserved);
  const std::uint64_t bytes = plan_.host_bytes - request.table_bytes;
  PENSTOCK_TAKE(arena, Arena::create(*budget_, "frames", bytes));
  arena_ = std::make_unique<Arena>(std::move(arena));
  if (!arena_->note().empty()) {
    PENSTOCK_LOG(parts_.logger, LogLevel::kWarning, "memory: {}", arena_->note());
  }
  PENSTOCK_CHECK_OK(cut_arena());
  allocate_tables();
  return ok();
}

Status EngineImpl::cut_arena() {
  const auto cut = [&](std::vector<Frame>& into, std::size_t count, const char* name,
                       auto bytes) -> Status {
    for (std::size_t i = 0; i < count; ++i) {
      PENSTOCK_TAKE(frame, arena_->frame(name, bytes(i)));
      into.push_back(frame);
    }
    return ok();
  };
  PENSTOCK_CHECK_OK(cut(frames_.hi, plan_.hi_frames.size(), "hi",
                        [&](std::size_t i) { return plan_.hi_frames[i].bytes; }));
  PENSTOCK_CHECK_OK(cut(frames_.state, plan_.stream_state_frames + plan_.pinned_state_frames,
                        "lo, m, v", [&](std::size_t) { return plan_.state_frame_bytes; }));
  PENSTOCK_CHECK_OK(cut(frames_.gradient,
                        plan_.stage_gradient_frames + plan_.pinned_gradient_frames, "gradient",
                        [&](std::size_t) { return plan_.gradient_frame_bytes; }));
  frames_.accumulators.resize(model_.tensors.size());
  for (TensorId t = 0; t < model_.tensors.size(); ++t) {
    if (model_.tensors[t].contributions <= 1) continue;
    PENSTOCK_TAKE(frame, arena_->frame("accumulator", tensor_elements(t) * sizeof(float)));
    frames_.accumulators[t] = frame;
  }
  if (plan_.workspace_bytes > 0) {
    PENSTOCK_TAKE(workspace, arena_->frame("workspace", plan_.workspace_bytes));
    frames_.workspace = workspace;
  }
  return ok();
}

void EngineImpl::allocate_tables() {
  const std::size_t blocks = plan_.blocks.size(), tensors = model_.tensors.size();
  std::uint64_t tiles = 0, largest = 0;
  std::uint64_t largest_state = 0, largest_gradient = 0;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    first_tile_.push_back(tiles);
    const auto& extents = store_->extents(b);
    tiles += extents[kHiSection].tiles;
    const SectionExtent& last = extents[kVSection];
    largest_state = std::max(largest_state,
                             last.sums_offset + last.sums_bytes - extents[kLoSection].data_offset);
    largest_gradient = std::max(largest_gradient,
                                round_up(std::uint64_t{plan_.blocks[b].elements} * 2, kPageBytes));
  }
  rest_bytes_ = largest_state;
  staging_offset_ = rest_bytes_ + (plan_.spill_count > 0 ? largest_gradient : 0);
  for (TensorId t = 0; t < tensors; ++t) largest = std::max(largest, tensor_elements(t));
  operations_.resize(blocks * 4 + 16);
  for (std::size_t i = operations_.size(); i > 0; --i) {
    free_operations_.push_back(static_cast<std::uint32_t>(i - 1));
  }
  state_frame_of_.assign(blocks, 0);
  rest_unverified_.assign(blocks, 0);
  tile_failed_.assign(tiles, 0);
  spill_sums_.assign(tiles, 0);
  record_gradient_.assign(tensors, 0);
  has_gradient_.assign(tensors, 0);
  contributions_.assign(tensors, 0);
  acquired_step_.assign(plan_.groups.size(), 0);
  waited_updates_.assign(tensors, 0);
  tensor_updates_.assign(tensors, 0);
  ranges_left_.assign(blocks, 0);
  tensor_norm_.assign(tensors, {});
  norm_parts_.assign(largest / kNormBlock + 1, {});
  commit_record_.blob.reserve(4096);
  last_blob_.reserve(4096);
}

// --- first versions --------------------------------------------------------------------------

void EngineImpl::fill_piece(const Range& range, std::uint32_t at, std::uint32_t count,
                            float* out) const {
  const TensorSpec& tensor = model_.tensors[range.tensor];
  const std::uint64_t first = range.first_in_tensor + at;
  const auto* bytes = static_cast<const std::byte*>(tensor.weights);
  switch (tensor.init.kind) {
    case Init::Kind::kZeros:
      std::fill(out, out + count, 0.0F);
      break;
    case Init::Kind::kConstant:
      std::fill(out, out + count, tensor.init.constant);
      break;
    case Init::Kind::kNormal: {
      const std::uint64_t stream = hash_name(tensor.name);
      for (std::uint32_t i = 0; i < count; ++i) {
        out[i] = tensor.init.deviation * approximately_normal(options_.seed, stream, first + i);
      }
      break;
    }
    case Init::Kind::kValues:
      tensor.init.values(first, count, out);
      break;
    case Init::Kind::kWeights:
      if (tensor.weight_type == WeightType::kF32) {
        std::memcpy(out, bytes + first * 4, std::size_t{count} * 4);
      } else {
        const auto* half = reinterpret_cast<const std::uint16_t*>(bytes) + first;
        const bool bf16 = tensor.weight_type == WeightType::kBf16;
        (bf16 ? kernels_.bf16_to_f32 : kernels_.f16_to_f32)(count, half, out);
      }
      break;
  }
}

/// hi and lo of a block's first version; between tensors everything is zero.
void EngineImpl::fill_block(std::uint32_t block) {
  const bool trainable = group_of(block).trainable;
  auto* hi = reinterpret_cast<std::uint16_t*>(section_data(block, kHiSection));
  std::memset(hi, 0, std::size_t{plan_.blocks[block].elements} * kHiBytes);
  auto* lo =
      trainable ? reinterpret_cast<std::uint16_t*>(section_data(block, kLoSection)) : nullptr;
  if (trainable) {
    for (std::size_t s = kLoSection; s < kSectionCount; ++s) {
      std::memset(section_data(block, s), 0, store_->extents(block)[s].data_bytes);
    }
  }
  for (const Range& range : layout_.block_ranges(block)) {
    const auto fill = [&](std::size_t piece) {
      float master[kFillPiece];
      std::uint16_t dropped[kFillPiece];
      const auto at = static_cast<std::uint32_t>(piece) * kFillPiece;
      const std::uint32_t count = std::min(kFillPiece, range.elements - at);
      fill_piece(range, at, count, master);
      const std::size_t to = range.first_in_block + at;
      kernels_.split(count, master, hi + to, lo != nullptr ? lo + to : dropped);
    };
    const std::size_t pieces = (range.elements + kFillPiece - 1) / kFillPiece;
    if (model_.tensors[range.tensor].init.kind == Init::Kind::kValues) {
      for (std::size_t i = 0; i < pieces; ++i) fill(i);  // the caller's function: one thread
    } else {
      parts_.executor.parallel_for(pieces, fill);
    }
  }
}

Status EngineImpl::write_first_version(std::uint32_t block) {
  const BlockPlan& plan = plan_.blocks[block];
  const GroupPlan& group = group_of(block);
  state_frame_of_[block] = plan.state_pinned ? plan.state_frame : 0;
  fill_block(block);
  const auto& extents = store_->extents(block);
  const std::size_t sections = group.trainable ? kSectionCount : 1;
  parts_.executor.parallel_for(extents[kHiSection].tiles, [&](std::size_t tile) {
    for (std::size_t s = 0; s < sections; ++s) {
      sum_tile(block, 0, s, static_cast<std::uint32_t>(tile));
    }
  });
  const SlotIndex slot = table_->choose_target(block, 0);
  const DriveExtent where = store_->slot(slot);
  std::uint64_t roots[kSectionCount] = {};
  for (std::size_t s = 0; s < sections; ++s) roots[s] = root_of(block, 0, s);
  const auto write = [&](std::uint64_t offset, const void* memory, std::uint64_t bytes) {
    counters_.add(Link::kDriveWrite, TensorClass::kOther, TrafficKind::kInitial, bytes);
    return parts_.storage.write_at(where.file, where.offset_bytes + offset,
                                   {static_cast<const std::byte*>(memory), bytes});
  };
  const SectionExtent& hi = extents[kHiSection];
  PENSTOCK_CHECK_OK(write(hi.data_offset, section_data(block, kHiSection), hi.padded_bytes));
  PENSTOCK_CHECK_OK(write(hi.sums_offset, section_sums(block, kHiSection), hi.sums_bytes));
  if (group.trainable) {
    const SectionExtent& last = extents[kVSection];
    const std::uint64_t first = extents[kLoSection].data_offset;
    PENSTOCK_CHECK_OK(write(first, state_base(block), last.sums_offset + last.sums_bytes - first));
  }
  for (std::size_t s = 0; s < sections; ++s) table_->landed(block, 0, slot, s, roots[s]);
  return ok();
}

Status EngineImpl::write_first_versions() {
  for (std::uint32_t b = 0; b < plan_.blocks.size(); ++b) {
    PENSTOCK_CHECK_OK(write_first_version(b));
  }
  if (options_.scratch) return ok();
  table_->commit_begin();
  for (std::uint32_t b = 0; b < plan_.blocks.size(); ++b) table_->commit_record(b);
  PENSTOCK_CHECK_OK(store_->commit(CommitRecord{}, table_->commit_entries()));
  table_->commit_finished();
  return ok();
}

// --- level 1: the trainer's arrays -----------------------------------------------------------

Status EngineImpl::hand_out(const Range& range, std::span<std::byte> bounce) {
  const TensorSpec& tensor = model_.tensors[range.tensor];
  const auto& extents = store_->extents(range.block);
  const SlotEntry& entry = table_->entry(range.block);
  const std::uint64_t hi_bytes = extents[kHiSection].total_bytes();
  PENSTOCK_CHECK_OK(store_->read_section(range.block, kHiSection, entry, bounce.first(hi_bytes)));
  const auto* hi = reinterpret_cast<const std::uint16_t*>(bounce.data()) + range.first_in_block;
  if (tensor.weight_type == WeightType::kBf16) {
    std::memcpy(static_cast<std::uint16_t*>(tensor.weights) + range.first_in_tensor, hi,
                std::size_t{range.elements} * kHiBytes);
    return ok();
  }
  std::vector<std::uint16_t> zeros(tensor.trainable ? 0 : range.elements);
  const std::uint16_t* lo = zeros.data();
  if (tensor.trainable) {
    const auto rest = bounce.subspan(hi_bytes, extents[kLoSection].total_bytes());
    PENSTOCK_CHECK_OK(store_->read_section(range.block, kLoSection, entry, rest));
    lo = reinterpret_cast<const std::uint16_t*>(rest.data()) + range.first_in_block;
  }
  std::vector<float> master(range.elements);
  kernels_.join(range.elements, hi, lo, master.data());
  if (tensor.weight_type == WeightType::kF32) {
    std::copy(master.begin(), master.end(),
              static_cast<float*>(tensor.weights) + range.first_in_tensor);
  } else {
    kernels_.f32_to_f16(range.elements, master.data(),
                        static_cast<std::uint16_t*>(tensor.weights) + range.first_in_tensor);
  }
  return ok();
}

Status EngineImpl::hand_out_weights() {
  if (model_.level != Level::kStates) return ok();
  std::vector<std::byte> memory;
  for (TensorId t = 0; t < model_.tensors.size(); ++t) {
    const TensorSpec& tensor = model_.tensors[t];
    const bool has_them = !resumed_ && tensor.init.kind == Init::Kind::kWeights;
    if (tensor.weights == nullptr || has_them) continue;
    for (const Range& range : layout_.tensor_ranges(t)) {
      const auto& extents = store_->extents(range.block);
      memory.resize(extents[kHiSection].total_bytes() + extents[kLoSection].total_bytes() +
                    kPageBytes);
      const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
      const std::size_t skip = round_up(address, kPageBytes) - address;
      PENSTOCK_CHECK_OK(hand_out(range, std::span(memory).subspan(skip)));
    }
  }
  return ok();
}

/// Rates of the drive, on spill extents (whose content does not outlive a step) and the frames,
/// which hold nothing yet.
Status EngineImpl::measure() {
  constexpr std::uint64_t kLargestRegion = 256 * kMiB, kSmallestRegion = 8 * kMiB;
  const std::size_t spills = store_->geometry().spill_bytes.size();
  if (options_.measure_drive_seconds <= 0.0 || spills == 0) return ok();
  const DriveExtent first = store_->spill(0), last = store_->spill(spills - 1);
  const std::uint64_t region =
      std::min(kLargestRegion, (last.offset_bytes - first.offset_bytes) / kMiB * kMiB);
  const std::uint64_t memory =
      std::min<std::uint64_t>(8 * kMiB, plan_.host_bytes / 2 / kMiB * kMiB);
  if (region < kSmallestRegion || arena_->bytes() < memory) return ok();
  PENSTOCK_TAKE(rates, measure_drive(parts_.storage, first.file, first.offset_bytes, region,
                                     {arena_->data(), memory}, options_.measure_drive_seconds));
  drive_rates_ = rates;
  std::memset(arena_->data(), 0, memory);
  return ok();
}

// --- open ------------------------------------------------------------------------------------

Status EngineImpl::start() {
  store_->set_block_namer([this](std::size_t block) { return block_name(block); });
  table_ = std::make_unique<SlotTable>(store_->make_table());
  if (resumed_) {
    const CommitRecord& record = store_->committed();
    step_ = committed_step_ = record.step;
    updates_ = record.updates;
    opened_blob_ = last_blob_ = record.blob;
  } else {
    PENSTOCK_CHECK_OK(write_first_versions());
  }
  PENSTOCK_CHECK_OK(hand_out_weights());
  PENSTOCK_CHECK_OK(measure());
  std::vector<std::uint64_t> versions(plan_.blocks.size());
  for (std::size_t b = 0; b < versions.size(); ++b) versions[b] = table_->entry(b).version;
  scheduler_ = std::make_unique<Scheduler>(plan_, *table_, versions);
  scheduler_->set_sweep(model_.level == Level::kStates);
  last_commit_ns_ = parts_.now_ns();
  PENSTOCK_TAKE(queue, parts_.storage.make_queue(*this, options_.queue));
  queue_ = std::move(queue);
  if (!store_->open_note().empty()) {  // an older commit was taken: never without a word
    PENSTOCK_LOG(parts_.logger, LogLevel::kWarning, "{}: {}", options_.directory,
                 store_->open_note());
  }
  PENSTOCK_LOG(parts_.logger, LogLevel::kInfo, "plan: {}", describe(plan_));
  PENSTOCK_LOG(parts_.logger, LogLevel::kInfo, "storage queue: {} ({})", queue_->backend(),
               queue_->backend_reason());
  return ok();
}

Status EngineImpl::open() {
  PENSTOCK_TAKE(layout, Layout::make(model_));
  layout_ = std::move(layout);
  PENSTOCK_CHECK_OK(open_store_and_plan());
  PENSTOCK_CHECK_OK(allocate());
  return start();
}

Result<std::unique_ptr<Engine>> EngineImpl::make(const EngineParts& parts,
                                                 const EngineOptions& options,
                                                 const ModelSpec& model) {
  std::unique_ptr<EngineImpl> engine(new EngineImpl(parts, options, model));
  PENSTOCK_CHECK_OK(engine->open());
  return std::unique_ptr<Engine>(std::move(engine));
}

Result<std::unique_ptr<Engine>> make_engine(const EngineParts& parts, const EngineOptions& options,
                                            const ModelSpec& model) {
  try {  // the JSON library and allocations throw
    return EngineImpl::make(parts, options, model);
  } catch (const std::bad_alloc&) {
    return make_error(
        Errc::kNoMemory,
        fmt::format("out of memory while opening the store in {}; free some", options.directory));
  } catch (const std::exception& exception) {
    return make_error(Errc::kCorrupt,
                      fmt::format("the store in {} cannot be opened: {}; restore a checkpoint",
                                  options.directory, exception.what()));
  }
}

Result<Plan> preview_plan(const EngineOptions& options, const ModelSpec& model) {
  PENSTOCK_TAKE(layout, Layout::make(model));
  return make_plan(make_plan_request(options, model, layout));
}

Result<std::uint64_t> minimum_host_bytes(const EngineOptions& options, const ModelSpec& model) {
  PENSTOCK_TAKE(layout, Layout::make(model));
  PlanRequest request = make_plan_request(options, model, layout);
  request.host_bytes = ~std::uint64_t{0};
  PENSTOCK_TAKE(plan, make_plan(request));
  return plan.minimum_bytes;
}

}  // namespace penstock
