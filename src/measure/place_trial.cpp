#include "measure/place_trial.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/quota.h>
#include <linux/stat.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/units.hpp"
#include "measure/child.hpp"

namespace penstock {
namespace {

constexpr std::size_t kTransferBytes = 64 * kKiB;
constexpr std::size_t kMisalignedBytes = 100;

/// What parent and child share. The parent reads what lies before `stage`, which the child sets
/// last.
struct Shared {
  std::atomic<TrialStage> stage{TrialStage::kNotStarted};
  PlaceTrial trial{};
  const char* path = nullptr;
  const char* fallback_name = nullptr;
  std::byte* written = nullptr;  // page aligned, kTransferBytes each
  std::byte* read = nullptr;

  void begin(TrialStage next) { stage.store(next, std::memory_order_release); }
};

/// Memory that a fork shares; null where there is none.
void* map_shared(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

bool look(Shared& shared) {
  PlaceTrial& trial = shared.trial;
  struct statx facts {};
  constexpr unsigned kWanted = STATX_BASIC_STATS | STATX_MNT_ID;
  if (::statx(AT_FDCWD, shared.path, AT_SYMLINK_NOFOLLOW, kWanted, &facts) == 0) {
    trial.is_link = S_ISLNK(facts.stx_mode);
  }
  if (::statx(AT_FDCWD, shared.path, 0, kWanted, &facts) != 0) {
    trial.look_errno = errno;
    return false;
  }
  trial.is_directory = S_ISDIR(facts.stx_mode);
  trial.mode = facts.stx_mode & 07777U;
  trial.owner = facts.stx_uid;
  trial.inode = facts.stx_ino;
  trial.device_major = facts.stx_dev_major;
  trial.device_minor = facts.stx_dev_minor;
  if ((facts.stx_mask & STATX_MNT_ID) != 0) trial.mount_id = facts.stx_mnt_id;
  return trial.is_directory;
}

/// The user's quota; silent where there is none or the kernel is too old to be asked this way.
void ask_quota(Shared& shared) {
#ifdef SYS_quotactl_fd
  const int descriptor = ::open(shared.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  struct if_dqblk quota {};
  if (::syscall(SYS_quotactl_fd, descriptor, QCMD(Q_GETQUOTA, USRQUOTA), ::geteuid(), &quota) ==
          0 &&
      quota.dqb_bhardlimit != 0) {
    shared.trial.quota_bytes = quota.dqb_bhardlimit * QIF_DQBLKSIZE;
    shared.trial.quota_used_bytes = quota.dqb_curspace;
  }
  ::close(descriptor);
#else
  static_cast<void>(shared);
#endif
}

bool ask_filesystem(Shared& shared) {
  PlaceTrial& trial = shared.trial;
  struct statvfs facts {};
  if (::statvfs(shared.path, &facts) != 0) {
    trial.filesystem_errno = errno;
    return false;
  }
  trial.is_read_only = (facts.f_flag & ST_RDONLY) != 0;
  trial.total_bytes = std::uint64_t{facts.f_blocks} * facts.f_frsize;
  trial.free_bytes = std::uint64_t{facts.f_bavail} * facts.f_frsize;
  trial.total_files = facts.f_files;
  trial.free_files = facts.f_favail;
  ask_quota(shared);
  return true;
}

/// A file without a name, or one whose name is gone before anything is done with it.
int open_nameless(const Shared& shared, int flags) {
  const int descriptor = ::open(shared.path, flags | O_TMPFILE, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  const int named = ::open(shared.fallback_name, flags | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  const int error = errno;
  // A filesystem may refuse O_DIRECT after it has made the name.
  if (named >= 0 || error == EINVAL) ::unlink(shared.fallback_name);
  errno = error;
  return named;
}

/// As a store does with its files: btrfs then overwrites them where they are.
void ask_to_write_in_place(int descriptor, PlaceTrial& trial) {
  struct statfs filesystem {};
  int flags = 0;
  if (::fstatfs(descriptor, &filesystem) != 0 || filesystem.f_type != BTRFS_SUPER_MAGIC ||
      ::ioctl(descriptor, FS_IOC_GETFLAGS, &flags) != 0) {
    return;
  }
  flags |= FS_NOCOW_FL;
  (void)::ioctl(descriptor, FS_IOC_SETFLAGS, &flags);
  trial.writes_in_place =
      ::ioctl(descriptor, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_NOCOW_FL) != 0;
}

int create(Shared& shared) {
  PlaceTrial& trial = shared.trial;
  constexpr int kFlags = O_RDWR | O_CLOEXEC;
  int descriptor = open_nameless(shared, kFlags | O_DIRECT);
  trial.is_direct = descriptor >= 0;
  if (descriptor < 0 && errno == EINVAL) descriptor = open_nameless(shared, kFlags);
  if (descriptor < 0) {
    trial.create_errno = errno;
    return -1;
  }
  ask_to_write_in_place(descriptor, trial);
#ifdef STATX_DIOALIGN
  struct statx facts {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 &&
      (facts.stx_mask & STATX_DIOALIGN) != 0) {
    trial.offset_alignment = facts.stx_dio_offset_align;
    trial.memory_alignment = facts.stx_dio_mem_align;
  }
#endif
  return descriptor;
}

/// 0, or the errno; a transfer that ends early without one is EIO.
template <class Call>
int transfer(const Call& call) {
  std::size_t done = 0;
  while (done < kTransferBytes) {
    const ssize_t count = call(done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return EIO;
    done += static_cast<std::size_t>(count);
  }
  return 0;
}

void write_and_read(Shared& shared, int descriptor) {
  PlaceTrial& trial = shared.trial;
  shared.begin(TrialStage::kWrite);
  trial.write_errno = transfer([&](std::size_t done) {
    return ::pwrite(descriptor, shared.written + done, kTransferBytes - done,
                    static_cast<off_t>(done));
  });
  if (trial.write_errno != 0) return;
  shared.begin(TrialStage::kSync);
  if (::fdatasync(descriptor) != 0) trial.sync_errno = errno;
  if (trial.sync_errno != 0) return;
  shared.begin(TrialStage::kRead);
  trial.read_errno = transfer([&](std::size_t done) {
    return ::pread(descriptor, shared.read + done, kTransferBytes - done, static_cast<off_t>(done));
  });
  if (trial.read_errno != 0) return;
  trial.is_same = std::memcmp(shared.written, shared.read, kTransferBytes) == 0;
  trial.takes_misaligned =
      trial.is_direct && ::pread(descriptor, shared.read + 1, kMisalignedBytes, 1) > 0;
  shared.begin(TrialStage::kDone);
}

/// The child: system calls only.
void try_all(void* context) {
  Shared& shared = *static_cast<Shared*>(context);
  shared.begin(TrialStage::kLook);
  if (!look(shared)) return;
  shared.begin(TrialStage::kFilesystem);
  if (!ask_filesystem(shared)) return;
  shared.begin(TrialStage::kCreate);
  const int descriptor = create(shared);
  if (descriptor >= 0) write_and_read(shared, descriptor);
}

}  // namespace

PlaceTrial try_place(const std::string& path, std::uint64_t limit_ns) {
  constexpr std::size_t kHeadBytes = 4 * kKiB;
  static_assert(sizeof(Shared) <= kHeadBytes);
  constexpr std::size_t kMappedBytes = kHeadBytes + 2 * kTransferBytes;
  void* memory = map_shared(kMappedBytes);
  if (memory == nullptr) return {};
  auto* bytes = static_cast<std::byte*>(memory);
  // lint: allow new because the object lives in memory that a fork shares
  Shared& shared = *new (memory) Shared();
  const std::string name = fmt::format("{}/.penstock-doctor-{}", path, ::getpid());
  shared.path = path.c_str();
  shared.fallback_name = name.c_str();
  shared.written = bytes + kHeadBytes;
  shared.read = shared.written + kTransferBytes;
  for (std::size_t i = 0; i < kTransferBytes; ++i) {
    shared.written[i] = static_cast<std::byte>(i * 131 >> 3);
  }
  const ChildEnd end = run_in_child(limit_ns, try_all, &shared);
  const TrialStage stage = shared.stage.load(std::memory_order_acquire);
  PlaceTrial trial = shared.trial;
  trial.stage = stage;
  trial.is_late = end == ChildEnd::kLate;
  if (end == ChildEnd::kNotStarted || end == ChildEnd::kDied) trial.stage = TrialStage::kNotStarted;
  ::munmap(memory, kMappedBytes);
  return trial;
}

}  // namespace penstock
