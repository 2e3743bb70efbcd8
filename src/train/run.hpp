#pragma once

/// The whole of a training run, and of a generation: from checked options to the last commit.
///
/// The caller parses options and shows what happens; these functions do everything else. They print
/// nothing, install no signal handler and keep no globals.
/// Stop:   `stop` is looked at between steps (tokens). A run that stops flushes, so that nothing is
///         lost, and ends without an error; its RunEnd says that it was stopped.
/// Errors: kArgument, kNoMemory, kNoSpace and kState before anything is written where the input is
/// at
///         fault; otherwise what the engine reports. The last commit stays valid in every case.
/// Threads: call from one thread; the observer is called from that thread.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "io/storage.hpp"
#include "io/store.hpp"
#include "topo/drive_wear.hpp"
#include "train/token_reader.hpp"

namespace penstock {

/// What RAM may be used: so many bytes, the smallest budget that works, or as much as there is use
/// for.
enum class RamBudget : std::uint8_t { kBytes, kMinimum, kAll };

/// What a training and a generation have in common.
struct RunResources {
  std::string store;                        ///< directory
  std::vector<std::string> further_stores;  ///< directories of its other drives
  RamBudget ram = RamBudget::kAll;
  std::uint64_t ram_bytes = 0;  ///< of kBytes
  std::uint32_t threads = 0;    ///< 0: what the machine gives this process
  bool fp32 = false;            ///< compute in fp32 instead of bf16
  QueueBackend queue = QueueBackend::kAuto;
};

struct TrainOptions {
  RunResources resources;
  std::string model = "tiny";  ///< a size, a config.json or its directory
  std::string family;          ///< "", "llama" or "gpt2"
  DataOptions data;
  std::uint64_t steps = 1000;  ///< of the whole run; a resumed one does what is left
  std::uint64_t batch = 8;     ///< sequences per step
  std::uint64_t micro = 8;     ///< sequences per micro-batch; divides `batch`
  std::uint64_t seq = 256;     ///< tokens per sequence
  double lr = 1e-3;            ///< peak
  std::uint64_t warmup = 100;
  double clip = 1.0;  ///< largest gradient norm; 0: none
  std::uint64_t seed = 1;
  std::uint32_t commit_every = 0;           ///< 0: chosen by the plan
  std::uint32_t block_elements = 0;         ///< 0: chosen by the plan
  std::vector<std::uint32_t> drive_shares;  ///< of a new store's blocks; empty: measured
  std::uint64_t eval_every = 0;             ///< 0: before the first step and after the last only
  std::uint64_t eval_tokens = 65536;        ///< held-out tokens per evaluation, about; 0: all
  std::uint64_t checkpoint_every = 0;       ///< steps between rotating checkpoints; 0: none
  std::uint32_t keep = 0;            ///< of them; also the room a new store has for checkpoints
  std::vector<std::string> copy_to;  ///< one place for each drive of the copies; empty: none
  std::uint64_t copy_every = 0;      ///< steps between copies
  bool resume = false;
  bool scratch = false;
};

struct GenerateOptions {
  RunResources resources;
  std::string
      prompt;  ///< bytes; or token numbers with spaces where the model was trained on tokens
  std::uint64_t tokens = 200;
  double temperature = 0.8;  ///< 0: always the likeliest token
  std::uint64_t seed = 1;
};

/// What is known before the first step.
struct RunStart {
  std::string model, family, data, data_kind, plan, queue, isa;
  std::string profile;  ///< the file that set something of the queue; empty: none did
  double read_bytes_per_second = 0.0, write_bytes_per_second = 0.0;  ///< of the drive; 0: unknown
  std::uint64_t parameters = 0, state_bytes = 0, ram_bytes = 0;
  std::uint64_t vocab = 0, train_tokens = 0, held_out_tokens = 0;
  std::uint64_t first_step = 0, steps = 0;  ///< first_step > 0: resumed
  std::uint32_t threads = 0;
  bool scratch = false;
  std::uint64_t planned_write_bytes = 0;  ///< to the drive, each step
  double bigram_nats =
      0.0;  ///< of data read as bytes: what counting pairs would reach; 0: not known
};

/// Bytes moved at one tier in the last step.
struct TierRate {
  std::string tier;  ///< "nvme read", "nvme write"
  double bytes_per_second = 0.0;
};

struct StepLine {
  std::uint64_t step = 0, steps = 0;  ///< steps ended, this one included
  double loss = 0.0, lr = 0.0, norm = 0.0, clip = 1.0;
  bool applied = true;  ///< false: a gradient was not finite, nothing was changed
  double seconds = 0.0, tokens_per_second = 0.0, seconds_left = 0.0;
  std::vector<TierRate> rates;
  double compute_seconds = 0.0;        ///< of the step, without waits
  double percent_of_bound = 0.0;       ///< of the step's physical bound; 0: not known
  double percent_of_late_bound = 0.0;  ///< of what late updates can reach; 0: not known
  std::uint64_t data_index = 0;        ///< the position in the data that the step used
  std::uint64_t committed_step = 0;
};

struct EvalLine {
  std::uint64_t step = 0;
  double loss = 0.0;
  std::uint64_t tokens = 0;
};

/// A copy of the state in another store: made, or not.
struct CopyLine {
  std::uint64_t step = 0;
  std::string directory;
  std::string failure;  ///< empty: it is whole
};

struct RunEnd {
  std::uint64_t step = 0, committed_step = 0;
  bool stopped = false;
  double seconds = 0.0, held_out_loss = 0.0;
  std::uint64_t steps = 0;                ///< of this run, without what it resumed
  std::uint64_t written_bytes = 0;        ///< to the drive, in these steps
  std::uint64_t first_written_bytes = 0;  ///< before them: first versions, measuring the drive
  WearReport wear;                        ///< what the drive counted in these steps
  std::vector<std::string> directories;   ///< of the store
  std::optional<LifetimeBytes>
      lifetime;      ///< written to them since the store was made; none: scratch
  std::string hash;  ///< of the state, as `inspect --hash` gives it; empty: not computed
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_note(std::string_view sentence) = 0;  ///< something the user should know
  virtual void on_start(const RunStart& start) = 0;
  virtual void on_step(const StepLine& line) = 0;
  virtual void on_eval(const EvalLine& line) = 0;
  virtual void on_copy(const CopyLine& line) = 0;
  virtual void on_end(const RunEnd& end) = 0;
};

Status run_train(const TrainOptions& options, TrainObserver& observer,
                 const std::atomic<bool>& stop);

class GenerateObserver {
 public:
  virtual ~GenerateObserver() = default;
  virtual void on_note(std::string_view sentence) = 0;
  /// One generated token; `is_byte` where the model's tokens are bytes.
  virtual void on_token(std::uint32_t token, bool is_byte) = 0;
};

Status run_generate(const GenerateOptions& options, GenerateObserver& observer,
                    const std::atomic<bool>& stop);

}  // namespace penstock
