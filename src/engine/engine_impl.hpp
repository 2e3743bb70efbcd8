#pragma once

/// The engine behind engine.hpp: a monitor around the scheduler.
///
/// Invariants
///   1. Everything below `mutex_` is touched only with it held. Whoever brings an event (trainer,
///      I/O thread, task) takes it, feeds the scheduler, executes the commands that come out
///      (submissions only, nothing that waits) and wakes the waiters.
///   2. A command in flight owns one Operation; its id travels as cookie or task argument.
///   3. Bytes of a frame are touched by exactly the command the scheduler issued for them.
///   4. The first failure wins; after it no command is executed and no commit starts.
///   5. After construction nothing is allocated outside error paths, reports and manifests.

#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>

#include "base/counters.hpp"
#include "base/home_process.hpp"
#include "engine/drive_watch.hpp"
#include "engine/engine.hpp"
#include "engine/layout.hpp"
#include "engine/ranks.hpp"
#include "io/page_buffer.hpp"
#include "kernels/cpu/optimizer.hpp"
#include "mem/arena.hpp"
#include "optim/adamw.hpp"
#include "plan/scheduler.hpp"

namespace penstock {

/// Pointers into the arena, cut as the plan says.
struct Frames {
  std::vector<Frame> hi, state, gradient, accumulators;  // accumulators: per tensor, may be empty
  Frame workspace;
};

class EngineImpl final : public Engine, private CompletionSink {
 public:
  static Result<std::unique_ptr<Engine>> make(const EngineParts& parts,
                                              const EngineOptions& options, const ModelSpec& model);
  ~EngineImpl() override;
  /// In a forked child the engine is left as it is: its threads, which destructors would wait for,
  /// are not there.
  static void operator delete(EngineImpl* engine, std::destroying_delete_t) noexcept;

  const Plan& plan() const override { return plan_; }
  std::uint64_t tensor_offset(TensorId tensor) const override {
    return layout_.tensors()[tensor].offset;
  }
  std::uint64_t tensor_elements(TensorId tensor) const override {
    return layout_.tensors()[tensor].elements;
  }
  std::span<std::byte> workspace() override { return frames_.workspace.span(); }
  bool resumed() const override { return resumed_; }
  std::uint64_t step() const override;
  std::uint64_t updates() const override;
  std::uint64_t committed_step() const override;
  std::span<const std::byte> opened_blob() const override { return opened_blob_; }
  const Counters& counters() const override { return counters_; }
  std::string queue_backend() const override;
  DriveRates drive_rates() const override { return drive_rates_; }
  std::string drive_words() const override { return drive_words_; }
  std::uint64_t waited_ns() const override;

  Status step_begin() override;
  Result<GroupLease> acquire(GroupId group) override;
  Status gradient(TensorId tensor, const void* values, WeightType type, std::uint32_t k,
                  std::uint32_t n) override;
  Result<StepReport> step_end(const StepInput& input, std::span<const std::byte> blob) override;
  Result<StepReport> step_skip(std::span<const std::byte> blob) override;
  Status eval_begin() override;
  Status eval_end() override;
  Status wait(TensorId tensor, std::uint64_t updates) override;
  Result<bool> query(TensorId tensor, std::uint64_t updates) override;
  Status flush() override;
  Status export_master(TensorId tensor, float* out) override;
  Status checkpoint(const CheckpointRequest& request) override;
  Status tee(const StoreDirectories& directories) override;
  TeeReport last_tee() const override;
  Status drop_checkpoint(const std::string& name) override;
  std::vector<PinSummary> checkpoints() const override;
  std::uint32_t checkpoint_room() const override { return store_->geometry().pins; }
  std::optional<LifetimeBytes> written_in_life() const override { return store_->lifetime(); }
  Status error() const override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr std::string_view kEngine = "the engine";

  /// For facts: a forked child has one thread and perhaps a mutex that is locked for ever.
  [[nodiscard]] Lock lock_for_facts() const { return home_.is_here() ? Lock(mutex_) : Lock(); }

  struct Operation {
    Command command;
    SlotEntry entry;         // of reads: what the drive must hold
    std::uint8_t parts = 0;  // requests not yet completed
    std::uint8_t retries = 0;
    IoRequest requests[2];
    std::uint64_t roots[kSectionCount] = {};
  };

  EngineImpl(const EngineParts& parts, const EngineOptions& options, const ModelSpec& model);

  // --- engine_open.cpp
  Status open();
  Status open_store_and_plan();
  Status create_new(const StoreDirectories& directories, StoreOptions options);
  Status open_existing(const StoreDirectories& directories, const StoreOptions& options);
  Status plan_for(std::uint32_t block_elements);
  Status allocate();
  Status cut_arena();
  void allocate_tables();
  Status write_first_versions();
  Status write_first_version(std::uint32_t block);
  void fill_block(std::uint32_t block);
  void fill_piece(const Range& range, std::uint32_t at, std::uint32_t count, float* out) const;
  Status start();
  Status hand_out_weights();
  Status measure();
  Status choose_shares(const StoreDirectories& directories, StoreGeometry& geometry);
  void watch_drives();
  Status check_drives(std::uint64_t now_ns);
  void look_at_drives();
  void tell_direct_refused(const std::string& where);
  [[nodiscard]] std::string tensors_on(FileId file) const;
  [[nodiscard]] QueueOptions queue_options() const;
  Status hand_out(const Range& range, std::span<std::byte> bounce);

  // --- engine_monitor.cpp
  void io_complete(const IoCompletion& completion) noexcept override;
  void run_commands();                     // needs the lock
  Status execute(const Command& command);  // needs the lock
  Status issue_io(std::uint32_t operation, std::size_t parts);
  void finish(std::uint32_t operation, std::span<const std::uint64_t> roots = {});
  void count_traffic(const Operation& operation);
  [[nodiscard]] std::uint32_t take_operation(const Command& command);
  [[nodiscard]] DriveExtent place_of(const Command& command) const;
  void describe_requests(Operation& operation, std::size_t& parts);
  void fail(Error error);                // needs the lock
  bool task_over(Status status = ok());  // counts it, takes its failure over; needs the lock
  Status sticky() const;
  /// Adds the time it lives to the callers' waits; created and destroyed with the lock held.
  class WaitTimer {
   public:
    WaitTimer(const std::function<std::uint64_t()>& now, std::uint64_t& sum)
        : now_(now), sum_(sum), start_(now()) {}
    ~WaitTimer() { sum_ += now_() - start_; }
    WaitTimer(const WaitTimer&) = delete;
    WaitTimer& operator=(const WaitTimer&) = delete;

   private:
    const std::function<std::uint64_t()>& now_;
    std::uint64_t& sum_;
    std::uint64_t start_;
  };
  template <class Ready>
  Status wait_until(Lock& lock, const char* what, Ready ready);
  Status wait_step(Lock& lock, const char* what, std::uint64_t& last, std::uint64_t& since,
                   bool& warned);
  void post(Task task, bool blocking);
  void task_finished();

  // --- engine_update.cpp
  static void update_task(void* engine, std::uint64_t operation);
  static void verify_task(void* engine, std::uint64_t operation);
  static void gather_task(void* engine, std::uint64_t operation);
  static void commit_task(void* engine, std::uint64_t operation);
  static void heal_task(void* engine, std::uint64_t operation);
  void run_update(std::uint32_t operation);
  bool update_tile(const Operation& operation, std::uint32_t tile, bool verify);
  bool verify_tile(std::uint32_t block, std::size_t section, std::uint64_t version,
                   std::uint32_t tile) const;
  bool roots_hold(std::uint32_t block, const SlotEntry& entry) const;
  void sum_tile(std::uint32_t block, std::uint64_t version, std::size_t section,
                std::uint32_t tile);
  std::uint64_t root_of(std::uint32_t block, std::uint64_t version, std::size_t section) const;
  void move_lent(std::uint32_t block, std::uint32_t tile, bool gather);
  void write_outputs(std::uint32_t block, std::uint32_t tile);
  Status heal(Operation& operation);
  Status heal_section(std::uint32_t block, std::size_t section, const SlotEntry& entry);
  Status heal_gradient(std::uint32_t block);
  bool gradient_holds(std::uint32_t block, std::uint32_t tile, const std::byte* data) const;
  bool spill_holds(std::uint32_t block, const std::byte* data) const;
  void sum_spill(std::uint32_t block);

  // --- engine_gradient.cpp
  Status check_gradient(TensorId tensor, WeightType type, std::uint32_t k, std::uint32_t n,
                        const void* values);
  Status accumulate(TensorId tensor, const void* values, WeightType type, bool first);
  Status take_gradient(TensorId tensor, const void* values, WeightType type);
  Result<std::uint16_t*> gradient_memory(std::uint32_t block);
  void convert(const void* values, WeightType type, const Range& range, std::uint16_t* frame);
  Status take_small(TensorId tensor, const void* values, WeightType type);
  void range_filled(std::uint32_t block);
  Result<StepReport> end_step(const StepInput* input, std::span<const std::byte> blob);
  Status judge(const StepInput& input, StepReport& report);

  // --- engine_commit.cpp
  bool commit_due() const;
  bool is_overdue() const;
  void begin_commit();
  Status commit_and_pin(const std::optional<CheckpointRequest>& request, PinChange& change);
  Status check_checkpoint(const CheckpointRequest& request) const;
  Result<PinChange> make_checkpoint(const CheckpointRequest& request);
  void pins_changed(const PinChange& change);  // needs the lock
  Status check_between_steps() const;          // needs the lock
  bool can_join() const;

  // --- engine_tee.cpp
  static void tee_task(void* engine, std::uint64_t operation);
  Result<std::unique_ptr<Store>> create_copy(const StoreDirectories& directories);
  [[nodiscard]] std::uint64_t data_bytes(std::uint32_t block) const;
  Status copy_block(std::uint32_t block, const SlotEntry& entry);
  Status copy_committed();
  Status commit_copy(const CommitRecord& record, std::span<const SlotEntry> entries);
  void tee_failed(Error error);  // needs the lock
  void finish_tee(Status status);
  [[nodiscard]] bool teeing() const { return tee_.state == TeeReport::State::kCopying; }

  // --- where bytes are
  [[nodiscard]] std::byte* section_data(std::uint32_t block, std::size_t section) const;
  [[nodiscard]] std::uint64_t* section_sums(std::uint32_t block, std::size_t section) const;
  [[nodiscard]] const std::uint16_t* gradient_data(std::uint32_t block) const;
  [[nodiscard]] std::byte* state_base(std::uint32_t block) const {
    return frames_.state[state_frame_of_[block]].data;
  }
  [[nodiscard]] const GroupPlan& group_of(std::uint32_t block) const {
    return plan_.groups[plan_.blocks[block].group];
  }
  [[nodiscard]] std::string block_name(std::size_t block) const;

  void release(GroupId group) noexcept override;

  // Fixed after open().
  HomeProcess home_;
  EngineParts parts_;
  EngineOptions options_;
  ModelSpec model_;
  Layout layout_;
  Plan plan_;
  const OptimizerKernels& kernels_;
  std::unique_ptr<ByteBudget> budget_;
  std::unique_ptr<Arena> arena_;
  Reservation tables_;
  Frames frames_;
  std::uint64_t rest_bytes_ = 0;           // offset of the gradient in a state frame
  std::uint64_t staging_offset_ = 0;       // offset of lent hi in a state frame
  std::vector<std::uint64_t> first_tile_;  // per block, in the per-tile tables
  bool resumed_ = false;
  DriveRates drive_rates_;
  std::string drive_words_;  // of choose_shares()
  std::vector<std::byte> opened_blob_;
  std::unique_ptr<Ranks> ranks_;
  std::unique_ptr<Store> store_;
  AdamWPolicy policy_;
  Counters counters_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<SlotTable> table_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Operation> operations_;
  std::vector<std::uint32_t> free_operations_;
  std::vector<std::uint32_t> state_frame_of_;  // per block, of the last command that used one
  std::vector<std::uint8_t> rest_unverified_;  // per block: read, not yet checked
  std::vector<std::uint8_t> tile_failed_;      // per tile; each written by one task
  std::vector<std::uint64_t> spill_sums_;      // per tile
  std::uint64_t progress_ = 0;                 // events so far
  bool told_direct_refused_ = false;
  std::optional<DriveWatch> drive_watch_;  // none: the queue does not tell drives apart
  std::uint64_t waited_ns_ = 0;            // by callers, in wait_until()
  std::size_t tasks_in_flight_ = 0;
  bool closing_ = false;
  std::unique_ptr<Error> failure_;

  // The step under way.
  bool in_step_ = false, in_eval_ = false, flushing_ = false;
  std::uint64_t step_ = 0, updates_ = 0, committed_step_ = 0;
  std::uint64_t last_commit_ns_ = 0;
  bool commit_overdue_ = false;                  // by time, as the ranks agreed in this step
  Record record_;                                // of the last applied step
  std::vector<std::uint8_t> record_gradient_;    // per tensor, of record_
  std::vector<std::uint8_t> has_gradient_;       // per tensor, this step
  std::vector<std::uint32_t> contributions_;     // per tensor, this step
  std::vector<std::uint64_t> acquired_step_;     // per group
  std::vector<std::uint64_t> waited_updates_;    // per tensor, level 1
  std::vector<std::uint64_t> tensor_updates_;    // per tensor: t of its last gradient
  std::vector<std::uint32_t> ranges_left_;       // per block, this step
  std::vector<NormPart> tensor_norm_;            // per tensor, this step
  std::vector<NormPart> norm_parts_;             // scratch of gradient()
  CommitRecord commit_record_;                   // of the commit in progress
  std::optional<CheckpointRequest> checkpoint_;  // to be made with that commit
  bool commit_running_ = false;                  // its task uses the store
  TeeReport tee_;
  std::unique_ptr<Store> tee_store_;  // while one is copying
  std::unique_ptr<PageBuffer> tee_buffer_;
  std::vector<PinSummary> pins_;  // of the store, as of the last change
  std::vector<std::byte> last_blob_;

  std::unique_ptr<StorageQueue> queue_;  // last: its completions use all of the above
};

template <class Ready>
Status EngineImpl::wait_until(Lock& lock, const char* what, Ready ready) {
  std::uint64_t last = progress_, since = parts_.now_ns();
  bool warned = false;
  while (true) {
    run_commands();
    if (failure_) return sticky();
    if (ready()) return ok();
    run_commands();  // of what ready() asked for
    const WaitTimer timer(parts_.now_ns, waited_ns_);
    PENSTOCK_CHECK_OK(wait_step(lock, what, last, since, warned));
  }
}

}  // namespace penstock
