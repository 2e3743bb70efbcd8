// What a store knows of the bytes written to it in its life. Method: every store is written through
// a counting storage over a simulated drive; what the records say is compared with its count. A new
// counting storage over what is left of the drive is a new process.

#include "io/store_lifetime.hpp"

#include "io/counting_storage.hpp"
#include "io/store_fixture.hpp"
#include "io/store_format.hpp"
#include "io/store_pins.hpp"

namespace penstock::test {
namespace {

/// A process: its storage, and what it writes.
struct Process {
  explicit Process(std::unique_ptr<SimStorage> drive)
      : sim(*drive), storage(std::make_unique<CountingStorage>(std::move(drive))) {}

  std::unique_ptr<Store> create(const StoreDirectories& directories,
                                const StoreGeometry& geometry) {
    auto made = create_store(*storage, directories, geometry, quick_options());
    EXPECT_TRUE(made) << made.error().message;
    return std::move(made).value();
  }
  std::unique_ptr<Store> open(const StoreDirectories& directories = kDirectory,
                              const StoreOptions& options = quick_options()) {
    auto opened = open_store(*storage, directories, options, true);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(opened).value();
  }
  void step(Store& store, SlotTable& table, std::uint64_t step) {
    write(store, table, step);
    const Status done = commit_all(store, table, step);
    ASSERT_TRUE(done) << done.error().message;
  }
  void write(Store& store, SlotTable& table, std::uint64_t step) {
    for (std::size_t block = 0; block < store.geometry().blocks.size(); ++block) {
      if (step != 0 && store.geometry().blocks[block].frozen) continue;
      write_version(*storage, store, table, block, step);
    }
  }
  [[nodiscard]] std::uint64_t written(const std::string& directory = kDirectory) const {
    return storage->written_bytes(directory);
  }
  /// What somebody who only looks finds.
  std::optional<LifetimeBytes> recorded(const StoreDirectories& directories = kDirectory) {
    auto opened = open_store(sim, directories, quick_options(), false);
    EXPECT_TRUE(opened) << opened.error().message;
    return opened.value()->lifetime();
  }

  SimStorage& sim;
  std::unique_ptr<CountingStorage> storage;
};

class StoreLifetimeTest : public ::testing::Test {
 protected:
  static StoreGeometry with_room() {
    StoreGeometry geometry = small_geometry();
    geometry.pins = 2;
    return geometry;
  }
  /// Steps 0..last of a new store, closed again.
  void make_committed(Process& process, std::uint64_t last) {
    auto store = process.create(kDirectory, with_room());
    SlotTable table = store->make_table();
    for (std::uint64_t step = 0; step <= last; ++step) process.step(*store, table, step);
  }
  Process start() { return Process(make_sim_storage(timeline_)); }
  /// The machine stops; another process finds what is on the drive.
  Process after(const Process& process) { return Process(process.sim.after_kill(timeline_)); }

  Timeline timeline_{3};
};

TEST_F(StoreLifetimeTest, TheLastCommitRecordsAllThatWasWritten) {
  Process process = start();
  make_committed(process, 3);
  const auto found = process.recorded();
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->is_complete);
  EXPECT_EQ(found->written, std::vector<std::uint64_t>{process.written()})
      << "headers, spares, first versions, steps and manifests, the last ones included";
}

TEST_F(StoreLifetimeTest, FurtherProcessesAddToIt) {
  Process first = start();
  make_committed(first, 3);
  Process second = after(first);
  {
    auto store = second.open();
    EXPECT_EQ(store->lifetime()->total(), first.written() + second.written());
    SlotTable table = store->make_table();
    second.step(*store, table, 4);
    EXPECT_EQ(store->lifetime()->total(), first.written() + second.written());
  }
  EXPECT_GT(second.written(), 0U);
  EXPECT_EQ(second.recorded()->total(), first.written() + second.written());
}

TEST_F(StoreLifetimeTest, EachDirectoryHasItsOwnCount) {
  Process process = start();
  StoreGeometry geometry = small_geometry();
  geometry.drives = {1, 2, 1};
  const StoreDirectories directories(std::vector<std::string>{"x", "y", "z"});
  {
    auto store = process.create(directories, geometry);
    SlotTable table = store->make_table();
    for (std::uint64_t step = 0; step < 3; ++step) process.step(*store, table, step);
  }
  const auto found = process.recorded(directories);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->written, (std::vector<std::uint64_t>{process.written("x"), process.written("y"),
                                                        process.written("z")}));
  EXPECT_NE(found->written[0], found->written[2]) << "manifests are on the first two";
}

TEST_F(StoreLifetimeTest, AKillLosesNoMoreThanWasWrittenSinceTheLastCommit) {
  Process process = start();
  auto store = process.create(kDirectory, with_room());
  SlotTable table = store->make_table();
  for (std::uint64_t step = 0; step < 3; ++step) process.step(*store, table, step);
  const std::uint64_t at_commit = process.written();
  process.write(*store, table, 3);
  EXPECT_GT(process.written(), at_commit);
  EXPECT_EQ(store->lifetime()->total(), process.written());
  Process killed = after(process);
  EXPECT_EQ(killed.recorded()->total(), at_commit);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {  // the same of a power loss
    Process lost(process.sim.after_power_loss(timeline_, seed));
    EXPECT_EQ(lost.recorded()->total(), at_commit);
    EXPECT_TRUE(lost.recorded()->is_complete);
  }
}

TEST_F(StoreLifetimeTest, GoingBackToACheckpointDoesNotLowerIt) {
  for (const bool damaged : {false, true}) {
    Process process = start();
    {
      auto store = process.create(kDirectory, with_room());
      SlotTable table = store->make_table();
      for (std::uint64_t step = 0; step < 2; ++step) process.step(*store, table, step);
      auto kept = store->pin("early", false);
      ASSERT_TRUE(kept);
      table.change_pins(kept.value().kept, kept.value().dropped);
      for (std::uint64_t step = 2; step < 7; ++step) process.step(*store, table, step);
    }
    if (damaged) {  // a restart is what such a checkpoint is for; the records are whole
      for (const char* name : {"manifest.6.a", "manifest.6.b", "manifest.5.a", "manifest.5.b"}) {
        ASSERT_TRUE(process.sim.flip_bit(kDirectory + "/" + name, 64 * 8));
      }
    }
    Process second = after(process);
    ASSERT_TRUE(restore_pin(*second.storage, kDirectory, "early", quick_options()));
    const auto found = second.recorded();
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->is_complete);
    EXPECT_EQ(found->total(), process.written() + second.written());
    StoreOptions options = quick_options();
    options.pin = "early";
    auto looked = open_store(second.sim, kDirectory, options, false);
    ASSERT_TRUE(looked);
    EXPECT_EQ(looked.value()->lifetime()->total(), found->total()) << "the store's, not its own";
  }
}

TEST_F(StoreLifetimeTest, CommitsThatTheRanksGiveUpStillCount) {
  StoreOptions options = quick_options();
  options.ranks.count = 2;
  options.ranks.uuid = {8, 9};
  Process process = start();
  std::uint64_t agreed = 0;
  {
    auto made = create_store(*process.storage, kDirectory, with_room(), options);
    ASSERT_TRUE(made) << made.error().message;
    SlotTable table = made.value()->make_table();
    process.step(*made.value(), table, 0);
    agreed = made.value()->sequence();
    process.step(*made.value(), table, 1);
  }
  Process second = after(process);
  options.ranks.sequence = agreed;
  auto store = second.open(kDirectory, options);
  EXPECT_EQ(store->committed().step, 0U);
  EXPECT_EQ(store->lifetime()->total(), process.written() + second.written());
  EXPECT_TRUE(store->lifetime()->is_complete);
}

TEST_F(StoreLifetimeTest, AStoreOfAnEarlierBuildIsUnknownBefore) {
  auto drive = make_sim_storage(timeline_);
  {
    auto store = create_store(*drive, kDirectory, with_room(), quick_options());
    ASSERT_TRUE(store);
    SlotTable table = store.value()->make_table();
    for (std::size_t block = 0; block < 6; ++block) {
      write_version(*drive, *store.value(), table, block, 0);
    }
    ASSERT_TRUE(commit_all(*store.value(), table, 0));
    EXPECT_FALSE(store.value()->lifetime()) << "nobody counted";
  }
  Process process(std::move(drive));
  EXPECT_FALSE(process.recorded());
  {
    auto store = process.open();
    SlotTable table = store->make_table();
    process.step(*store, table, 1);
  }
  const auto found = process.recorded();
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->is_complete);
  EXPECT_EQ(found->total(), process.written());
  Process second = after(process);
  {
    auto store = second.open();
    SlotTable table = store->make_table();
    second.step(*store, table, 2);
  }
  EXPECT_FALSE(second.recorded()->is_complete) << "for good";
  EXPECT_EQ(second.recorded()->total(), process.written() + second.written());
}

TEST_F(StoreLifetimeTest, WhoDoesNotCountKeepsWhatIsKnown) {
  Process process = start();
  make_committed(process, 2);
  {
    auto store = open_store(process.sim, kDirectory, quick_options(), true);
    ASSERT_TRUE(store);
    SlotTable table = store.value()->make_table();
    ASSERT_TRUE(commit_all(*store.value(), table, 3));
  }
  const auto found = process.recorded();
  ASSERT_TRUE(found);
  EXPECT_GE(found->total(), process.written());
  EXPECT_FALSE(found->is_complete);
}

TEST_F(StoreLifetimeTest, ABuildThatDoesNotKnowTheRecordLeavesAGap) {
  Process process = start();
  make_committed(process, 2);
  const std::uint64_t known = process.recorded()->total();
  for (const char* name : {"manifest.2.a", "manifest.2.b"}) {
    const std::string path = kDirectory + "/" + name;
    const auto file = process.sim.read_file(path, 1 << 20).value();
    ASSERT_TRUE(replace_file(process.sim, path, manifest_in(file)));
  }
  const auto found = process.recorded();
  ASSERT_TRUE(found) << "the commit before has one";
  EXPECT_LT(found->total(), known);
  EXPECT_FALSE(found->is_complete);
}

TEST_F(StoreLifetimeTest, OneRecordOfTwoIsEnough) {
  Process process = start();
  make_committed(process, 2);
  const std::uint64_t known = process.recorded()->total();
  const std::string path = kDirectory + "/manifest.2.a";
  const auto file = process.sim.read_file(path, 1 << 20).value();
  ASSERT_TRUE(replace_file(process.sim, path, manifest_in(file)));
  const auto found = process.recorded();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->total(), known);
  EXPECT_TRUE(found->is_complete);
}

TEST_F(StoreLifetimeTest, AFileOfAnotherWithTheNameOfACommitIsNoGap) {
  Process process = start();
  make_committed(process, 2);
  const std::string text = "notes of a user";
  for (const auto& content : {std::as_bytes(std::span(text)), std::span<const std::byte>()}) {
    ASSERT_TRUE(replace_file(process.sim, kDirectory + "/manifest.77.a", content));
    EXPECT_TRUE(process.recorded()->is_complete);
  }
}

// --- the record's bytes ----------------------------------------------------------------------

std::vector<std::byte> manifest_of(std::uint64_t sequence) {
  Manifest manifest;
  manifest.uuid = manifest.sums_uuid = {1, 2};
  manifest.sequence = sequence;
  manifest.geometry = small_geometry();
  manifest.geometry.drives = {1, 1, 1};
  manifest.table.resize(manifest.geometry.blocks.size());
  return encode_manifest(manifest).value();
}

const LifetimeBytes kRecord{{std::uint64_t{1} << 50, 0, 77}, true};

TEST(LifetimeRecordTest, RoundTripsBehindAManifestThatStaysAsItWas) {
  const std::vector<std::byte> manifest = manifest_of(4);
  for (const bool complete : {true, false}) {
    for (const std::size_t rest : {0U, 1U, 5000U}) {
      LifetimeBytes record = kRecord;
      record.is_complete = complete;
      std::vector<std::byte> file = manifest;
      append_lifetime(file, record);
      EXPECT_EQ(file.size(), manifest.size() + lifetime_record_bytes(3));
      file.resize(file.size() + rest, std::byte{0xa5});  // as in a spare
      EXPECT_EQ(find_lifetime(file), record);
      const auto old = manifest_in(file);  // all that an earlier build looks at
      EXPECT_TRUE(std::equal(old.begin(), old.end(), manifest.begin(), manifest.end()));
      EXPECT_TRUE(decode_manifest(old, "x"));
    }
  }
  EXPECT_FALSE(find_lifetime(manifest));
  EXPECT_FALSE(find_lifetime({}));
}

TEST(LifetimeRecordTest, BytesStayAsTheyAre) {
  std::vector<std::byte> file = manifest_of(4);
  const std::size_t begin = file.size();
  append_lifetime(file, kRecord);
  const auto record = std::span(file).subspan(begin);
  EXPECT_EQ(std::memcmp(record.data(), "PNSTKLIF", 8), 0);
  EXPECT_EQ(std::memcmp(record.data() + 8, file.data() + begin - 16, 16), 0);
  const std::uint32_t counts[] = {3, 1};
  EXPECT_EQ(std::memcmp(record.data() + 24, counts, 8), 0);
  EXPECT_EQ(std::memcmp(record.data() + 32, kRecord.written.data(), 24), 0);
  EXPECT_EQ(record.size(), 72U);
}

TEST(LifetimeRecordTest, DamageMakesItMissing) {
  std::vector<std::byte> file = manifest_of(4);
  const std::size_t begin = file.size();
  append_lifetime(file, kRecord);
  for (std::size_t bit = begin * 8; bit < file.size() * 8; ++bit) {
    file[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
    ASSERT_FALSE(find_lifetime(file)) << "bit " << bit;
    file[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
  }
  for (std::size_t length = begin; length < file.size(); ++length) {
    const std::vector<std::byte> cut(file.begin(),
                                     file.begin() + static_cast<std::ptrdiff_t>(length));
    ASSERT_FALSE(find_lifetime(cut)) << length;
  }
  EXPECT_TRUE(find_lifetime(file));
}

TEST(LifetimeRecordTest, ARecordOfAnotherManifestIsNotTaken) {
  std::vector<std::byte> older = manifest_of(4), newer = manifest_of(5);
  ASSERT_EQ(older.size(), newer.size());
  append_lifetime(older, kRecord);
  std::copy(newer.begin(), newer.end(), older.begin());  // over a spare, by who knows no records
  EXPECT_TRUE(decode_manifest(manifest_in(older), "x"));
  EXPECT_FALSE(find_lifetime(older));
}

TEST(LifetimeCounterTest, TheLargestKnownCountsStay) {
  LifetimeCounter counter;
  EXPECT_FALSE(counter.read());
  counter.know({{5, 1}, true});
  counter.know({{3, 4}, true});
  EXPECT_EQ(counter.read(), (LifetimeBytes{{5, 4}, true}));
  counter.know({{9}, true});
  EXPECT_EQ(counter.read(), (LifetimeBytes{{5, 4}, true})) << "of another number of drives";
  counter.know({{0, 0}, false});
  EXPECT_EQ(counter.read(), (LifetimeBytes{{5, 4}, false}));
}

}  // namespace
}  // namespace penstock::test
