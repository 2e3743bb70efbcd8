#pragma once

/// The engine: a store, an arena and a scheduler behind sessions at levels 1 and 2.
///
/// A step: step_begin, for each group forward {acquire, release}, for each group backward {acquire,
/// gradient..., release}, step_end. Level 1 has no acquire: gradient..., step_end, wait.
/// Ownership: the parts are the caller's and outlive the engine. Arrays passed in are the caller's;
///            gradient() has read them when it returns.
/// Threads:   one trainer thread drives a session; status getters may be called from any thread.
/// Errors:    the first background failure is sticky: every later call returns it, commits stop,
///            the last commit stays valid. Every wait is bounded by the deadline.
/// Exactness: for given gradients the state is that of a serial fp32 AdamW, bit for bit, for any
///            budget, placement, queue, executor and ISA.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "comm/communicator.hpp"
#include "io/drive_rates.hpp"
#include "io/storage.hpp"
#include "io/store.hpp"
#include "io/store_pins.hpp"
#include "kernels/cpu/update.hpp"
#include "plan/plan.hpp"

namespace penstock {

class Counters;

using TensorId = std::uint32_t;  ///< index in ModelSpec::tensors
using GroupId = std::uint32_t;   ///< index in ModelSpec::groups

enum class WeightType : std::uint8_t { kNone, kF32, kBf16, kF16 };

/// First values of a tensor, a function of (seed, name, element) only.
struct Init {
  enum class Kind : std::uint8_t {
    kZeros,
    kConstant,
    kNormal,
    kValues,
    kWeights,  ///< what the trainer's `weights` array holds at creation
  } kind = Kind::kZeros;
  float constant = 0.0F;
  float deviation = 0.0F;  ///< of kNormal, mean 0
  /// kValues: fills out[0..count) with elements first..first+count; called during creation only,
  /// from one thread at a time.
  std::function<void(std::uint64_t first, std::uint64_t count, float* out)> values;
};

struct TensorSpec {
  std::string name;                 ///< unique, stable between runs, at most 255 bytes
  std::vector<std::int64_t> shape;  ///< at most 8 dimensions, each >= 1
  GroupId group = 0;
  bool trainable = true;
  bool decay = true;                ///< whether weight decay applies
  std::uint32_t contributions = 1;  ///< gradient contributions per step (uses of a tied tensor)
  Init init;
  /// Level 1: the trainer's array, [elements]. kBf16 with `lent`: it *is* `hi`, read and written in
  /// place. Otherwise an output written after each update (and at open).
  void* weights = nullptr;
  WeightType weight_type = WeightType::kNone;
  bool lent = false;
};

struct ModelSpec {
  Level level = Level::kWeights;
  std::vector<std::string> groups;
  std::vector<TensorSpec> tensors;
  std::vector<GroupId> forward;   ///< order of use; empty: all groups ascending
  std::vector<GroupId> backward;  ///< level 2; empty: the reverse of forward
};

/// kRead: the last commit, for evaluations only. Nothing is written or locked, so the store may be
/// one that this user cannot write; kState while another process has it open for writing, kCorrupt
/// where a training that began later has gone on over what is read.
enum class OpenMode : std::uint8_t { kCreate, kResume, kCreateOrResume, kRead };

struct EngineOptions {
  std::string directory;
  std::vector<std::string> further_directories;  ///< of the store's other drives
  OpenMode mode = OpenMode::kCreateOrResume;
  std::uint64_t host_bytes = 0;       ///< everything the engine allocates, workspace included
  std::uint64_t workspace_bytes = 0;  ///< of it, handed to the trainer by workspace()
  std::uint32_t block_elements = 0;   ///< 0: chosen (or the store's)
  std::uint32_t commit_every = 0;     ///< K; 0: chosen
  bool scratch = false;
  /// Of a new store over several drives: what part of the blocks each directory gets. Empty: by the
  /// measured rates of their drives where measure_drive_seconds allows, else equal.
  std::vector<std::uint32_t> drive_shares;
  std::uint32_t checkpoints = 0;  ///< of a new store: how many there is room for
  std::uint64_t seed = 0;
  std::uint64_t uuid_seed = 0;  ///< of a new store's id; 0: random
  Isa isa = Isa::kScalar;
  QueueOptions queue;
  ProtocolFaults faults;  ///< test-only
  /// Identifies rule, ladder and hyper-parameters that must not change silently; compared on
  /// resume.
  std::string description_json = "{}";  ///< the trainer's own part, kept with the store
  double measure_drive_seconds = 0.0;   ///< at opening, for each direction and drive; 0: no
  std::uint64_t deadline_ns = 120'000'000'000;
};

[[nodiscard]] inline StoreDirectories store_directories(const EngineOptions& options) {
  std::vector<std::string> all{options.directory};
  all.insert(all.end(), options.further_directories.begin(), options.further_directories.end());
  return StoreDirectories(std::move(all));
}

struct EngineParts {
  Storage& storage;
  Executor& executor;
  Communicator& communicator;
  std::function<std::uint64_t()> now_ns;  ///< real or virtual time
  Logger logger;
  /// A second one of the same ranks, for commits, which go on beside the steps; needed with more
  /// than one rank.
  Communicator* commits = nullptr;
};

/// Hyper-parameters of one step.
struct StepInput {
  AdamW hyper;
  double max_norm = 0.0;        ///< 0: no clipping
  double gradient_scale = 1.0;  ///< multiplies gradients (1/loss scale), before the norm is judged
};

struct StepReport {
  std::uint64_t step = 0;     ///< attempts, this one included
  std::uint64_t updates = 0;  ///< t after this step
  bool applied = false;       ///< false: non-finite gradient or none at all, nothing changed
  double norm = 0.0;          ///< of the scaled gradients
  double clip = 1.0;
  bool commits = false;  ///< this step's state will be committed
};

/// What checkpoint() is to make.
struct CheckpointRequest {
  std::string name;        ///< empty: a rotating one, named after its step
  std::uint32_t keep = 1;  ///< of a rotating one: so many of them stay, the newest
};

/// The last copy that tee() made or is making.
struct TeeReport {
  enum class State : std::uint8_t { kNone, kCopying, kDone, kFailed } state = State::kNone;
  std::string directory;         ///< all of them: "a, b"
  std::uint64_t step = 0;        ///< whose state it is
  std::uint64_t read_bytes = 0;  ///< of sections that nothing else brought by
  std::string failure;           ///< one sentence
};

/// The right to read the weights of one group at one version. Move-only; releases itself.
class GroupLease {
 public:
  GroupLease() = default;
  GroupLease(GroupLease&& other) noexcept { *this = std::move(other); }
  GroupLease& operator=(GroupLease&& other) noexcept {
    if (this != &other) {
      reset();
      engine_ = std::exchange(other.engine_, nullptr);
      group_ = other.group_;
      version_ = other.version_;
      data_ = other.data_;
    }
    return *this;
  }
  ~GroupLease() { reset(); }
  void reset() noexcept;

  [[nodiscard]] bool valid() const noexcept { return engine_ != nullptr; }
  [[nodiscard]] GroupId group() const noexcept { return group_; }
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  /// bf16, the whole group; a tensor starts at Engine::tensor_offset() elements from here.
  [[nodiscard]] const std::uint16_t* data() const noexcept { return data_; }

 private:
  friend class Engine;
  class Engine* engine_ = nullptr;
  GroupId group_ = 0;
  std::uint64_t version_ = 0;
  const std::uint16_t* data_ = nullptr;
};

class Engine {
 public:
  virtual ~Engine() = default;  ///< drains I/O; commits nothing (crash-only)

  // --- facts
  [[nodiscard]] virtual const Plan& plan() const = 0;
  [[nodiscard]] virtual std::uint64_t tensor_offset(TensorId tensor) const = 0;  ///< in its group
  [[nodiscard]] virtual std::uint64_t tensor_elements(TensorId tensor) const = 0;
  [[nodiscard]] virtual std::span<std::byte> workspace() = 0;  ///< zeroed, 2 MiB aligned or better
  [[nodiscard]] virtual bool resumed() const = 0;
  [[nodiscard]] virtual std::uint64_t step() const = 0;            ///< attempts ended
  [[nodiscard]] virtual std::uint64_t updates() const = 0;         ///< t
  [[nodiscard]] virtual std::uint64_t committed_step() const = 0;  ///< durable; 0 after creation
  /// The trainer's blob of the state that was opened.
  [[nodiscard]] virtual std::span<const std::byte> opened_blob() const = 0;
  [[nodiscard]] virtual const Counters& counters() const = 0;
  [[nodiscard]] virtual std::string queue_backend() const = 0;
  /// As measured at opening; zeros where it was not.
  [[nodiscard]] virtual DriveRates drive_rates() const = 0;
  /// How a new store's blocks were dealt to several drives, and why; empty: they were not measured.
  [[nodiscard]] virtual std::string drive_words() const = 0;
  /// Nanoseconds the trainer has waited inside calls since opening (for I/O, updates, commits).
  [[nodiscard]] virtual std::uint64_t waited_ns() const = 0;

  // --- one step
  virtual Status step_begin() = 0;
  /// Waits until the group's weights are in memory at the newest version, pending updates done.
  /// kState at once when a leased group has the memory that this one needs.
  virtual Result<GroupLease> acquire(GroupId group) = 0;
  /// Contribution k of n of the tensor's gradient: [elements], summed in fp32 in the order 0..n-1
  /// and rounded to bf16 once, when the last has come. With n = 2 either order is accepted (the sum
  /// is the same). n must be the tensor's `contributions`.
  virtual Status gradient(TensorId tensor, const void* values, WeightType type, std::uint32_t k = 0,
                          std::uint32_t n = 1) = 0;
  /// Fixes the record: norm, clip factor, finiteness. Updates follow when somebody needs them.
  /// `blob`: the trainer's state after this step (data position, ...), at most 1 MiB.
  virtual Result<StepReport> step_end(const StepInput& input, std::span<const std::byte> blob) = 0;
  /// Drops the gradients given since step_begin; counts as a step that was not applied.
  virtual Result<StepReport> step_skip(std::span<const std::byte> blob) = 0;

  /// Between these, acquire() follows the forward order only; no gradients.
  virtual Status eval_begin() = 0;
  virtual Status eval_end() = 0;

  // --- level 1
  /// Waits until the tensor is at version `updates` (its weights array is written).
  virtual Status wait(TensorId tensor, std::uint64_t updates) = 0;
  virtual Result<bool> query(TensorId tensor, std::uint64_t updates) = 0;

  // --- persistence
  /// Makes the state of the last ended step durable and waits for it. Scratch: only settles
  /// updates.
  virtual Status flush() = 0;
  /// Copies the exact fp32 master of a tensor, pending updates done: [elements].
  virtual Status export_master(TensorId tensor, float* out) = 0;
  /// Keeps the state of the last ended step as a checkpoint inside the store, between steps. Does
  /// not wait: it is made with the commit of that step, which begins now if it has not, and
  /// checkpoints() lists it once it is durable. kArgument, kState (scratch, the name is taken),
  /// kNoSpace (no room): nothing was done.
  virtual Status checkpoint(const CheckpointRequest& request) = 0;
  /// Copies the state of the last ended step into a new store in `directories`, on any filesystem,
  /// between steps. Does not wait: the copy is written beside the commit of that step, from memory
  /// where the next sweep brings the bytes there anyway, and holds that commit back while it is
  /// slower. (A step that is committed already is read and copied before this returns.) A copy that
  /// fails leaves the training alone; see last_tee(). kArgument, kState, kNoSpace: nothing was
  /// done.
  virtual Status tee(const StoreDirectories& directories) = 0;
  [[nodiscard]] virtual TeeReport last_tee() const = 0;
  /// Forgets a checkpoint, between steps; waits for a commit in progress.
  virtual Status drop_checkpoint(const std::string& name) = 0;
  /// The durable ones, oldest first.
  [[nodiscard]] virtual std::vector<PinSummary> checkpoints() const = 0;
  [[nodiscard]] virtual std::uint32_t checkpoint_room() const = 0;
  /// What was written to the store since it was made; see Store::lifetime().
  [[nodiscard]] virtual std::optional<LifetimeBytes> written_in_life() const = 0;
  virtual Status error() const = 0;  ///< the sticky failure, if any

 protected:
  /// How an implementation hands out what acquire() returns.
  [[nodiscard]] GroupLease make_lease(GroupId group, std::uint64_t version,
                                      const std::uint16_t* data) noexcept;

 private:
  friend class GroupLease;
  virtual void release(GroupId group) noexcept = 0;
};

inline GroupLease Engine::make_lease(GroupId group, std::uint64_t version,
                                     const std::uint16_t* data) noexcept {
  GroupLease lease;
  lease.engine_ = this;
  lease.group_ = group;
  lease.version_ = version;
  lease.data_ = data;
  return lease;
}

inline void GroupLease::reset() noexcept {
  data_ = nullptr;
  if (Engine* engine = std::exchange(engine_, nullptr)) engine->release(group_);
}

/// Opens or creates the store and plans. On resume the store's tensors must equal the model's:
/// kState names the first difference.
Result<std::unique_ptr<Engine>> make_engine(const EngineParts& parts, const EngineOptions& options,
                                            const ModelSpec& model);

/// The plan that make_engine() would follow for a new store, without opening anything.
Result<Plan> preview_plan(const EngineOptions& options, const ModelSpec& model);

/// The smallest host budget this model runs with, workspace included.
Result<std::uint64_t> minimum_host_bytes(const EngineOptions& options, const ModelSpec& model);

}  // namespace penstock
