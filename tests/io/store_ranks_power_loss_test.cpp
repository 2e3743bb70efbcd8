// Method: the stores of several ranks on one simulated machine. The ranks make their commits in an
// order drawn from a seed, as the rank rule says: all manifests, the global record, and only then
// does any of them use a slot again. After every operation of the drives a power loss is taken;
// what is left must have a commit that all ranks have, whole, and none older than the newest
// acknowledged. The same harness without the rule must notice.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "io/forwarding_storage.hpp"
#include "io/store_fixture.hpp"
#include "io/store_global.hpp"
#include "sanitizers.hpp"

namespace penstock::test {
namespace {

constexpr std::uint64_t kSteps = 5;
const StoreUuid kRun{71, 72};

struct Verdict {
  std::uint64_t images = 0, committed = 0, discarded = 0, bad = 0;
  std::string first;
};

/// Which rule is broken.
enum class Broken { kNone, kRankRule, kRecordsOwnFile };

class RankWorld {
 public:
  RankWorld(std::uint64_t seed, Broken broken, std::uint64_t max_images, Verdict& verdict)
      : seed_(seed),
        settle_alone_(broken == Broken::kRankRule),
        max_images_(max_images),
        verdict_(verdict),
        timeline_(seed),
        ranks_(static_cast<std::uint32_t>(2 + mix64(seed, 3, 0) % 3)),
        records_(*storage_, directory(0), faults_of(broken)) {}

  void run() {
    storage_->set_observer([this](std::uint64_t operation) { take_images(operation); });
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      StoreOptions options = quick_options();
      options.ranks = options_of(rank);
      auto store = create_store(*storage_, directory(rank), small_geometry(), options);
      ASSERT_TRUE(store) << store.error().message;
      stores_.push_back(std::move(store).value());
      tables_.push_back(stores_.back()->make_table());
      versions_.emplace_back(stores_.back()->geometry().blocks.size(), 0);
    }
    ASSERT_TRUE(records_.reserve());
    for (std::uint64_t step = 0; step <= kSteps && !done(); ++step) run_step(step);
  }

 private:
  [[nodiscard]] bool done() const { return verdict_.images >= max_images_; }
  std::uint64_t draw() { return mix64(seed_, 1, drawn_++); }
  std::uint64_t draw_image() { return mix64(seed_, 2, drawn_images_++); }
  static ProtocolFaults faults_of(Broken broken) {
    ProtocolFaults faults;
    faults.overwrite_record = broken == Broken::kRecordsOwnFile;
    return faults;
  }
  static std::string directory(std::uint32_t rank) { return "rank" + std::to_string(rank); }

  [[nodiscard]] RankOptions options_of(std::uint32_t rank) const {
    RankOptions options;
    options.rank = rank;
    options.count = ranks_;
    options.uuid = rank_uuid(kRun, rank);
    return options;
  }

  /// The ranks in an order of their own.
  std::vector<std::uint32_t> shuffled() {
    std::vector<std::uint32_t> order(ranks_);
    std::iota(order.begin(), order.end(), 0U);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw() % i]);
    return order;
  }

  void write_step(std::uint32_t rank, std::uint64_t step) {
    for (std::size_t block = 0; block < versions_[rank].size(); ++block) {
      const bool frozen = stores_[rank]->geometry().blocks[block].frozen;
      if (step != 0 && (frozen || draw() % 4 == 0)) continue;
      versions_[rank][block] = step;
      write_version(*storage_, *stores_[rank], tables_[rank], block, step);
    }
  }

  void run_step(std::uint64_t step) {
    for (const std::uint32_t rank : shuffled()) write_step(rank, step);
    committed_versions_[step] = versions_;
    for (const std::uint32_t rank : shuffled()) {
      SlotTable& table = tables_[rank];
      table.commit_begin();
      for (std::size_t b = 0; b < versions_[rank].size(); ++b) table.commit_record(b);
      const Status done = stores_[rank]->prepare(make_record(step), table.commit_entries());
      ASSERT_TRUE(done) << done.error().message;
      if (settle_alone_) settle(rank, step);
    }
    const Status written = records_.write({kRun, stores_[0]->sequence(), step, ranks_});
    ASSERT_TRUE(written) << written.error().message;
    acknowledged_ = step;
    if (settle_alone_) return;
    for (const std::uint32_t rank : shuffled()) settle(rank, step);
  }

  /// The rank lets the commit count, and goes on: the next step's first blocks are on their way
  /// while other ranks are not yet there.
  void settle(std::uint32_t rank, std::uint64_t step) {
    ASSERT_TRUE(stores_[rank]->settle());
    tables_[rank].commit_finished();
    if (step == kSteps) return;
    for (std::size_t block = 0; block < versions_[rank].size(); ++block) {
      if (stores_[rank]->geometry().blocks[block].frozen || draw() % 2 == 0) continue;
      versions_[rank][block] = step + 1;
      write_version(*storage_, *stores_[rank], tables_[rank], block, step + 1);
    }
  }

  void take_images(std::uint64_t operation) {
    if (done()) return;
    const std::uint64_t seed = mix64(seed_, operation, 0);
    Timeline timeline(seed);
    auto image = storage_->after_power_loss(timeline, seed);
    ++verdict_.images;
    const std::string problem = judge(*image);
    if (problem.empty() || verdict_.bad++ != 0) return;
    verdict_.first = std::to_string(ranks_) + " ranks, seed " + std::to_string(seed_) +
                     " operation " + std::to_string(operation) + ": " + problem;
  }

  std::string judge(SimStorage& image) {
    auto global = read_global(image, directory(0));
    if (!global) return global.error().message;
    if (!global.value()) return acknowledged_ ? "no global record is left" : "";
    const GlobalRecord& record = global.value()->record;
    if (acknowledged_ && record.step < *acknowledged_) return "an acknowledged step is lost";
    ++verdict_.committed;
    std::vector<std::unique_ptr<Store>> stores;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      StoreOptions options = quick_options();
      options.ranks = options_of(rank);
      options.ranks.sequence = record.sequence;
      options.ranks.verify = !global.value()->is_newest;
      const bool newer =
          image.exists(directory(rank) + "/manifest." + std::to_string(record.sequence + 1) + ".a")
              .value();
      auto store = open_store(image, directory(rank), options, true);
      if (!store) return "rank " + std::to_string(rank) + ": " + store.error().message;
      if (newer) ++verdict_.discarded;
      std::string problem = check(*store.value(), rank, record.step);
      if (!problem.empty()) return "rank " + std::to_string(rank) + ": " + problem;
      stores.push_back(std::move(store).value());
    }
    return draw_image() % 16 == 0 ? go_on(image, record, stores) : "";
  }

  std::string check(Store& store, std::uint32_t rank, std::uint64_t step) {
    if (store.committed().step != step) return "another step";
    if (store.committed().blob != make_record(step).blob) return "another step's blob";
    const SlotTable table = store.make_table();
    for (std::size_t block = 0; block < table.block_count(); ++block) {
      std::string problem =
          check_block(store, table, block, committed_versions_[step][rank][block]);
      if (!problem.empty()) return problem;
    }
    return {};
  }

  /// One more commit of all ranks from here has the same number everywhere.
  std::string go_on(SimStorage& image, const GlobalRecord& record,
                    std::vector<std::unique_ptr<Store>>& stores) {
    std::optional<std::uint64_t> sequence;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      SlotTable table = stores[rank]->make_table();
      table.commit_begin();
      for (std::size_t b = 0; b < table.block_count(); ++b) table.commit_record(b);
      if (!stores[rank]->prepare(make_record(kSteps + 9), table.commit_entries())) {
        return "the next commit fails";
      }
      if (sequence && *sequence != stores[rank]->sequence()) return "numbers differ";
      sequence = stores[rank]->sequence();
    }
    GlobalRecords records(image, directory(0));
    if (!records.reserve() || !records.write({kRun, *sequence, kSteps + 9, ranks_})) {
      return "the next record fails";
    }
    stores.clear();
    auto global = read_global(image, directory(0));
    if (!global || !global.value() || global.value()->record.sequence <= record.sequence) {
      return "the next record is not the newest";
    }
    return {};
  }

  const std::uint64_t seed_;
  const bool settle_alone_;
  const std::uint64_t max_images_;
  Verdict& verdict_;
  Timeline timeline_;
  const std::uint32_t ranks_;
  std::unique_ptr<SimStorage> storage_ = make_sim_storage(timeline_);
  GlobalRecords records_;
  std::vector<std::unique_ptr<Store>> stores_;
  std::vector<SlotTable> tables_;
  std::vector<std::vector<std::uint64_t>> versions_;  // per rank and block
  std::map<std::uint64_t, std::vector<std::vector<std::uint64_t>>> committed_versions_;
  std::optional<std::uint64_t> acknowledged_;
  std::uint64_t drawn_ = 0, drawn_images_ = 0;
};

std::uint64_t wanted_rank_images() {
  const char* text = std::getenv("PENSTOCK_POWER_LOSS_IMAGES");
  const std::uint64_t wanted = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
  return (wanted != 0 ? wanted : testing::fewer_if_sanitized(20000, 4)) / 10 + 1;
}

Verdict run_worlds(Broken broken, std::uint64_t images, bool stop_at_bad) {
  Verdict verdict;
  const char* text = std::getenv("PENSTOCK_POWER_LOSS_SEED");
  for (std::uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
       verdict.images < images; ++seed) {
    RankWorld(seed, broken, images, verdict).run();
    if (::testing::Test::HasFatalFailure() || (stop_at_bad && verdict.bad != 0)) break;
  }
  return verdict;
}

TEST(StoreRanksPowerLossTest, LeavesACommitThatAllRanksHave) {
  const Verdict verdict = run_worlds(Broken::kNone, wanted_rank_images(), false);
  EXPECT_EQ(verdict.bad, 0U) << verdict.first;
  EXPECT_GT(verdict.committed, verdict.images / 2);
  EXPECT_GT(verdict.discarded, verdict.images / 16) << "some ranks must have been ahead";
  RecordProperty("images", static_cast<int>(verdict.images));
}

TEST(StoreRanksPowerLossTest, WithoutTheRankRuleItIsFound) {
  const Verdict verdict = run_worlds(Broken::kRankRule, 4000, true);
  EXPECT_GT(verdict.bad, 0U) << verdict.images << " images";
  RecordProperty("found", verdict.first);
}

TEST(StoreRanksPowerLossTest, ARecordWrittenOverTheOneThatCountsIsFound) {
  const Verdict verdict = run_worlds(Broken::kRecordsOwnFile, 4000, true);
  EXPECT_GT(verdict.bad, 0U) << verdict.images << " images";
  RecordProperty("found", verdict.first);
}

/// A file whose place on the drive is bad.
class UnreadableFile final : public ForwardingStorage {
 public:
  UnreadableFile(Storage& under, std::string path)
      : ForwardingStorage(under), path_(std::move(path)) {}
  Result<FileId> open(const std::string& path, const OpenOptions& options) override {
    if (path == path_) return make_error(Errc::kIo, path + ": Input/output error (5)", EIO);
    return under_.open(path, options);
  }

 private:
  const std::string path_;
};

std::vector<std::string> records_in(Storage& storage) {
  std::vector<std::string> names = storage.list("r").value();
  std::erase_if(names, [](const auto& name) { return parse_spare_name(name, kGlobalSpare); });
  return names;
}

/// Records first..last; empty when all were written.
std::string write_records(GlobalRecords& records, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t sequence = first; sequence <= last; ++sequence) {
    const Status done = records.write({kRun, sequence, sequence * 10, 2});
    if (!done) return done.error().message;
  }
  return {};
}

TEST(StoreGlobalTest, RecordsNeedNoSpace) {
  Timeline timeline(1);
  auto storage = make_sim_storage(timeline);
  ASSERT_TRUE(storage->make_directory("r"));
  ASSERT_TRUE(storage->sync_directory("/"));
  SimFaults full;
  full.full = true;
  GlobalRecords records(*storage, "r");
  ASSERT_TRUE(records.reserve());
  storage->set_faults(full);
  EXPECT_EQ(write_records(records, 1, 9), "");
  EXPECT_EQ(read_global(*storage, "r").value()->record, (GlobalRecord{kRun, 9, 90, 2}));
  EXPECT_EQ(storage->list("r").value().size(), 6U) << "two records and a spare, of two copies each";
  // Another process, and whatever moment the first one was killed at.
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    auto image = storage->after_power_loss(timeline, seed);
    image->set_faults(full);
    GlobalRecords again(*image, "r");
    ASSERT_TRUE(again.reserve());
    EXPECT_EQ(write_records(again, 10, 14), "");
    EXPECT_EQ(image->list("r").value().size(), 6U);
  }
  auto empty = make_sim_storage(timeline);
  ASSERT_TRUE(empty->make_directory("r"));
  empty->set_faults(full);
  GlobalRecords unprepared(*empty, "r");
  EXPECT_NE(write_records(unprepared, 1, 1), "") << "the drive must be full";
}

TEST(StoreGlobalTest, ARecordThatTheDriveDoesNotReturnIsWrittenOver) {
  Timeline timeline(1);
  auto storage = make_sim_storage(timeline);
  ASSERT_TRUE(storage->make_directory("r"));
  {
    GlobalRecords records(*storage, "r");
    ASSERT_TRUE(records.reserve());
    ASSERT_EQ(write_records(records, 1, 4), "");
  }
  UnreadableFile drive(*storage, "r/global.3.a");
  GlobalRecords records(drive, "r");
  ASSERT_TRUE(records.reserve());
  EXPECT_EQ(write_records(records, 5, 9), "");
  EXPECT_EQ(storage->list("r").value().size(), 6U);
}

TEST(StoreGlobalTest, ARecordOfAnEarlierBuildIsRead) {
  Timeline timeline(1);
  auto storage = make_sim_storage(timeline);
  ASSERT_TRUE(storage->make_directory("r"));
  GlobalRecords records(*storage, "r");
  ASSERT_EQ(write_records(records, 4, 4), "");
  for (const char* name : {"r/global.4.a", "r/global.4.b"}) {
    auto bytes = storage->read_file(name, 1 << 20).value();
    EXPECT_EQ(bytes.size(), 4096U);
    bytes.resize(88);  // they had no room behind
    ASSERT_TRUE(replace_file(*storage, name, bytes));
  }
  EXPECT_EQ(read_global(*storage, "r").value()->record, (GlobalRecord{kRun, 4, 40, 2}));
}

TEST(StoreGlobalTest, EitherCopyIsEnoughAndTheOlderRecordIsToldApart) {
  Timeline timeline(1);
  auto storage = make_sim_storage(timeline);
  ASSERT_TRUE(storage->make_directory("r"));
  EXPECT_FALSE(read_global(*storage, "r").value());
  EXPECT_FALSE(read_global(*storage, "nowhere").value());
  GlobalRecords records(*storage, "r");
  ASSERT_TRUE(records.reserve());
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) {
    ASSERT_TRUE(records.write({kRun, sequence, sequence * 10, 2}));
  }
  EXPECT_EQ(records_in(*storage),
            (std::vector<std::string>{"global.3.a", "global.3.b", "global.4.a", "global.4.b"}));
  ASSERT_TRUE(storage->flip_bit("r/global.4.a", 300));
  auto found = read_global(*storage, "r").value();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->record, (GlobalRecord{kRun, 4, 40, 2}));
  EXPECT_TRUE(found->is_newest);
  for (std::uint64_t bit = 0; bit < 88 * 8; ++bit) {
    ASSERT_TRUE(storage->flip_bit("r/global.4.b", bit));
    found = read_global(*storage, "r").value();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->record.sequence, 3U) << "bit " << bit;
    EXPECT_FALSE(found->is_newest) << "its slots may have been used since";
    ASSERT_TRUE(storage->flip_bit("r/global.4.b", bit));
  }
  for (const char* name : {"global.4.b", "global.3.a", "global.3.b"}) {
    ASSERT_TRUE(storage->flip_bit(std::string("r/") + name, 300));
  }
  EXPECT_EQ(read_global(*storage, "r").error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace penstock::test
