// From options and a model to a running engine: store, plan, arena. Values are in
// engine_values.cpp.

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

void EngineImpl::operator delete(EngineImpl* engine, std::destroying_delete_t) noexcept {
  if (!engine->home_.is_here()) return;
  engine->~EngineImpl();
  ::operator delete(engine);
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

Status EngineImpl::create_new(const StoreDirectories& directories, StoreOptions options) {
  PENSTOCK_CHECK_OK(plan_for(options_.block_elements));
  StoreGeometry geometry =
      make_geometry(model_, plan_, describe_model(options_, model_, layout_, plan_),
                    layout_hash(model_, layout_));
  geometry.pins = options_.scratch ? 0 : options_.checkpoints;
  PENSTOCK_CHECK_OK(choose_shares(directories, geometry));
  PENSTOCK_TAKE(ranks, ranks_->begin(options_.uuid_seed));
  options.ranks = ranks;
  PENSTOCK_TAKE(store, create_store(parts_.storage, directories, geometry, options));
  store_ = std::move(store);
  return ok();
}

Status EngineImpl::open_existing(const StoreDirectories& directories, const StoreOptions& options) {
  const bool writable = options_.mode != OpenMode::kRead;
  PENSTOCK_TAKE(store, open_store(parts_.storage, directories, options, writable));
  store_ = std::move(store);
  resumed_ = true;
  const std::string& description = store_->geometry().description;
  PENSTOCK_CHECK_OK(compare_model(store_->geometry(), options_.directory, model_, layout_));
  PENSTOCK_CHECK_OK(compare_trainer(description, options_.directory, options_.description_json));
  PENSTOCK_TAKE(block_elements, block_elements_of(description, options_.directory));
  PENSTOCK_CHECK_OK(plan_for(block_elements));
  if (plan_.blocks.size() != store_->geometry().blocks.size()) {
    return make_error(
        Errc::kCorrupt,
        fmt::format("the store in {} has {} blocks, its model needs {}; it was put "
                    "together from two stores",
                    options_.directory, store_->geometry().blocks.size(), plan_.blocks.size()));
  }
  return ok();
}

Status EngineImpl::open_store_and_plan() {
  StoreOptions store_options;
  store_options.scratch = options_.scratch;
  store_options.faults = options_.faults;
  store_options.uuid_seed = options_.uuid_seed;
  store_options.unless_in_use = options_.mode == OpenMode::kRead;
  store_options.notice = [this](const std::string& sentence) {
    PENSTOCK_LOG(parts_.logger, LogLevel::kWarning, "{}", sentence);
  };
  const StoreDirectories directories = store_directories(options_);
  if (parts_.communicator.size() > 1 && parts_.commits == nullptr) {
    return make_error(Errc::kArgument,
                      "several ranks were given one communicator; give a second one, for commits");
  }
  ranks_ = std::make_unique<Ranks>(
      parts_.commits != nullptr ? *parts_.commits : parts_.communicator, parts_.now_ns);
  if (options_.scratch) return create_new(directories, store_options);
  PENSTOCK_TAKE(found, ranks_->find(parts_.storage, directories));
  if ((options_.mode == OpenMode::kResume || options_.mode == OpenMode::kRead) && !found) {
    return make_error(
        Errc::kState,
        fmt::format("{} holds no committed store; check the path, or start without resuming",
                    directories.text()));
  }
  if (options_.mode == OpenMode::kCreate && found) {
    return make_error(Errc::kState,
                      fmt::format("{} already holds a store; resume it or choose another "
                                  "directory",
                                  directories.text()));
  }
  if (!found) return create_new(directories, store_options);
  store_options.ranks = *found;
  return open_existing(directories, store_options);
}

// --- memory ----------------------------------------------------------------------------------

Status EngineImpl::allocate() {
  budget_ = std::make_unique<ByteBudget>("host", options_.host_bytes);
  const PlanRequest request = make_plan_request(options_, model_, layout_);
  const std::uint64_t tables = request.table_bytes - kHugePageBytes;
  PENSTOCK_TAKE(reserved, budget_->take("engine tables", tables));
  tables_ = std::move(reserved);
  const std::uint64_t bytes = plan_.host_bytes - request.table_bytes;
  ArenaOptions where;
  // Drives of several nodes use the same frames; then no node is nearer than another.
  if (options_.queue.nodes.size() == 1) where.node = options_.queue.nodes.front().index;
  PENSTOCK_TAKE(arena, Arena::create(*budget_, "frames", bytes, where));
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
  operations_.resize(blocks * 5 + 16);
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

// --- open ------------------------------------------------------------------------------------

Status EngineImpl::start() {
  store_->set_block_namer([this](std::size_t block) { return block_name(block); });
  table_ = std::make_unique<SlotTable>(store_->make_table());
  if (resumed_) {
    const CommitRecord& record = store_->committed();
    step_ = committed_step_ = record.step;
    updates_ = record.updates;
    opened_blob_ = last_blob_ = record.blob;
    pins_ = summarize_pins(*store_);
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
  PENSTOCK_TAKE(queue, parts_.storage.make_queue(*this, queue_options()));
  queue_ = std::move(queue);
  watch_drives();
  if (!store_->open_note().empty()) {  // an older commit was taken: never without a word
    PENSTOCK_LOG(parts_.logger, LogLevel::kWarning, "{}: {}", options_.directory,
                 store_->open_note());
  }
  PENSTOCK_LOG(parts_.logger, LogLevel::kInfo, "plan: {}", describe(plan_));
  PENSTOCK_LOG(parts_.logger, LogLevel::kInfo, "storage queue: {} ({})", queue_->backend(),
               queue_->backend_reason());
  if (const std::string shortfall = queue_->shortfall(); !shortfall.empty()) {
    PENSTOCK_LOG(parts_.logger, LogLevel::kWarning, "storage queue: {}", shortfall);
  }
  return ok();
}

Status EngineImpl::open() {
  PENSTOCK_TAKE(layout, Layout::make(model_));
  layout_ = std::move(layout);
  PENSTOCK_CHECK_OK(open_store_and_plan());
  PENSTOCK_CHECK_OK(ranks_->same(plan_.commit_every, "steps between commits"));
  if (!options_.scratch && options_.mode != OpenMode::kRead) {
    PENSTOCK_CHECK_OK(ranks_->reserve(parts_.storage, store_->directories(), options_.faults));
  }
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
                      fmt::format("the store in {} cannot be opened: {}; use a copy of it",
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
