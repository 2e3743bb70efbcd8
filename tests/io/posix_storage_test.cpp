// The operating system's files: modes, links, and system calls that fail. Failing calls are made by
// a seccomp filter, which cannot be taken back, so those tests run in a child process.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <seccomp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/memory_facts.hpp"
#include "io/page_buffer.hpp"
#include "io/storage_worlds.hpp"

namespace penstock::testing {
namespace {

class PosixStorageTest : public ::testing::Test {
 protected:
  [[nodiscard]] static mode_t mode_of(const std::string& path) {
    struct stat facts {};
    EXPECT_EQ(::stat(path.c_str(), &facts), 0) << path;
    return facts.st_mode & 07777;
  }
  template <class T>
  static Status status_of(Result<T> result) {
    return result ? ok() : Status(std::move(result).error());
  }
  StorageWorld world_{World::kThreads};
  Storage& storage_ = world_.storage();
};

TEST_F(PosixStorageTest, ModesDoNotDependOnTheUmask) {
  for (const mode_t mask : {mode_t{0}, mode_t{0777}}) {
    const mode_t old = ::umask(mask);
    const std::string suffix = std::to_string(mask);
    const bool opened = storage_.open(world_.path("f" + suffix), {.create = true}).ok();
    const bool written = storage_.write_file(world_.path("m" + suffix), {}).ok();
    const bool made = storage_.make_directory(world_.path("d" + suffix)).ok();
    ::umask(old);
    ASSERT_TRUE(opened && written && made);
    EXPECT_EQ(mode_of(world_.path("f" + suffix)), 0600U);
    EXPECT_EQ(mode_of(world_.path("m" + suffix)), 0600U);
    EXPECT_EQ(mode_of(world_.path("d" + suffix)), 0700U);
  }
}

TEST_F(PosixStorageTest, SymbolicLinksAreNotFollowed) {
  ASSERT_TRUE(storage_.write_file(world_.path("real"), {}).ok());
  ASSERT_EQ(::symlink(world_.path("real").c_str(), world_.path("link").c_str()), 0);
  const auto opened = storage_.open(world_.path("link"), {});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().sys_errno, ELOOP);
  EXPECT_NE(opened.error().message.find("a symbolic link"), std::string::npos);
  EXPECT_NE(opened.error().message.find("move the link away"), std::string::npos)
      << opened.error().message;
  EXPECT_FALSE(storage_.write_file(world_.path("link"), {}).ok());
  EXPECT_FALSE(storage_.open(world_.path("link"), {.create = true}).ok());
  EXPECT_FALSE(storage_.sync_file(world_.path("link")).ok());
}

TEST_F(PosixStorageTest, LinksInACircleAreToldFromALink) {
  ASSERT_EQ(::symlink(world_.path("two").c_str(), world_.path("one").c_str()), 0);
  ASSERT_EQ(::symlink(world_.path("one").c_str(), world_.path("two").c_str()), 0);
  const auto opened = storage_.open(world_.path("one") + "/file", {});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().sys_errno, ELOOP);
  EXPECT_NE(opened.error().message.find("in a circle"), std::string::npos)
      << opened.error().message;
}

/// Something of that name that is not a regular file.
void make_special(const std::string& path, mode_t kind) {
  if (kind == S_IFDIR) {
    ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  } else {
    ASSERT_EQ(::mknod(path.c_str(), kind | 0600, 0), 0);  // pipes and sockets take no privilege
  }
}

// Without the refusal these wait for the other end of the pipe, for ever.
TEST_F(PosixStorageTest, WhatIsNotARegularFileIsRefusedAtOnce) {
  const std::pair<mode_t, std::string> kinds[] = {
      {S_IFIFO, "pipe"}, {S_IFSOCK, "socket"}, {S_IFDIR, "directory"}};
  for (const auto& [kind, word] : kinds) {
    const std::string path = world_.path(word);
    make_special(path, kind);
    const std::byte bytes[8] = {};
    const std::pair<const char*, Status> answers[] = {
        {"read", status_of(storage_.open(path, {.write = false}))},
        {"buffered", status_of(storage_.open(path, {.write = false, .direct = false}))},
        {"write", status_of(storage_.open(path, {}))},
        {"read_file", status_of(storage_.read_file(path, 100))},
        {"overwrite_file", storage_.overwrite_file(path, bytes)},
        {"sync_file", storage_.sync_file(path)}};
    for (const auto& [what, answer] : answers) {
      ASSERT_FALSE(answer.ok()) << word << " " << what;
      EXPECT_EQ(answer.error().code, Errc::kIo) << word << " " << what;
      EXPECT_NE(answer.error().message.find("not a regular file but a " + word), std::string::npos)
          << what << ": " << answer.error().message;
    }
    EXPECT_FALSE(storage_.write_file(path, bytes).ok()) << word;
    EXPECT_FALSE(storage_.open(path, {.create = true}).ok()) << word;
  }
}

// io_uring answers EAGAIN to a request on a descriptor that must not wait.
TEST_F(PosixStorageTest, OpenedFilesMayWait) {
  const std::string path = world_.path("f");
  ASSERT_TRUE(storage_.open(path, {.create = true}).ok());
  ASSERT_TRUE(storage_.open(path, {.write = false}).ok());
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry.path(), error) != path) continue;
    ++seen;
    EXPECT_EQ(::fcntl(std::stoi(entry.path().filename()), F_GETFL) & O_NONBLOCK, 0);
  }
  EXPECT_EQ(seen, 2);
}

TEST_F(PosixStorageTest, ADirectoryThatOthersMayChangeIsNotPrivate) {
  const auto refused = [&](const std::string& path, const std::string& why) {
    const Status status = storage_.check_private(path);
    if (status) return path + " was accepted";
    EXPECT_EQ(status.error().code, Errc::kState);
    const std::string& message = status.error().message;
    return message.find(why) == std::string::npos ? message : std::string();
  };
  const std::string own = world_.path("own");
  ASSERT_TRUE(storage_.make_directory(own).ok());
  EXPECT_TRUE(storage_.check_private(own).ok());
  EXPECT_TRUE(storage_.check_private(own + "//").ok());
  for (const mode_t mode : {mode_t{0720}, mode_t{0702}, mode_t{01777}}) {
    ASSERT_EQ(::chmod(own.c_str(), mode), 0);
    EXPECT_EQ(refused(own, "chmod 0700"), "");
  }
  ASSERT_EQ(::chmod(own.c_str(), 0755), 0);
  EXPECT_TRUE(storage_.check_private(own).ok()) << "others may look at the names";
  const std::string link = world_.path("link");
  ASSERT_EQ(::symlink(own.c_str(), link.c_str()), 0);
  for (const char* slash : {"", "/", "//"}) EXPECT_EQ(refused(link + slash, "symbolic link"), "");
  ASSERT_TRUE(storage_.write_file(world_.path("file"), {}).ok());
  EXPECT_EQ(refused(world_.path("file"), "not a directory"), "");
  EXPECT_EQ(storage_.check_private(world_.path("nothing")).error().sys_errno, ENOENT);
}

TEST_F(PosixStorageTest, AnotherUsersDirectoryIsNotPrivate) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away; run as root";
  ASSERT_EQ(::chown(world_.directory().c_str(), 65534, 65534), 0);
  const Status status = storage_.check_private(world_.directory());
  ASSERT_EQ(::chown(world_.directory().c_str(), 0, 0), 0);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("belongs to user 65534"), std::string::npos);
}

TEST_F(PosixStorageTest, AForkedChildCannotTouchItsParentsFiles) {
  const FileId file = storage_.open(world_.path("f"), {.create = true}).value();
  Pages page(kPageBytes);
  fill_pattern(page.span(), 1);
  ASSERT_TRUE(storage_.write_at(file, 0, page.span()).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    std::memset(page.data(), 0, kPageBytes);
    const bool refused = storage_.write_at(file, 0, page.span()).error().code == Errc::kState &&
                         storage_.read_at(file, 0, page.span()).error().code == Errc::kState &&
                         storage_.sync_data(file).error().code == Errc::kState &&
                         storage_.lock(file).error().code == Errc::kState;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ASSERT_TRUE(storage_.read_at(file, 0, page.span()).ok());
  EXPECT_TRUE(has_pattern(page.span(), 1));
}

TEST(PageBufferTest, IsZeroGuardedAndLeftOutOfChildrenAndCoreDumps) {
  PageBuffer buffer(5000);
  ASSERT_EQ(buffer.span().size(), 2 * kPageBytes);
  const std::byte* data = buffer.span().data();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kPageBytes, 0U);
  for (const std::byte byte : buffer.span()) ASSERT_EQ(byte, std::byte{0});
  EXPECT_TRUE(is_mapped(data + 2 * kPageBytes - 1));
  EXPECT_FALSE(is_mapped(data + 2 * kPageBytes));
  PageBuffer moved = std::move(buffer);
  EXPECT_EQ(moved.span().data(), data);
  EXPECT_TRUE(PageBuffer(~std::uint64_t{0}).empty());

  const pid_t child = ::fork();
  if (child == 0) ::_exit(is_mapped(data) ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child sees the buffer";
  const std::string flags = vm_flags(data);
  if (flags.empty()) GTEST_SKIP() << "the kernel has no CONFIG_PROC_PAGE_MONITOR: dumps unchecked";
  EXPECT_NE(flags.find(" dd "), std::string::npos) << "no MADV_DONTDUMP in:" << flags;
}

TEST_F(PosixStorageTest, ADescriptorIsNotInherited) {
  ASSERT_TRUE(storage_.open(world_.path("f"), {.create = true}).ok());
  bool seen = false;
  for (int descriptor = 3; descriptor < 64; ++descriptor) {
    char target[512] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    if (::readlink(link.c_str(), target, sizeof target - 1) <= 0) continue;
    if (world_.path("f") != target) continue;
    seen = true;
    EXPECT_NE(::fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(storage_.is_direct(1), (::fcntl(descriptor, F_GETFL) & O_DIRECT) != 0);
  }
  EXPECT_TRUE(seen);
}

TEST_F(PosixStorageTest, PreallocateReservesBlocks) {
  const FileId file = storage_.open(world_.path("f"), {.create = true}).value();
  ASSERT_TRUE(storage_.preallocate(file, 1 << 20).ok());
  struct stat facts {};
  ASSERT_EQ(::stat(world_.path("f").c_str(), &facts), 0);
  EXPECT_GE(facts.st_blocks * 512, 1 << 20);
}

// --- system calls that fail ------------------------------------------------------------------

void deny(int call, int error) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  const auto action = static_cast<std::uint32_t>(SCMP_ACT_ERRNO(static_cast<unsigned>(error)));
  if (seccomp_rule_add(filter, action, call, 0) != 0 || seccomp_load(filter) != 0) std::_Exit(3);
  seccomp_release(filter);
}

void deny_direct(int error) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  const auto action = static_cast<std::uint32_t>(SCMP_ACT_ERRNO(static_cast<unsigned>(error)));
  const scmp_arg_cmp direct{2, SCMP_CMP_MASKED_EQ, O_DIRECT, O_DIRECT};
  if (seccomp_rule_add(filter, action, SCMP_SYS(openat), 1, direct) != 0 ||
      seccomp_load(filter) != 0) {
    std::_Exit(3);
  }
  seccomp_release(filter);
}

// Ends the child process: 0 when every expectation holds.
class Child {
 public:
  void expect(bool holds, const std::string& what) {
    if (!holds) std::fprintf(stderr, "failed: %s\n", what.c_str());
    good_ = good_ && holds;
  }
  [[noreturn]] void exit() {
    std::error_code ignored;
    std::filesystem::remove_all(world.directory(), ignored);
    std::fprintf(stderr, "%s\n", good_ ? "all good" : "not good");
    std::_Exit(good_ ? 0 : 1);
  }
  StorageWorld world{World::kThreads};
  Storage& storage = world.storage();
  FileId file = storage.open(world.path("f"), {.create = true}).value();

 private:
  bool good_ = true;
};

[[noreturn]] void without_fallocate() {
  Child child;
  deny(SCMP_SYS(fallocate), EOPNOTSUPP);
  const std::uint64_t bytes = (3 << 20) + 5000;
  const Status reserved = child.storage.preallocate(child.file, bytes);
  child.expect(reserved.ok(), "preallocate falls back");
  struct stat facts {};
  ::stat(child.world.path("f").c_str(), &facts);
  child.expect(facts.st_size == static_cast<off_t>(bytes), "length is exact");
  child.expect(facts.st_blocks * 512 >= static_cast<off_t>(bytes), "blocks are taken");
  child.exit();
}

[[noreturn]] void with_fallocate_out_of_space() {
  Child child;
  deny(SCMP_SYS(fallocate), ENOSPC);
  const Status refused = child.storage.preallocate(child.file, 1 << 20);
  child.expect(!refused && refused.error().code == Errc::kNoSpace, "kNoSpace");
  child.expect(child.storage.size_bytes(child.file).value() == 0, "no growth left");
  child.exit();
}

[[noreturn]] void with_failing_sync() {
  Child child;
  deny(SCMP_SYS(fdatasync), EIO);
  const Status failed = child.storage.sync_data(child.file);
  child.expect(!failed && failed.error().code == Errc::kIo && failed.error().sys_errno == EIO,
               "kIo");
  child.exit();
}

[[noreturn]] void without_direct() {
  Child child;
  deny_direct(EINVAL);
  const auto opened = child.storage.open(child.world.path("g"), {.create = true});
  child.expect(opened.ok(), "opens buffered");
  const FileId file = opened.value();
  child.expect(!child.storage.is_direct(file), "and says so");
  child.expect(child.storage.is_direct(child.file), "the earlier file is direct");
  Pages written(5 * kPageBytes), read(5 * kPageBytes);
  fill_pattern(written.span(), 1);
  child.expect(child.storage.write_at(file, 0, written.span()).ok(), "write");
  child.expect(child.storage.read_at(file, 0, read.span()).ok(), "read");
  child.expect(has_pattern(read.span(), 1), "same bytes");
  child.expect(child.storage.open(child.world.directory(), {.temporary = true}).ok(), "temporary");
  child.exit();
}

TEST(PosixStorageDeathTest, FailingSystemCallsAreHandled) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(without_fallocate(), ::testing::ExitedWithCode(0), "all good");
  EXPECT_EXIT(with_fallocate_out_of_space(), ::testing::ExitedWithCode(0), "all good");
  EXPECT_EXIT(with_failing_sync(), ::testing::ExitedWithCode(0), "all good");
  EXPECT_EXIT(without_direct(), ::testing::ExitedWithCode(0), "all good");
}

}  // namespace
}  // namespace penstock::testing
