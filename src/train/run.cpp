// A training run: data, model, engine, then steps until the end or a stop.

#include "train/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/counters.hpp"
#include "engine/system_drives.hpp"
#include "engine/tuned_queue.hpp"
#include "model/named_sizes.hpp"
#include "train/copies.hpp"
#include "train/data.hpp"
#include "train/run_setup.hpp"
#include "train/schedule.hpp"
#include "train/text_stats.hpp"
#include "train/trainer.hpp"

namespace penstock {
namespace {

/// The trainer's part of a commit: position in the data is the step itself, so this is all.
struct Blob {
  std::uint64_t format = 1;
  std::uint64_t step = 0;
  std::uint64_t tokens = 0;
};

/// Of a step, as docs/architecture.md counts: h + r + s + c/K.
std::uint64_t planned_write_bytes(const Plan& plan) {
  const Plan::Traffic& bytes = plan.traffic;
  const std::uint64_t commit = plan.commit_every == 0 ? 0 : bytes.ram_homed / plan.commit_every;
  return bytes.hi_write + bytes.state_write + bytes.spill + commit;
}

class Run {
 public:
  Run(const TrainOptions& options, TrainObserver& observer, const std::atomic<bool>& stop)
      : options_(options), observer_(observer), stop_(stop) {}

  Status prepare();
  Status train();

 private:
  [[nodiscard]] Status check_there() const;
  Status open_data();
  Status open_model();
  [[nodiscard]] Logger note_logger() const;
  Status open_engine();
  Status open_copies();
  Status copy_if_due(std::uint64_t step);
  void look_at_copy();
  Status announce();
  Status one_step(std::uint64_t step);
  void add_bounds(const TrainReport& report, StepLine& line) const;
  void report(std::uint64_t step, const TrainReport& report, std::uint64_t started_ns);
  Status checkpoint_if_due(std::uint64_t step);
  Status evaluate(std::uint64_t step);
  [[nodiscard]] std::vector<std::uint64_t> written_bytes() const;
  Status finish(bool stopped);
  [[nodiscard]] Schedule schedule() const {
    return {options_.lr, options_.warmup, options_.steps, 0.1};
  }

  const TrainOptions& options_;
  TrainObserver& observer_;
  const std::atomic<bool>& stop_;
  std::unique_ptr<TrainingData> data_;
  ModelConfig config_;
  RunParts parts_;
  std::unique_ptr<Transformer> model_;
  MemorySplit memory_;
  std::string profile_;  // that set something of the queue
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Copies> copies_;
  std::vector<std::uint32_t> tokens_, targets_;  // [batch, seq]
  std::unique_ptr<WearMeter> wear_;
  std::vector<std::uint64_t> written_before_;  // the steps, to each directory
  std::uint64_t run_started_ns_ = 0;
  std::uint64_t first_step_ = 0;
  double held_out_loss_ = 0.0;
};

Status Run::open_data() {
  if (options_.micro == 0 || options_.batch % options_.micro != 0) {
    return make_error(Errc::kArgument, fmt::format("--micro {} does not divide --batch {}",
                                                   options_.micro, options_.batch));
  }
  PENSTOCK_TAKE(data, TrainingData::open(options_.data, options_.seed));
  data_ = std::make_unique<TrainingData>(std::move(data));
  return data_->check_sequence(options_.seq);
}

Status Run::open_model() {
  PENSTOCK_TAKE(choice, choose_model(options_.model, options_.family, data_->vocab()));
  for (const std::string& note : choice.notes) observer_.on_note(note);
  config_ = choice.config;
  if (static_cast<std::int64_t>(options_.seq) > config_.max_positions) {
    return make_error(Errc::kArgument,
                      fmt::format("--seq {} is longer than the {} positions of model {}; use a "
                                  "shorter sequence",
                                  options_.seq, config_.max_positions, config_.name));
  }
  PENSTOCK_TAKE(parts, make_run_parts(options_.resources));
  parts_ = std::move(parts);
  TransformerOptions options;
  options.config = config_;
  options.batch = {static_cast<std::int64_t>(options_.batch / options_.micro),
                   static_cast<std::int64_t>(options_.micro),
                   static_cast<std::int64_t>(options_.seq)};
  options.compute = options_.resources.fp32 ? ComputeMode::kF32 : ComputeMode::kBf16;
  options.matmul.threads = static_cast<int>(parts_.threads);
  options.isa = parts_.isa;
  PENSTOCK_TAKE(model, Transformer::create(options, *parts_.executor));
  model_ = std::move(model);
  return ok();
}

/// What the engine warns of; an error is returned, too.
Logger Run::note_logger() const {
  return {LogLevel::kWarning, [this](LogLevel level, const char*, int, std::string_view message) {
            if (level < LogLevel::kError) observer_.on_note(message);
          }};
}

Status Run::open_engine() {
  EngineOptions options;
  options.directory = options_.resources.store;
  options.further_directories = options_.resources.further_stores;
  options.mode = options_.resume ? OpenMode::kResume : OpenMode::kCreate;
  options.block_elements = options_.block_elements;
  if (options_.resume) {
    const auto facts = read_facts(*parts_.storage, store_directories(options_.resources));
    if (facts) {
      options.block_elements = facts->block_elements;
      std::string note;
      PENSTOCK_CHECK_OK(check_checkpoint_room(options_, *facts, note));
      if (!note.empty()) observer_.on_note(note);
    }
  }
  PENSTOCK_TAKE(content, data_->content());
  options.commit_every = options_.commit_every;
  options.scratch = options_.scratch;
  options.drive_shares = options_.drive_shares;
  options.checkpoints = options_.keep;
  options.seed = options_.seed;
  options.isa = parts_.isa;
  options.queue.backend = options_.resources.queue;
  options.queue.nodes = system_io_nodes(store_directories(options).all());
  const Logger logger = note_logger();
  profile_ = tune_queue(options.queue, store_directories(options).all(), profile_place(), logger);
  options.measure_drive_seconds = 0.25;
  options.description_json = describe_run(options_, config_, data_->reader(), content,
                                          std::string(model_->matmul().isa()));
  PENSTOCK_TAKE(memory, split_memory(options_.resources, *model_, options,
                                     "; a smaller --micro or --seq needs less"));
  memory_ = memory;
  PENSTOCK_CHECK_OK(check_address_limits(parts_, options_.resources, memory_.used_bytes));
  options.host_bytes = memory_.ram_bytes;
  options.workspace_bytes = memory_.workspace_bytes;
  PENSTOCK_TAKE(engine, make_engine(parts_.engine_parts(logger), options, model_->spec()));
  engine_ = std::move(engine);
  PENSTOCK_TAKE(trainer, Trainer::create(*engine_, *model_, memory_.kept_layers));
  trainer_ = std::move(trainer);
  first_step_ = engine_->step();
  // A run that died between a commit and its checkpoint makes up for it.
  const auto pins = engine_->checkpoints();
  const bool made = !pins.empty() && pins.back().step == first_step_;
  return first_step_ > 0 && !made ? checkpoint_if_due(first_step_) : ok();
}

Status Run::open_copies() {
  if (options_.copy_to.empty()) return ok();
  for (const std::string& place : options_.copy_to) {
    PENSTOCK_CHECK_OK(check_place("--copy-to", place, /*to_read=*/false));
  }
  const StoreDirectories directories = store_directories(options_.resources);
  std::optional<StoreUuid> sums_uuid;
  if (options_.resume) {
    PENSTOCK_TAKE(store, open_store(*parts_.storage, directories, {}, /*writable=*/false));
    sums_uuid = store->sums_uuid();
  }
  PENSTOCK_TAKE(copies, Copies::open(*parts_.storage, options_.copy_to, directories, sums_uuid));
  copies_ = std::make_unique<Copies>(std::move(copies));
  return ok();
}

Status Run::copy_if_due(std::uint64_t step) {
  if (copies_ == nullptr) return ok();
  look_at_copy();
  if (step % options_.copy_every != 0) return ok();
  if (copies_->under_way()) {  // which of the two is the newest is not known before
    PENSTOCK_CHECK_OK(engine_->flush());
    look_at_copy();
  }
  const auto failed = copies_->begin(*engine_);
  if (failed) observer_.on_copy(*failed);
  look_at_copy();  // of a step that was committed already it is made at once
  return ok();
}

void Run::look_at_copy() {
  if (copies_ == nullptr) return;
  const auto line = copies_->ended(*engine_);
  if (line) observer_.on_copy(*line);
}

Status Run::checkpoint_if_due(std::uint64_t step) {
  if (options_.checkpoint_every == 0 || step % options_.checkpoint_every != 0) return ok();
  return engine_->checkpoint({"", options_.keep});
}

Status Run::announce() {
  RunStart start;
  start.model = config_.name;
  start.family = config_.family == ModelFamily::kLlama ? "llama" : "gpt2";
  start.data = data_->reader().path();
  start.data_kind = data_->reader().kind();
  start.plan = describe(engine_->plan());
  if (const std::string drives = engine_->drive_words(); !drives.empty()) {
    start.plan += "; drives: " + drives;
  }
  start.queue = engine_->queue_backend();
  start.profile = profile_;
  start.isa = fmt::format("{}, matrices {}", isa_name(parts_.isa), model_->matmul().isa());
  PENSTOCK_TAKE(parameters, parameter_count(config_));
  start.parameters = parameters;
  start.state_bytes = parameters * (kHiBytes + kStateBytes);
  start.ram_bytes = memory_.ram_bytes;
  start.vocab = data_->vocab();
  start.train_tokens = data_->train_tokens();
  start.held_out_tokens = data_->held_out_tokens();
  start.first_step = first_step_;
  start.steps = options_.steps;
  start.threads = parts_.threads;
  start.scratch = options_.scratch;
  start.planned_write_bytes = planned_write_bytes(engine_->plan());
  if (data_->reader().kind() == "bytes") {
    PENSTOCK_TAKE(counts, count_bytes(options_.data.path));
    start.bigram_nats = counts.bigram_nats();
  }
  start.read_bytes_per_second = engine_->drive_rates().read_bytes_per_second;
  start.write_bytes_per_second = engine_->drive_rates().write_bytes_per_second;
  observer_.on_start(start);
  return ok();
}

Status Run::check_there() const {
  if (!options_.resume) return ok();
  const StoreDirectories directories = store_directories(options_.resources);
  const std::unique_ptr<Storage> storage = make_posix_storage();
  for (const std::string& directory : directories.all()) {
    PENSTOCK_TAKE(there, storage->exists(directory));
    if (there) continue;
    return make_error(Errc::kArgument,
                      fmt::format("--resume: there is no store {}; check the path, or leave "
                                  "--resume out to begin a new one",
                                  directory));
  }
  return ok();
}

Status Run::prepare() {
  PENSTOCK_CHECK_OK(check_store_place(options_.resources, /*to_read=*/false));
  PENSTOCK_CHECK_OK(check_there());
  PENSTOCK_CHECK_OK(open_data());
  PENSTOCK_CHECK_OK(open_model());
  PENSTOCK_CHECK_OK(open_copies());
  PENSTOCK_CHECK_OK(open_engine());
  if (copies_ != nullptr) {
    const StoreDirectories directories = store_directories(options_.resources);
    PENSTOCK_TAKE(store, open_store(*parts_.storage, directories, {}, /*writable=*/false));
    copies_->belong_to(store->sums_uuid());
  }
  tokens_.resize(options_.batch * options_.seq);
  targets_.resize(tokens_.size());
  return announce();
}

/// Mean loss over whole held-out sequences, in order.
Status Run::evaluate(std::uint64_t step) {
  // Nothing to learn from those: ln(vocab) for ever.
  if (data_->reader().kind() == "random tokens") return ok();
  const std::uint64_t seq = options_.seq, micro = options_.micro;
  std::uint64_t sequences = data_->eval_sequences(seq);
  if (options_.eval_tokens > 0) {
    sequences = std::min(sequences, std::max<std::uint64_t>(1, options_.eval_tokens / seq));
  }
  sequences -= sequences % micro;
  if (sequences == 0) {
    observer_.on_note(
        fmt::format("no evaluation: the held-out part is shorter than one micro-batch "
                    "({} sequences of {} tokens)",
                    micro, seq));
    return ok();
  }
  double sum = 0.0;
  PENSTOCK_CHECK_OK(engine_->eval_begin());
  for (std::uint64_t first = 0; first < sequences && !stop_.load();) {
    const std::uint64_t count = std::min(options_.batch, sequences - first);
    const std::size_t used = count * seq;
    const auto tokens = std::span(tokens_).first(used);
    const auto targets = std::span(targets_).first(used);
    PENSTOCK_CHECK_OK(data_->fill_eval(first, count, seq, tokens, targets));
    PENSTOCK_TAKE(loss, trainer_->evaluate({tokens, targets}));
    sum += loss * static_cast<double>(used);
    first += count;
  }
  PENSTOCK_CHECK_OK(engine_->eval_end());
  if (stop_.load()) return ok();
  held_out_loss_ = sum / static_cast<double>(sequences * seq);
  observer_.on_eval({step, held_out_loss_, sequences * seq});
  return ok();
}

/// Bounds of docs/architecture.md: a half-duplex drive moves the plan's bytes of each pass while
/// forward and backward compute.
void Run::add_bounds(const TrainReport& report, StepLine& line) const {
  line.compute_seconds = report.forward.compute() + report.backward.compute();
  const DriveRates rates = engine_->drive_rates();
  if (rates.read_bytes_per_second <= 0.0 || rates.write_bytes_per_second <= 0.0) return;
  const Plan::Traffic& bytes = engine_->plan().traffic;
  const auto read = [&](std::uint64_t n) {
    return static_cast<double>(n) / rates.read_bytes_per_second;
  };
  const auto write = [&](std::uint64_t n) {
    return static_cast<double>(n) / rates.write_bytes_per_second;
  };
  const double io_forward = read(bytes.hi_read / 2 + bytes.state_read + bytes.spill) +
                            write(bytes.hi_write + bytes.state_write);
  const double io_backward = read(bytes.hi_read - bytes.hi_read / 2) + write(bytes.spill);
  const double late = std::max(report.forward.compute(), io_forward) +
                      std::max(report.backward.compute(), io_backward);
  const double physical = std::max(line.compute_seconds, io_forward + io_backward);
  line.percent_of_late_bound = 100.0 * late / line.seconds;
  line.percent_of_bound = 100.0 * physical / line.seconds;
}

void Run::report(std::uint64_t step, const TrainReport& report, std::uint64_t started_ns) {
  StepLine line;
  line.step = step + 1;
  line.steps = options_.steps;
  line.loss = report.loss;
  line.lr = learning_rate(schedule(), step);
  line.norm = report.step.norm;
  line.clip = report.step.clip;
  line.applied = report.step.applied;
  const std::uint64_t now = now_ns();
  line.seconds = static_cast<double>(now - started_ns) * 1e-9;
  line.tokens_per_second = static_cast<double>(tokens_.size()) / std::max(line.seconds, 1e-9);
  const double so_far = static_cast<double>(now - run_started_ns_) * 1e-9;
  line.seconds_left = so_far / static_cast<double>(step + 1 - first_step_) *
                      static_cast<double>(options_.steps - step - 1);
  line.data_index = step;
  line.committed_step = engine_->committed_step();
  const CounterSnapshot snapshot = engine_->counters().snapshot();
  const auto rate = [&](Link link) {
    return static_cast<double>(snapshot.current.traffic.of(link).bytes) /
           std::max(line.seconds, 1e-9);
  };
  line.rates = {{"nvme read", rate(Link::kDriveRead)}, {"nvme write", rate(Link::kDriveWrite)}};
  add_bounds(report, line);
  observer_.on_step(line);
}

Status Run::one_step(std::uint64_t step) {
  const std::uint64_t started = now_ns();
  const std::size_t per_micro = options_.micro * options_.seq;
  for (std::uint64_t m = 0; m < options_.batch / options_.micro; ++m) {
    PENSTOCK_CHECK_OK(data_->fill_batch(step, m, options_.micro, options_.seq,
                                        std::span(tokens_).subspan(m * per_micro, per_micro),
                                        std::span(targets_).subspan(m * per_micro, per_micro)));
  }
  StepInput input;
  input.hyper = {learning_rate(schedule(), step), 0.9, 0.95, 1e-8, 0.1};
  input.max_norm = options_.clip;
  const Blob blob{1, step + 1, (step + 1) * tokens_.size()};
  std::byte bytes[sizeof blob];
  std::memcpy(bytes, &blob, sizeof blob);
  PENSTOCK_TAKE(done, trainer_->step({tokens_, targets_}, input, bytes));
  report(step, done, started);
  return ok();
}

/// To each directory, since written_before_ was set.
std::vector<std::uint64_t> Run::written_bytes() const {
  const StoreDirectories directories = store_directories(options_.resources);
  std::vector<std::uint64_t> bytes;
  for (const std::string& directory : directories.all()) {
    bytes.push_back(parts_.storage->written_bytes(directory));
    if (!written_before_.empty()) bytes.back() -= written_before_[bytes.size() - 1];
  }
  return bytes;
}

Status Run::finish(bool stopped) {
  PENSTOCK_CHECK_OK(engine_->flush());
  look_at_copy();
  RunEnd end;
  end.step = engine_->step();
  end.committed_step = engine_->committed_step();
  end.stopped = stopped;
  end.seconds = static_cast<double>(now_ns() - run_started_ns_) * 1e-9;
  end.held_out_loss = held_out_loss_;
  end.steps = end.step - first_step_;
  const TrafficTable total = engine_->counters().snapshot().total;
  end.first_written_bytes = total.of(Link::kDriveWrite, TrafficKind::kInitial).bytes;
  end.written_bytes = total.of(Link::kDriveWrite).bytes - end.first_written_bytes;
  end.wear = wear_->read(written_bytes());
  end.directories = store_directories(options_.resources).all();
  end.lifetime = engine_->written_in_life();
  observer_.on_end(end);
  return ok();
}

Status Run::train() {
  wear_ = std::make_unique<WearMeter>(store_directories(options_.resources).all());
  written_before_ = written_bytes();
  run_started_ns_ = now_ns();
  if (first_step_ == 0) PENSTOCK_CHECK_OK(evaluate(0));
  for (std::uint64_t step = first_step_; step < options_.steps; ++step) {
    if (stop_.load()) return finish(true);
    PENSTOCK_CHECK_OK(one_step(step));
    PENSTOCK_CHECK_OK(checkpoint_if_due(step + 1));
    PENSTOCK_CHECK_OK(copy_if_due(step + 1));
    const bool last = step + 1 == options_.steps;
    const bool due = options_.eval_every > 0 && (step + 1) % options_.eval_every == 0;
    if ((last || due) && !stop_.load()) PENSTOCK_CHECK_OK(evaluate(step + 1));
  }
  return finish(false);
}

}  // namespace

Status run_train(const TrainOptions& options, TrainObserver& observer,
                 const std::atomic<bool>& stop) {
  Run run(options, observer, stop);
  PENSTOCK_CHECK_OK(run.prepare());
  return run.train();
}

}  // namespace penstock
