// Method: the tiny model trains for very many steps on real files, and makes very many checkpoints
// of which it keeps three. Nothing that the process holds may grow with them: its resident memory,
// descriptors, threads, locked and pinned bytes, and the space on the drive. The end has the bits
// of training in memory, which knows no checkpoints.
//
// PENSTOCK_LONG_STEPS sets how many steps (default 500), PENSTOCK_LONG_CHECKPOINTS how many
// checkpoints (default 40). Of the steps nothing grows from a tenth on, of the checkpoints from the
// twentieth; the space on the drive stays as it is at the third.

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "engine/simulated.hpp"
#include "sanitizers.hpp"

namespace penstock::testing {
namespace {

std::uint64_t count_entries(const char* directory) {
  std::uint64_t count = 0;
  DIR* open = ::opendir(directory);
  if (open == nullptr) return 0;
  while (::readdir(open) != nullptr) ++count;
  ::closedir(open);
  return count;
}

using Held = std::map<std::string, std::uint64_t>;

/// What the process holds now; sizes in KiB.
Held held_now(const std::string& store) {
  Held held;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t value = 0;
    words >> key >> value;
    for (const char* wanted : {"VmRSS:", "VmLck:", "VmPin:", "Threads:"}) {
      if (key == wanted) held[key] = value;
    }
  }
  held["descriptors"] = count_entries("/proc/self/fd");
  held["files"] = count_entries(store.c_str());
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(store)) bytes += entry.file_size();
  held["store"] = bytes / 1024;
  return held;
}

/// What the store takes of its drive, its directory included, in units of 512 bytes.
std::uint64_t blocks_on_drive(const std::string& store) {
  struct stat info {};
  std::uint64_t blocks = 0;
  if (::stat(store.c_str(), &info) == 0) blocks += static_cast<std::uint64_t>(info.st_blocks);
  for (const auto& entry : std::filesystem::directory_iterator(store)) {
    if (::stat(entry.path().c_str(), &info) != 0) continue;  // a manifest that has just gone
    blocks += static_cast<std::uint64_t>(info.st_blocks);
  }
  return blocks;
}

/// Between `before` and `after`, said with where each was taken, nothing has grown.
void expect_no_growth(const Held& before, const std::string& early, const Held& after,
                      const std::string& late) {
  constexpr std::uint64_t kSlackKiB = 1024;
  constexpr std::uint64_t kWorkers = 4;  // of the executor and of the kernel's rings, begun late
  ASSERT_EQ(before.size(), 7U);
  for (const auto& [what, value] : before) {
    const std::uint64_t now = after.at(what);
    std::printf("%s %llu at %s, %llu at %s\n", what.c_str(), static_cast<unsigned long long>(value),
                early.c_str(), static_cast<unsigned long long>(now), late.c_str());
    if (what == "VmRSS:") {
      EXPECT_TRUE(kSanitized || now <= value + kSlackKiB) << "resident memory grew";
    } else if (what == "Threads:") {
      EXPECT_LE(now, value + kWorkers) << what;
    } else if (what == "files" || what == "store") {
      EXPECT_LE(now, value + 64) << what;  // a manifest is made before an old one goes
    } else {
      EXPECT_EQ(now, value) << what;
    }
  }
}

std::uint64_t wanted(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  const std::uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
  return value != 0 ? value : otherwise;
}

class LongRunTest : public ::testing::TestWithParam<RunSetup::Queue> {
 protected:
  /// A training of so many ordinary steps; `after_step` is called between them, and once more after
  /// the last commit, with the number of the last step.
  void train(const std::string& store, std::uint64_t steps,
             const std::function<void(Engine&, std::uint64_t step)>& after_step) {
    script_.steps.assign(steps, StepKind::kNormal);
    World world(setup_);
    auto made = make_engine(world.parts(setup_), engine_options(setup_, model_, store), model_);
    ASSERT_TRUE(made) << made.error().message;
    Engine& engine = *made.value();
    const TrainerWeights none;
    Runner runner(engine, model_, setup_, none);
    runner.norms.reserve(steps);
    for (std::uint64_t step = 1; step <= steps; ++step) {
      const Status done = runner.run_step(step, script_);
      ASSERT_TRUE(done) << "step " << step << ": " << done.error().message;
      after_step(engine, step);
      if (HasFatalFailure()) return;
    }
    const Status flushed = engine.flush();
    ASSERT_TRUE(flushed) << flushed.error().message;
    after_step(engine, steps);
  }

  void expect_bits(const std::string& store, std::uint64_t steps) {
    const Reference reference(model_, script_, setup_.seed);
    auto storage = make_posix_storage();
    const auto content = content_of(*storage, store);
    ASSERT_TRUE(content) << content.error().message;
    EXPECT_EQ(content.value().step, steps);
    EXPECT_EQ(content.value().hash, expected_hash(reference, steps));
  }

  static RunSetup make_setup() {
    RunSetup setup;
    setup.queue = GetParam();
    setup.threads = 2;
    setup.commit_every = 2;
    return setup;
  }

  RunSetup setup_ = make_setup();
  const ModelSpec model_ = tiny_model();
  Script script_;
};

TEST_P(LongRunTest, HoldsNoMoreAtItsEndThanEarlyOn) {
  const std::uint64_t steps = wanted("PENSTOCK_LONG_STEPS", 500), early = steps / 10;
  const TemporaryDirectory directory("/dev/shm");
  Held before, after;
  train(directory.store(), steps, [&](Engine&, std::uint64_t step) {
    if (step == early) before = held_now(directory.store());
    if (step == steps) after = held_now(directory.store());
  });
  if (HasFatalFailure()) return;
  expect_no_growth(before, "step " + std::to_string(early), after, "step " + std::to_string(steps));
  expect_bits(directory.store(), steps);
}

TEST_P(LongRunTest, HoldsNoMoreAfterManyCheckpoints) {
  constexpr std::uint64_t kEarly = 20, kLook = 10;
  constexpr std::uint64_t kSlackBlocks = 16;  // where a filesystem notes which pages are written
  constexpr std::uint32_t kKeep = 3;
  const std::uint64_t checkpoints =
      std::max(wanted("PENSTOCK_LONG_CHECKPOINTS", 40), kEarly + kLook) / kLook * kLook;
  const std::uint64_t every = setup_.commit_every;
  setup_.checkpoints = kKeep;
  const TemporaryDirectory directory;  // on a filesystem with blocks
  const std::string store = directory.store();
  std::uint64_t blocks = 0, largest = 0, asked = 0;
  Held before, after;
  train(store, checkpoints * every, [&](Engine& engine, std::uint64_t step) {
    if (step % every != 0) return;
    const std::uint64_t made = step / every;
    const bool last = asked == checkpoints;  // called again, after the last commit
    if (!last) {
      ASSERT_TRUE(engine.checkpoint({"", kKeep}));
      asked = made;
    }
    if (made != kKeep && made % kLook != 0) return;  // the others go on beside the steps
    ASSERT_TRUE(engine.flush());
    ASSERT_EQ(engine.checkpoints().size(), kKeep);
    EXPECT_EQ(engine.checkpoints().back().step, step);
    const std::uint64_t now = blocks_on_drive(store);
    if (made == kKeep) blocks = now;
    EXPECT_LE(now, blocks + kSlackBlocks) << "space on the drive after checkpoint " << made;
    largest = std::max(largest, now);
    if (made == kEarly) before = held_now(store);
    if (last) after = held_now(store);
  });
  if (HasFatalFailure()) return;
  std::printf("space on the drive %llu KiB at checkpoint %u, then %llu KiB at most\n",
              static_cast<unsigned long long>(blocks / 2), kKeep,
              static_cast<unsigned long long>(largest / 2));
  expect_no_growth(before, "checkpoint 20", after, "checkpoint " + std::to_string(checkpoints));
  expect_bits(store, checkpoints * every);
}

INSTANTIATE_TEST_SUITE_P(Queues, LongRunTest,
                         ::testing::Values(RunSetup::Queue::kThreads, RunSetup::Queue::kUring),
                         [](const auto& info) {
                           return std::string(info.param == RunSetup::Queue::kUring ? "Uring"
                                                                                    : "Threads");
                         });

}  // namespace
}  // namespace penstock::testing
