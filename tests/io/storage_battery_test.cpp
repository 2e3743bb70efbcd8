// What every Storage promises, run over the operating system's files and the simulation.

#include <gtest/gtest.h>

#include "io/storage_worlds.hpp"

namespace penstock::testing {
namespace {

class StorageBattery : public ::testing::TestWithParam<World> {
 protected:
  StorageBattery() : world_(GetParam()), storage_(world_.storage()) {}

  std::span<const std::byte> text(const std::string& words) {
    return std::as_bytes(std::span(words.data(), words.size()));
  }
  static std::string words(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  StorageWorld world_;
  Storage& storage_;
};

TEST_P(StorageBattery, CreateIsExclusiveAndOpenNeedsTheFile) {
  const std::string path = world_.path("f");
  const auto missing = storage_.open(path, {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().sys_errno, ENOENT);
  EXPECT_NE(missing.error().message.find(path), std::string::npos);
  EXPECT_FALSE(storage_.exists(path).value());
  const FileId file = storage_.open(path, {.create = true}).value();
  EXPECT_TRUE(storage_.exists(path).value());
  const auto again = storage_.open(path, {.create = true});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Errc::kState);
  EXPECT_EQ(again.error().sys_errno, EEXIST);
  EXPECT_TRUE(storage_.close(file).ok());
  const Status twice = storage_.close(file);
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code, Errc::kArgument);
  EXPECT_FALSE(storage_.size_bytes(file).ok());
}

TEST_P(StorageBattery, BlockingTransfersRoundTripAndReportTheEnd) {
  const FileId file = storage_.open(world_.path("f"), {.create = true}).value();
  EXPECT_GE(storage_.alignment_bytes(file), 4096U);
  EXPECT_EQ(storage_.alignment_bytes(file) % 4096, 0U);
  Pages written(600 * kPageBytes), read(601 * kPageBytes);
  fill_pattern(written.span(), 1);
  ASSERT_TRUE(storage_.write_at(file, kPageBytes, written.span()).ok());
  EXPECT_EQ(storage_.size_bytes(file).value(), 601 * kPageBytes);
  ASSERT_TRUE(storage_.read_at(file, 0, read.span()).ok());
  EXPECT_EQ(read.data()[17], std::byte{0});
  EXPECT_TRUE(has_pattern(read.span().subspan(kPageBytes), 1));
  const Status beyond = storage_.read_at(file, 2 * kPageBytes, read.span());
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code, Errc::kIo);
  EXPECT_EQ(beyond.error().sys_errno, 0);
  EXPECT_TRUE(storage_.read_at(file, 0, {}).ok());
  for (const std::uint64_t offset : {std::uint64_t{512}, std::uint64_t{4095}}) {
    const Status misplaced = storage_.read_at(file, offset, read.span().first(kPageBytes));
    ASSERT_FALSE(misplaced.ok());
    EXPECT_EQ(misplaced.error().code, Errc::kArgument);
  }
  EXPECT_FALSE(storage_.write_at(file, 0, written.span().first(100)).ok());
}

TEST_P(StorageBattery, MemoryOfBlockingTransfersMayBeMisaligned) {
  const FileId file = storage_.open(world_.path("f"), {.create = true}).value();
  constexpr std::uint64_t kBytes = 300 * kPageBytes;  // more than one bounce
  Pages written(kBytes + kPageBytes), read(kBytes + kPageBytes);
  fill_pattern(written.span().subspan(24, kBytes), 2);
  ASSERT_TRUE(storage_.write_at(file, 0, written.span().subspan(24, kBytes)).ok());
  ASSERT_TRUE(storage_.read_at(file, 0, read.span().subspan(40, kBytes)).ok());
  EXPECT_TRUE(has_pattern(read.span().subspan(40, kBytes), 2));
}

TEST_P(StorageBattery, ExtendSetsTheLengthAndSyncAllSyncsEach) {
  const FileId file = storage_.open(world_.path("f"), {.create = true}).value();
  const FileId other = storage_.open(world_.path("g"), {.create = true}).value();
  ASSERT_TRUE(storage_.extend(file, 100 * kPageBytes).ok());
  EXPECT_EQ(storage_.size_bytes(file).value(), 100 * kPageBytes);
  EXPECT_EQ(storage_.extend(file, kPageBytes).error().code, Errc::kArgument) << "never shrinks";
  Pages read(kPageBytes);
  ASSERT_TRUE(storage_.read_at(file, 99 * kPageBytes, read.span()).ok());
  for (const std::byte byte : read.span()) EXPECT_EQ(byte, std::byte{0});
  const FileId both[] = {file, other};
  EXPECT_TRUE(storage_.sync_all(both).ok());
  EXPECT_TRUE(storage_.sync_all({}).ok());
  const FileId missing[] = {file, other + 100};
  EXPECT_EQ(storage_.sync_all(missing).error().code, Errc::kArgument);
}

TEST_P(StorageBattery, PreallocateSetsTheLengthAndRefusesWhatDoesNotFit) {
  const FileId file = storage_.open(world_.path("f"), {.create = true}).value();
  ASSERT_TRUE(storage_.preallocate(file, 100 * kPageBytes).ok());
  EXPECT_EQ(storage_.size_bytes(file).value(), 100 * kPageBytes);
  EXPECT_FALSE(storage_.preallocate(file, kPageBytes).ok()) << "never shrinks";
  if (world_.simulated()) world_.sim().set_faults({.capacity_bytes = 1000 * kPageBytes});
  const std::uint64_t free = storage_.free_bytes(world_.directory()).value();
  ASSERT_LT(free, std::uint64_t{1} << 60);
  const std::uint64_t too_much = round_up(free, kPageBytes) + 4096 * kPageBytes;
  const Status refused = storage_.preallocate(file, too_much);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kNoSpace);
  EXPECT_NE(refused.error().message.find("needs"), std::string::npos);
  EXPECT_NE(refused.error().message.find("are free"), std::string::npos);
  EXPECT_EQ(storage_.size_bytes(file).value(), 100 * kPageBytes) << "no half-made growth";
  Pages zeros(kPageBytes), read(kPageBytes);
  ASSERT_TRUE(storage_.read_at(file, 99 * kPageBytes, read.span()).ok());
  EXPECT_EQ(std::memcmp(zeros.data(), read.data(), kPageBytes), 0);
}

TEST_P(StorageBattery, ALockBelongsToOneOpening) {
  const std::string path = world_.path("f");
  const FileId first = storage_.open(path, {.create = true}).value();
  const FileId second = storage_.open(path, {}).value();
  ASSERT_TRUE(storage_.lock(first).ok());
  EXPECT_TRUE(storage_.lock(first).ok()) << "again is fine";
  const Status busy = storage_.lock(second);
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().code, Errc::kState);
  EXPECT_NE(busy.error().message.find(path), std::string::npos);
  ASSERT_TRUE(storage_.close(second).ok());
  const FileId third = storage_.open(path, {}).value();
  EXPECT_FALSE(storage_.lock(third).ok()) << "closing another opening releases nothing";
  ASSERT_TRUE(storage_.close(first).ok());
  EXPECT_TRUE(storage_.lock(third).ok());
}

TEST_P(StorageBattery, SmallFilesAreReplacedByRename) {
  const std::string path = world_.path("m"), temporary = world_.path("m.tmp");
  ASSERT_TRUE(storage_.write_file(path, text("first, longer")).ok());
  ASSERT_TRUE(storage_.write_file(temporary, text("second")).ok());
  ASSERT_TRUE(storage_.sync_file(temporary).ok());
  ASSERT_TRUE(storage_.rename(temporary, path).ok());
  ASSERT_TRUE(storage_.sync_directory(world_.directory()).ok());
  EXPECT_EQ(words(storage_.read_file(path, 100).value()), "second");
  EXPECT_FALSE(storage_.exists(temporary).value());
  const Status again = storage_.write_file(path, text("3"));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Errc::kState);
  EXPECT_EQ(again.error().sys_errno, EEXIST);
  EXPECT_EQ(words(storage_.read_file(path, 100).value()), "second") << "never written over";
  const auto too_long = storage_.read_file(path, 0);
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().sys_errno, EFBIG);
  EXPECT_FALSE(storage_.read_file(world_.path("none"), 10).ok());
  EXPECT_FALSE(storage_.rename(temporary, path).ok());
  EXPECT_FALSE(storage_.sync_file(temporary).ok());
}

TEST_P(StorageBattery, DirectoriesListSortedNames) {
  const std::string directory = world_.path("store");
  ASSERT_TRUE(storage_.make_directory(directory).ok());
  ASSERT_TRUE(storage_.make_directory(directory).ok()) << "fine if it exists";
  for (const char* name : {"b", "a", "c"}) {
    ASSERT_TRUE(storage_.write_file(directory + "/" + name, text(name)).ok());
  }
  EXPECT_EQ(storage_.list(directory).value(), (std::vector<std::string>{"a", "b", "c"}));
  ASSERT_TRUE(storage_.remove(directory + "/b").ok());
  EXPECT_FALSE(storage_.remove(directory + "/b").ok());
  EXPECT_EQ(storage_.list(directory).value(), (std::vector<std::string>{"a", "c"}));
  EXPECT_FALSE(storage_.list(world_.path("none")).ok());
  EXPECT_FALSE(storage_.make_directory(world_.path("none/deeper")).ok());
  EXPECT_FALSE(storage_.make_directory(directory + "/a").ok()) << "a file has that name";
}

TEST_P(StorageBattery, TemporaryFilesHaveNoName) {
  const FileId file = storage_.open(world_.directory(), {.temporary = true}).value();
  ASSERT_TRUE(storage_.preallocate(file, 16 * kPageBytes).ok());
  Pages written(kPageBytes), read(kPageBytes);
  fill_pattern(written.span(), 4);
  ASSERT_TRUE(storage_.write_at(file, 3 * kPageBytes, written.span()).ok());
  ASSERT_TRUE(storage_.read_at(file, 3 * kPageBytes, read.span()).ok());
  EXPECT_TRUE(has_pattern(read.span(), 4));
  EXPECT_TRUE(storage_.list(world_.directory()).value().empty());
  EXPECT_TRUE(storage_.lock(file).ok());
}

TEST_P(StorageBattery, ReadOnlyFilesRefuseWrites) {
  ASSERT_TRUE(storage_.write_file(world_.path("f"), text("x")).ok());
  const FileId file = storage_.open(world_.path("f"), {.write = false}).value();
  Pages memory(kPageBytes);
  EXPECT_FALSE(storage_.write_at(file, 0, memory.span()).ok());
  EXPECT_FALSE(storage_.preallocate(file, 10 * kPageBytes).ok());
}

INSTANTIATE_TEST_SUITE_P(Io, StorageBattery,
                         ::testing::Values(World::kThreads, World::kSimulated, World::kForwarded),
                         [](const auto& info) {
                           return info.param == World::kThreads     ? "posix"
                                  : info.param == World::kSimulated ? "simulated"
                                                                    : "forwarded";
                         });

}  // namespace
}  // namespace penstock::testing
