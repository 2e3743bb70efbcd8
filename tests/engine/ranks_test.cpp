// Several ranks as threads of one process, each with a store of its own: commits count on all of
// them or on none.

#include <array>
#include <atomic>
#include <thread>

#include "engine/ranks.hpp"
#include "engine/simulated.hpp"
#include "io/forwarding_storage.hpp"
#include "io/store_global.hpp"

namespace penstock::testing {
namespace {

constexpr int kRanks = 3;

const Script& script() {
  static const Script script = default_script();
  return script;
}

/// A drive that may be full: nothing new has room.
class FullDrive final : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;
  Status write_file(const std::string& path, std::span<const std::byte> bytes) override {
    if (!full) return under_.write_file(path, bytes);
    ++refused;
    return make_error(Errc::kNoSpace, path + ": no space left", ENOSPC);
  }
  std::atomic<bool> full = false;
  std::atomic<int> refused = 0;
};

/// Ranks that train on the same data, so that each must end with the reference's bits.
class Cluster {
 public:
  explicit Cluster(int ranks = kRanks) : ranks_(ranks) {
    setup_.queue = RunSetup::Queue::kThreads;
    setup_.threads = 1;
  }

  [[nodiscard]] std::string directory(int rank) const {
    return directory_.store() + "-rank" + std::to_string(rank);
  }
  [[nodiscard]] FullDrive& storage() { return *storage_; }
  RunSetup& setup() { return setup_; }

  /// Runs steps up to `last` on all ranks; each rank's first error.
  std::vector<Status> run(std::uint64_t last, bool flush = true) {
    std::vector<Status> results(static_cast<std::size_t>(ranks_), ok());
    steps_ = make_in_process_group(ranks_);
    commits_ = make_in_process_group(ranks_);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&, rank] {
        const auto r = static_cast<std::size_t>(rank);
        results[r] = run_rank(rank, last, flush);
        steps_[r].reset();  // whoever still waits for this rank is told
        commits_[r].reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  std::uint64_t checkpoint_at = 0;
  bool fill_drive = false;  // as soon as the engines are open

 private:
  Status run_rank(int rank, std::uint64_t last, bool flush) {
    const auto r = static_cast<std::size_t>(rank);
    ModelSpec model = tiny_model();
    EngineOptions options = engine_options(setup_, model, directory(rank));
    options.further_directories.clear();
    options.checkpoints = 1;
    options.faults = {};
    auto executor = make_tbb_executor(1);
    const EngineParts parts{*storage_, *executor,        *steps_[r], [] { return now_ns(); },
                            Logger{},  commits_[r].get()};
    auto made = make_engine(parts, options, model);
    if (!made) return std::move(made).error();
    Engine& engine = *made.value();
    if (fill_drive) storage_->full = true;  // no rank returns before all have opened their stores
    TrainerWeights weights;
    Runner runner(engine, model, setup_, weights);
    for (std::uint64_t step = engine.step() + 1; step <= last; ++step) {
      PENSTOCK_CHECK_OK(runner.run_step(step, script()));
      if (step == checkpoint_at) PENSTOCK_CHECK_OK(engine.checkpoint({"", 1}));
    }
    return flush ? engine.flush() : ok();
  }

  const int ranks_;
  RunSetup setup_;
  TemporaryDirectory directory_;
  std::unique_ptr<Storage> drive_ = make_posix_storage();
  std::unique_ptr<FullDrive> storage_ = std::make_unique<FullDrive>(*drive_);
  std::vector<std::unique_ptr<Communicator>> steps_, commits_;
};

void expect_all_ok(const std::vector<Status>& results) {
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_TRUE(results[rank]) << "rank " << rank << ": " << results[rank].error().message;
  }
}

/// The hash of a rank's newest manifest, looked at alone.
Result<StoreContent> content_of_rank(Storage& storage, const std::string& directory,
                                     const std::string& pin = {}) {
  StoreOptions options;
  options.pin = pin;
  PENSTOCK_TRY(store, open_store(storage, directory, options, false), "open");
  PENSTOCK_TRY(reader, StoreReader::over(storage, std::move(store)), "description");
  const std::atomic<bool> stop{false};
  PENSTOCK_TRY(hash, hash_store(*reader, stop), "hash");
  return StoreContent{reader->step(), hash};
}

TEST(RanksTest, CommitTheSameStepAndGoOnFromIt) {
  Cluster cluster;
  cluster.setup().commit_every = 2;
  cluster.checkpoint_at = 3;
  expect_all_ok(cluster.run(5));
  expect_all_ok(cluster.run(script().steps.size()));
  const auto global = read_global(cluster.storage(), cluster.directory(0)).value();
  ASSERT_TRUE(global);
  EXPECT_EQ(global->record.step, script().steps.size());
  EXPECT_EQ(global->record.ranks, std::uint32_t{kRanks});
  EXPECT_FALSE(read_global(cluster.storage(), cluster.directory(1)).value());
  // Norms are taken over the ranks, so their bits are not those of one rank; they agree.
  Result<StoreContent> first = content_of_rank(cluster.storage(), cluster.directory(0));
  ASSERT_TRUE(first) << first.error().message;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto content = content_of_rank(cluster.storage(), cluster.directory(rank));
    ASSERT_TRUE(content) << content.error().message;
    EXPECT_EQ(content.value().step, script().steps.size());
    EXPECT_EQ(content.value().hash, first.value().hash);
    const auto pin = content_of_rank(cluster.storage(), cluster.directory(rank), "step-3");
    ASSERT_TRUE(pin) << pin.error().message;
    EXPECT_EQ(pin.value().step, 3U);
  }
}

TEST(RanksTest, AFullDriveStopsNoCommit) {
  Cluster cluster;
  cluster.setup().commit_every = 1;
  cluster.fill_drive = true;
  expect_all_ok(cluster.run(script().steps.size()));
  EXPECT_EQ(cluster.storage().refused, 0);
  EXPECT_FALSE(cluster.storage().write_file(cluster.directory(0) + "/x", {}));
  const auto global = read_global(cluster.storage(), cluster.directory(0)).value();
  ASSERT_TRUE(global);
  EXPECT_EQ(global->record.step, script().steps.size());
}

TEST(RanksTest, AManifestThatNotAllRanksHaveDoesNotCount) {
  Cluster cluster(2);
  expect_all_ok(cluster.run(4));
  const auto before = read_global(cluster.storage(), cluster.directory(0)).value();
  expect_all_ok(cluster.run(5));
  const auto after = read_global(cluster.storage(), cluster.directory(0)).value();
  ASSERT_TRUE(before && after);
  ASSERT_EQ(after->record.sequence, before->record.sequence + 1);
  // As after a crash between the manifests of step 5 and the record of it.
  for (const char* copy : {"a", "b"}) {
    ASSERT_TRUE(cluster.storage().remove(cluster.directory(0) + "/global." +
                                         std::to_string(after->record.sequence) + "." + copy));
  }
  const std::string manifest =
      cluster.directory(1) + "/manifest." + std::to_string(after->record.sequence) + ".a";
  ASSERT_TRUE(cluster.storage().exists(manifest).value());
  expect_all_ok(cluster.run(4));  // opens, finds nothing to do
  EXPECT_FALSE(cluster.storage().exists(manifest).value()) << "it was taken away";
  expect_all_ok(cluster.run(script().steps.size()));
  const auto at_end = read_global(cluster.storage(), cluster.directory(0)).value();
  ASSERT_TRUE(at_end);
  EXPECT_EQ(at_end->record.step, script().steps.size());
}

TEST(RanksTest, DirectoriesInAnotherOrderOrNumberAreRefused) {
  Cluster two(2);
  expect_all_ok(two.run(2));
  ASSERT_TRUE(two.storage().rename(two.directory(0), two.directory(7)));
  ASSERT_TRUE(two.storage().rename(two.directory(1), two.directory(0)));
  ASSERT_TRUE(two.storage().rename(two.directory(7), two.directory(1)));
  for (const Status& result : two.run(3)) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::kState) << result.error().message;
  }
}

TEST(RanksTest, DifferentIntervalsAreRefused) {
  auto group = make_in_process_group(2);
  std::array<Status, 2> results{ok(), ok()};
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Ranks ranks(*group[rank], [] { return now_ns(); });
      results[rank] = ranks.same(rank, "steps between commits");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results[0].error().code, Errc::kCancelled);
  EXPECT_EQ(results[1].error().code, Errc::kState);
}

}  // namespace
}  // namespace penstock::testing
