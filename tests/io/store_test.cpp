// The life of a store on a simulated drive: create, commit, open again, locks, refusals.

#include "io/store.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/store_fixture.hpp"
#include "io/store_format.hpp"
#include "io/store_impl.hpp"
#include "io/store_layout.hpp"
#include "io/store_owner.hpp"
#include "io/store_verify.hpp"

namespace penstock::test {
namespace {

bool mentions(const Error& error, const std::string& text) {
  return error.message.find(text) != std::string::npos;
}

TEST_F(StoreTest, CommittedStateComesBackExactly) {
  make_committed(0);
  auto store = open();
  ASSERT_TRUE(store);
  expect_state(*store, 0);
  EXPECT_EQ(store->open_note(), "");
  EXPECT_EQ(store->geometry().description, small_geometry().description);
  EXPECT_EQ(store->geometry().spill_bytes, small_geometry().spill_bytes);
  EXPECT_TRUE(store->has_commit());
}

TEST_F(StoreTest, GoesOnAfterReopeningAndKeepsTheLastTwoManifests) {
  make_committed(3);
  {
    auto store = open();
    ASSERT_TRUE(store);
    SlotTable table = store->make_table();
    EXPECT_EQ(table.free_slots(), 5U) << "11 slots, 6 named by the manifest";
    write_all(*store, table, 4);
    ASSERT_TRUE(commit_all(*store, table, 4));
  }
  EXPECT_TRUE(exists("manifest.4.a") && exists("manifest.4.b"));
  EXPECT_TRUE(exists("manifest.3.a") && exists("manifest.3.b"));
  EXPECT_FALSE(exists("manifest.2.a") || exists("manifest.2.b"));
  EXPECT_FALSE(exists("manifest.4.a.tmp"));
  auto store = open();
  ASSERT_TRUE(store);
  expect_state(*store, 4);
}

TEST_F(StoreTest, ASkippedStepCommitsANewBlobWithTheSameTable) {
  auto store = create();
  SlotTable table = store->make_table();
  write_all(*store, table, 0);
  ASSERT_TRUE(commit_all(*store, table, 0));
  ASSERT_TRUE(commit_all(*store, table, 1));
  store.reset();
  store = open();
  ASSERT_TRUE(store);
  EXPECT_EQ(store->committed().step, 1U);
  EXPECT_EQ(store->committed().blob, make_record(1).blob);
  EXPECT_EQ(check_block(*store, store->make_table(), 0, 0), "");
}

TEST_F(StoreTest, HoldsSectionsOfAnyLength) {
  StoreGeometry geometry;
  geometry.sections = {{"a", "u8", true, 4096}, {"b", "u8", true, 7}};
  std::uint64_t key = 1;
  for (const std::uint64_t length : {0U, 1U, 3U, 255U, 4095U, 4096U, 4097U, 8191U, 12289U}) {
    geometry.blocks.push_back({key++, {length, 12289 - length}, key % 2 == 0});
  }
  auto store = create(geometry);
  ASSERT_TRUE(store);
  SlotTable table = store->make_table();
  write_all(*store, table, 0);
  ASSERT_TRUE(commit_all(*store, table, 0));
  store.reset();
  store = open();
  ASSERT_TRUE(store);
  for (std::size_t block = 0; block < geometry.blocks.size(); ++block) {
    EXPECT_EQ(check_block(*store, store->make_table(), block, 0), "");
  }
  EXPECT_TRUE(verify_store(*store).value().empty());
}

TEST_F(StoreTest, PlacesDoNotOverlapAndLieInsideTheFile) {
  auto store = create();
  ASSERT_TRUE(store);
  std::uint64_t end = kSlotsOffsetBytes;
  for (std::size_t i = 0; i < store->slot_count(); ++i) {
    EXPECT_EQ(store->slot(static_cast<SlotIndex>(i)).offset_bytes, end);
    end += store->slot_bytes();
  }
  EXPECT_GE(store->spill(0).offset_bytes, end);
  EXPECT_GE(store->spill(1).offset_bytes, store->spill(0).offset_bytes + 5000);
  EXPECT_LE(store->spill(1).offset_bytes + 1, store->file_bytes());
  EXPECT_EQ(storage_->size_bytes(store->slot(0).file).value(), store->file_bytes());
}

TEST_F(StoreTest, ScratchHasOneSlotPerBlockNoNameAndNoCommits) {
  StoreOptions options = quick_options();
  options.scratch = true;
  auto store = create(small_geometry(), options);
  ASSERT_TRUE(store);
  EXPECT_EQ(store->slot_count(), 6U);
  SlotTable table = store->make_table();
  for (std::uint64_t version = 0; version < 3; ++version) {
    write_all(*store, table, version);
    EXPECT_EQ(check_block(*store, table, 0, version), "");
  }
  EXPECT_EQ(table.free_slots(), 0U);
  table.commit_begin();
  EXPECT_EQ(store->commit(make_record(0), table.commit_entries()).error().code, Errc::kState);
  EXPECT_TRUE(storage_->list(kDirectory).value().empty());
  EXPECT_EQ(open_store(*storage_, kDirectory, options, true).error().code, Errc::kArgument);
}

TEST_F(StoreTest, ASecondOpeningIsRefusedAtOnceWithThePid) {
  make_committed(0);
  auto store = open();
  ASSERT_TRUE(store);
  StoreOptions patient = quick_options();
  patient.lock_wait_ns = ~std::uint64_t{0};  // a running owner must not be waited for
  auto second = open_store(*storage_, kDirectory, patient, true);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::kState);
  EXPECT_TRUE(mentions(second.error(), "in use by pid " + std::to_string(getpid())));
  auto reader = open(false);
  ASSERT_TRUE(reader) << "readers take no lock";
  expect_state(*reader, 0);
}

TEST_F(StoreTest, ADeadOwnersLockIsWaitedForThenReported) {
  make_committed(0);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_GT(child, 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  StoreOwner owner = this_process();
  owner.pid = child;
  ASSERT_TRUE(write_owner(*storage_, kDirectory, owner));
  auto held = storage_->open(kDirectory + "/data.0", {});
  ASSERT_TRUE(held && storage_->lock(held.value()));
  StoreOptions options = quick_options();
  options.lock_wait_ns = 30'000'000;
  auto store = open_store(*storage_, kDirectory, options, true);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Errc::kState);
  EXPECT_TRUE(mentions(store.error(), "still locked after 30 ms"));
  EXPECT_TRUE(mentions(store.error(), "pid " + std::to_string(child)));
  ASSERT_TRUE(storage_->close(held.value()));
  EXPECT_TRUE(open());
}

TEST(StoreOwnerTest, KnowsARunningProcessFromOthers) {
  StoreOwner owner = this_process();
  EXPECT_TRUE(is_running(owner));
  StoreOwner other = owner;
  other.boot_id = "another boot";
  EXPECT_FALSE(is_running(other));
  other = owner;
  other.host = "another host";
  EXPECT_FALSE(is_running(other));
  other = owner;
  other.start_time += 1;  // the pid was given to another process
  EXPECT_FALSE(is_running(other));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_GT(child, 0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  other = owner;
  other.pid = child;
  other.start_time = 0;
  EXPECT_FALSE(is_running(other)) << "a zombie does not use a store";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_running(other));
}

TEST_F(StoreTest, CreateRefusesAnExistingStore) {
  make_committed(0);
  auto second = create_store(*storage_, kDirectory, small_geometry(), quick_options());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::kState);
  auto store = open();
  ASSERT_TRUE(store);
  expect_state(*store, 0);
}

TEST_F(StoreTest, CreateChecksSpaceBeforeItWritesAnything) {
  const std::uint64_t needed = plan_layout(small_geometry(), false).value().files[0].file_bytes;
  SimFaults faults;
  faults.capacity_bytes = needed;  // no room for manifests
  storage_->set_faults(faults);
  auto store = create_store(*storage_, kDirectory, small_geometry(), quick_options());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Errc::kNoSpace);
  EXPECT_TRUE(mentions(store.error(), std::to_string(needed) + " bytes) free"))
      << store.error().message;
  EXPECT_FALSE(storage_->exists(kDirectory).value()) << "not even the directory";
  faults.capacity_bytes = needed + (std::uint64_t{8} << 20);
  storage_->set_faults(faults);
  EXPECT_TRUE(create());
}

TEST_F(StoreTest, AnUnfinishedCreationIsReportedAndMayBeDoneAgain) {
  create().reset();
  EXPECT_EQ(open_error().code, Errc::kState);
  EXPECT_TRUE(mentions(open_error(), "did not finish")) << open_error().message;
  make_committed(1);  // with the same geometry
  expect_state(*open(), 1);
}

TEST_F(StoreTest, AnUnfinishedCreationMayBeDoneAgainWithAnotherGeometry) {
  create().reset();
  StoreGeometry smaller = small_geometry();
  smaller.blocks.resize(1);
  smaller.spill_bytes.clear();
  auto store = create(smaller);
  ASSERT_TRUE(store);
  SlotTable table = store->make_table();
  write_all(*store, table, 0);
  ASSERT_TRUE(commit_all(*store, table, 0));
  store.reset();
  store = open();
  ASSERT_TRUE(store);
  EXPECT_EQ(store->geometry().blocks.size(), 1U);
  EXPECT_EQ(check_block(*store, store->make_table(), 0, 0), "");
}

TEST_F(StoreTest, CreateLeavesFilesOfOthersAlone) {
  ASSERT_TRUE(storage_->make_directory(kDirectory));
  const std::string text(16384, 'x');
  const auto bytes = std::as_bytes(std::span(text));
  for (const std::size_t length : {std::size_t{0}, std::size_t{100}, text.size()}) {
    ASSERT_TRUE(replace_file(*storage_, kDirectory + "/data.0", bytes.first(length)));
    auto store = create_store(*storage_, kDirectory, small_geometry(), quick_options());
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, Errc::kState);
    EXPECT_TRUE(mentions(store.error(), "left alone"));
    EXPECT_EQ(bytes_of("data.0").size(), length);
    EXPECT_FALSE(exists("owner.json"));
    EXPECT_EQ(open_error().code, Errc::kState);
    EXPECT_FALSE(mentions(open_error(), "did not finish"));
  }
  ASSERT_TRUE(storage_->remove(kDirectory + "/data.0"));
  ASSERT_TRUE(replace_file(*storage_, kDirectory + "/owner.json", bytes.first(10)));
  auto store = create_store(*storage_, kDirectory, small_geometry(), quick_options());
  ASSERT_FALSE(store);
  EXPECT_TRUE(mentions(store.error(), "left alone"));
  EXPECT_EQ(bytes_of("owner.json").size(), 10U);
}

TEST_F(StoreTest, AHeaderlessFileIsTakenOverOnlyWithTheMarkOfACreation) {
  ASSERT_TRUE(storage_->make_directory(kDirectory));
  ASSERT_TRUE(write_owner(*storage_, kDirectory, this_process()));
  EXPECT_TRUE(mentions(open_error(), "did not finish")) << "before data.0 exists";
  ASSERT_TRUE(replace_file(*storage_, kDirectory + "/data.0", {}));
  EXPECT_TRUE(mentions(open_error(), "did not finish")) << "before its headers are written";
  EXPECT_TRUE(create());
}

TEST_F(StoreTest, ForeignNamesSurviveCommits) {
  make_committed(0);
  const std::string text = "mine";
  for (const std::string name : {"manifest.0", "manifest.00.a", "manifest.0.c", "manifest.0.a.tmp2",
                                 "manifest.-1.a", "manifest.0.a.bak", "notes.txt"}) {
    ASSERT_TRUE(replace_file(*storage_, kDirectory + "/" + name, std::as_bytes(std::span(text))));
  }
  {
    auto store = open();
    ASSERT_TRUE(store);
    SlotTable table = store->make_table();
    for (std::uint64_t step = 1; step < 4; ++step) {
      write_all(*store, table, step);
      ASSERT_TRUE(commit_all(*store, table, step));
    }
  }
  for (const std::string name : {"manifest.0", "manifest.00.a", "manifest.0.c", "manifest.0.a.tmp2",
                                 "manifest.-1.a", "manifest.0.a.bak", "notes.txt"}) {
    EXPECT_TRUE(exists(name)) << name;
  }
  EXPECT_FALSE(exists("manifest.0.a"));
}

TEST_F(StoreTest, OpeningNothingSaysSo) {
  EXPECT_EQ(open_error().code, Errc::kState);
  EXPECT_TRUE(mentions(open_error(), "does not exist"));
}

TEST_F(StoreTest, AReaderNeverCommits) {
  make_committed(0);
  auto store = open(false);
  ASSERT_TRUE(store);
  SlotTable table = store->make_table();
  const std::uint64_t before = storage_->digest();
  EXPECT_EQ(commit_all(*store, table, 1).error().code, Errc::kState);
  EXPECT_EQ(storage_->digest(), before);
}

TEST_F(StoreTest, CommitRefusesIncompleteOrTwiceUsedSlotsAndStepsThatDoNotRise) {
  auto store = create();
  SlotTable table = store->make_table();
  write_all(*store, table, 0);
  std::vector<SlotEntry> entries;
  for (std::size_t block = 0; block < 6; ++block) entries.push_back(table.entry(block));
  const auto refused = [&](const std::vector<SlotEntry>& bad, std::uint64_t step) {
    // A refusal is final, so every case has a store of its own.
    const Errc code = store->commit(make_record(step), bad).error().code;
    EXPECT_FALSE(store->commit(make_record(step), entries)) << "an error is final";
    EXPECT_FALSE(store->has_commit());
    store.reset();
    store = create();
    return code;
  };
  std::vector<SlotEntry> bad = entries;
  bad[1].slot = bad[0].slot;
  EXPECT_EQ(refused(bad, 0), Errc::kInternal);
  bad = entries;
  bad[0].written &= ~2U;
  EXPECT_EQ(refused(bad, 0), Errc::kInternal);
  bad = entries;
  bad[3].slot = kNoSlot;
  EXPECT_EQ(refused(bad, 0), Errc::kInternal);
  bad = entries;
  bad.pop_back();
  EXPECT_EQ(refused(bad, 0), Errc::kArgument);
  ASSERT_TRUE(store->commit(make_record(3), entries));
  EXPECT_EQ(store->commit(make_record(3), entries).error().code, Errc::kArgument);
}

TEST_F(StoreTest, CommitRefusesABlobBeyondTheLimit) {
  auto store = create();
  SlotTable table = store->make_table();
  write_all(*store, table, 0);
  CommitRecord record = make_record(0);
  record.blob.resize(kMaxBlobBytes + 1);
  table.commit_begin();
  for (std::size_t block = 0; block < 6; ++block) table.commit_record(block);
  EXPECT_EQ(store->commit(record, table.commit_entries()).error().code, Errc::kArgument);
  EXPECT_FALSE(exists("manifest.0.a"));
}

TEST_F(StoreTest, UuidsDifferUnlessSeeded) {
  StoreGeometry geometry = small_geometry();
  const auto seed_of = [&](const std::string& directory, std::uint64_t uuid_seed) {
    StoreOptions options = quick_options();
    options.uuid_seed = uuid_seed;
    return create_store(*storage_, directory, geometry, options).value()->tile_seed(0, 0, 0, 0);
  };
  EXPECT_EQ(seed_of("a", 1), seed_of("b", 1));
  EXPECT_NE(seed_of("c", 2), seed_of("d", 1));
  EXPECT_NE(seed_of("e", 0), seed_of("f", 0));
}

TEST(ManifestNameTest, AcceptsExactlyWhatItMakes) {
  const auto parsed = parse_manifest_name("manifest.9007199254740992.b.tmp");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->sequence, kLastSequence);
  EXPECT_EQ(parsed->copy, 'b');
  EXPECT_TRUE(parsed->temporary);
  for (const char* name : {"manifest.0.a", "pin.best.a", "pin.step-12.b", "pin.v1.0.a.tmp",
                           "pin.x.tmp.b", "pin.a.a.a"}) {
    const auto own = parse_manifest_name(name);
    ASSERT_TRUE(own) << name;
    EXPECT_EQ(manifest_name(*own), name);
  }
  EXPECT_EQ(parse_manifest_name("pin.v1.0.a.tmp")->pin, "v1.0");
  const char* const others[] = {"manifest.",
                                "manifest..a",
                                "manifest.1",
                                "manifest.1.",
                                "manifest.01.a",
                                "manifest.1.c",
                                "manifest.1a.a",
                                "manifest.+1.a",
                                "Manifest.1.a",
                                "manifest.1.ab",
                                "manifest.1 .a",
                                "manifest.a",
                                ".tmp",
                                "",
                                "manifest.1.a.tmp.tmp",
                                "pin.a",
                                "pin..a",
                                "pin..x.a",
                                "pin.a b.a",
                                "pin.x.c",
                                "pin.x.a.tmp.tmp",
                                "pin./.a",
                                "manifest.9007199254740993.a",
                                "manifest.18446744073709551615.a",
                                "manifest.18446744073709551616.a"};
  for (const char* name : others) {
    EXPECT_FALSE(parse_manifest_name(name)) << name;
  }
}

}  // namespace
}  // namespace penstock::test
