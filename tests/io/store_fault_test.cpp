// Method: the storage fails its n-th call, n = 1, 2, ... until the run completes. Whatever fails,
// the caller must be told, nothing may be written afterwards, and the drive must hold the newest
// acknowledged commit.

#include <gtest/gtest.h>

#include <cerrno>

#include "io/forwarding_storage.hpp"
#include "io/store_fixture.hpp"

namespace penstock::test {
namespace {

/// Hands every call on, but fails the n-th and, once it has, counts calls that change the drive.
class FailingStorage final : public ForwardingStorage {
 public:
  FailingStorage(Storage& storage, std::uint64_t fail_at, bool changes_only)
      : ForwardingStorage(storage), fail_at_(fail_at), changes_only_(changes_only) {}

  bool failed() const { return failed_; }
  bool failed_change() const { return failed_change_; }
  std::uint64_t changes_after() const { return changes_after_; }

  Result<FileId> open(const std::string& path, const OpenOptions& options) override {
    if (strikes(options.create)) return error(path);
    return under_.open(path, options);
  }
  Result<std::uint64_t> size_bytes(FileId file) override {
    if (strikes(false)) return error("size");
    return under_.size_bytes(file);
  }
  Status preallocate(FileId file, std::uint64_t bytes) override {
    if (strikes(true)) return error("preallocate");
    return under_.preallocate(file, bytes);
  }
  Status extend(FileId file, std::uint64_t bytes) override {
    if (strikes(true)) return error("extend");
    return under_.extend(file, bytes);
  }
  Status sync_data(FileId file) override {
    if (strikes(true)) return error("sync_data");
    return under_.sync_data(file);
  }
  Status sync_all(std::span<const FileId> files) override { return Storage::sync_all(files); }
  Status lock(FileId file) override {
    if (strikes(false)) return error("lock");
    return under_.lock(file);
  }
  Status read_at(FileId file, std::uint64_t offset, std::span<std::byte> into) override {
    if (strikes(false)) return error("read_at");
    return under_.read_at(file, offset, into);
  }
  Status write_at(FileId file, std::uint64_t offset, std::span<const std::byte> from) override {
    if (strikes(true)) return error("write_at");
    return under_.write_at(file, offset, from);
  }
  Result<std::vector<std::byte>> read_file(const std::string& path, std::uint64_t max) override {
    if (strikes(false)) return error(path);
    return under_.read_file(path, max);
  }
  Status write_file(const std::string& path, std::span<const std::byte> bytes) override {
    if (strikes(true)) return error(path);
    return under_.write_file(path, bytes);
  }
  Status overwrite_file(const std::string& path, std::span<const std::byte> bytes) override {
    if (strikes(true)) return error(path);
    return under_.overwrite_file(path, bytes);
  }
  Status sync_file(const std::string& path) override {
    if (strikes(true)) return error(path);
    return under_.sync_file(path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    if (strikes(true)) return error(from);
    return under_.rename(from, to);
  }
  Status remove(const std::string& path) override {
    if (strikes(true)) return error(path);
    return under_.remove(path);
  }
  Status sync_directory(const std::string& path) override {
    if (strikes(true)) return error(path);
    return under_.sync_directory(path);
  }
  Status check_private(const std::string& path) override {
    if (strikes(false)) return error(path);
    return under_.check_private(path);
  }
  Status make_directory(const std::string& path) override {
    if (strikes(true)) return error(path);
    return under_.make_directory(path);
  }
  Result<bool> exists(const std::string& path) override {
    if (strikes(false)) return error(path);
    return under_.exists(path);
  }
  Result<std::vector<std::string>> list(const std::string& directory) override {
    if (strikes(false)) return error(directory);
    return under_.list(directory);
  }
  Result<bool> is_named(FileId file, const std::string& path) override {
    if (strikes(false)) return error(path);
    return under_.is_named(file, path);
  }
  Result<std::uint64_t> free_bytes(const std::string& directory) override {
    if (strikes(false)) return error(directory);
    return under_.free_bytes(directory);
  }

 private:
  bool strikes(bool changes) {
    if (failed_ && changes) ++changes_after_;
    if (changes_only_ && !changes) return false;
    if (++calls_ != fail_at_) return false;
    failed_ = true;
    failed_change_ = changes;
    return true;
  }
  static Error error(const std::string& what) {
    return make_error(Errc::kIo, what + ": injected", EIO);
  }

  std::uint64_t fail_at_, calls_ = 0, changes_after_ = 0;
  bool changes_only_, failed_ = false, failed_change_ = false;
};

/// What a run with a failure got to.
struct Outcome {
  bool created = false;
  std::optional<std::uint64_t> acknowledged;
  Status last = ok();
};

/// Creates a store and commits steps 0..2; stops at the first error.
Outcome create_and_commit(Storage& faulty, Storage& plain) {
  Outcome run;
  auto store = create_store(faulty, kDirectory, small_geometry(), quick_options());
  if (!store) {
    run.last = std::move(store).error();
    return run;
  }
  run.created = true;
  SlotTable table = store.value()->make_table();
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (std::size_t block = 0; block < 6; ++block) {
      if (step == 0 || block != 5) write_version(plain, *store.value(), table, block, step);
    }
    run.last = commit_all(*store.value(), table, step);
    if (!run.last) {
      EXPECT_FALSE(store.value()->commit(make_record(step + 9), table.commit_entries()));
      return run;
    }
    run.acknowledged = step;
  }
  return run;
}

TEST(StoreFaultTest, AnyFailingCallOfCreationOrCommitIsReportedAndLosesNothing) {
  std::uint64_t failures = 0, harmless = 0;
  for (std::uint64_t n = 1;; ++n) {
    Timeline timeline(n);
    auto storage = make_sim_storage(timeline);
    FailingStorage faulty(*storage, n, false);
    const Outcome run = create_and_commit(faulty, *storage);
    if (!faulty.failed()) break;
    ASSERT_LT(n, 500U);
    ++failures;
    if (run.last) {
      // Only removing old manifests may fail unreported, for the commit stands, and reading what is
      // read again.
      if (faulty.failed_change()) ++harmless;
      ASSERT_EQ(run.acknowledged, 2U) << "call " << n;
    } else {
      ASSERT_NE(run.last.error().message.find("injected"), std::string::npos)
          << "call " << n << ": " << run.last.error().message;
      ASSERT_EQ(faulty.changes_after(), 0U) << "call " << n << " failed and something was written";
    }
    auto reopened = open_store(*storage, kDirectory, quick_options(), true);
    if (!run.acknowledged) {
      if (reopened) continue;  // the commit was on its way and got there
      ASSERT_EQ(reopened.error().code, Errc::kState) << "call " << n;
      ASSERT_TRUE(create_store(*storage, kDirectory, small_geometry(), quick_options()))
          << "call " << n;
      continue;
    }
    ASSERT_TRUE(reopened) << "call " << n << ": " << reopened.error().message;
    const std::uint64_t step = reopened.value()->committed().step;
    ASSERT_GE(step, *run.acknowledged);
    ASSERT_LE(step, *run.acknowledged + 1);
    const SlotTable table = reopened.value()->make_table();
    for (std::size_t block = 0; block < 6; ++block) {
      ASSERT_EQ(check_block(*reopened.value(), table, block, block == 5 ? 0 : step), "");
    }
  }
  EXPECT_GT(failures, 40U);
  EXPECT_EQ(harmless, 2U) << "the two removals of step 0's manifests";
}

TEST(StoreFaultTest, AnyFailingCallOfOpeningIsReportedOrHealed) {
  Timeline timeline(1);
  auto storage = make_sim_storage(timeline);
  ASSERT_EQ(create_and_commit(*storage, *storage).acknowledged, 2U);
  std::uint64_t healed = 0, reported = 0;
  for (std::uint64_t n = 1;; ++n) {
    FailingStorage faulty(*storage, n, false);
    auto store = open_store(faulty, kDirectory, quick_options(), true);
    if (!faulty.failed()) break;
    ASSERT_LT(n, 100U);
    if (!store) {
      ++reported;
      EXPECT_NE(store.error().message.find("injected"), std::string::npos);
      EXPECT_NE(store.error().code, Errc::kCorrupt);
      continue;
    }
    ++healed;
    EXPECT_EQ(store.value()->committed().step, 2U) << "a failing read must not lose a commit";
    EXPECT_EQ(store.value()->open_note(), "");
  }
  EXPECT_GE(healed, 2U) << "reads of the header and the manifest are tried again";
  EXPECT_GE(reported, 5U);
}

TEST(StoreFaultTest, AnUnreadableNewestManifestIsAnErrorNotAFallback) {
  Timeline timeline(1);
  auto storage = make_sim_storage(timeline);
  ASSERT_EQ(create_and_commit(*storage, *storage).acknowledged, 2U);
  SimFaults faults;
  faults.read_error = 65536;
  storage->set_faults(faults);
  auto store = open_store(*storage, kDirectory, quick_options(), true);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Errc::kIo);
}

TEST(StoreFaultTest, AFailedFlushIsFinal) {
  for (std::uint64_t sync = 1; sync < 40; ++sync) {
    Timeline timeline(sync);
    auto storage = make_sim_storage(timeline);
    SimFaults faults;
    faults.fail_sync_at = sync;
    storage->set_faults(faults);
    const Outcome run = create_and_commit(*storage, *storage);
    if (run.last) {
      EXPECT_GT(sync, 10U) << "every flush of the run must have failed once";
      return;
    }
    EXPECT_EQ(run.last.error().code, Errc::kIo);
    // After a failed flush the machine may as well lose power: the acknowledged step must be there.
    Timeline after(sync);
    auto image = storage->after_power_loss(after, sync);
    auto store = open_store(*image, kDirectory, quick_options(), true);
    if (!run.acknowledged) continue;
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_GE(store.value()->committed().step, *run.acknowledged);
  }
  FAIL() << "the run never completed";
}

}  // namespace
}  // namespace penstock::test
