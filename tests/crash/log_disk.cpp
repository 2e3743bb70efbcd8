// A disk in a file, for a loop device: it remembers every write and flush, fails on demand, and
// shows what it would hold had the power gone at any moment.
//
// usage: log_disk MOUNTPOINT BYTES LOG      a new disk; what happens to it goes to LOG
//        log_disk MOUNTPOINT --replay LOG   what a power loss may have left of it
//
// MOUNTPOINT then has two files: `disk`, and `control`, into which commands are written:
//   mark TEXT         (new disk) TEXT takes its place in the log
//   stop              (new disk) nothing goes to the log any more
//   fail KIND ERRNO   KIND of read, write, flush; 0: no more
//   fail-after N KIND ERRNO   the same, once N more have gone through
//   delay KIND MS     each one takes so much longer; 0: no more
//   hang MS           the next read, write or flush takes so much longer, and all others wait for
//   it image OP SEED     (replay) `disk` becomes: all writes before the last flush among the first
//   OP
//                     records, and of the writes after it, in order, the 4 KiB pages that SEED
//                     draws. What a filesystem writes to the image goes when the next one is made.
//
// LOG is a sequence of { u64 kind (1 write, 2 flush, 3 mark), u64 offset, u64 bytes, the bytes }.
// Nothing is durable: the disk is in memory. One thread.

#define FUSE_USE_VERSION 31

#include <fcntl.h>
#include <fuse.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"

namespace {

constexpr std::uint64_t kPage = 4096;

enum class Kind : std::uint64_t { kWrite = 1, kFlush = 2, kMark = 3 };
struct Record {
  std::uint64_t kind = 0, offset = 0, bytes = 0;
};
struct Entry {
  Record record;
  const std::byte* data = nullptr;
};

enum Operation { kRead, kWrite, kFlush, kOperations };

/// What is to go wrong with one operation.
struct Trouble {
  std::uint64_t good = 0;  // so many go through before it begins
  int error = 0;
  long delay_ms = 0;
};

/// A mapping that ends with its owner; null when it could not be made.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int file, std::uint64_t bytes, int protection, int flags)
      : bytes_(bytes), memory_(::mmap(nullptr, bytes, protection, flags, file, 0)) {
    if (memory_ == MAP_FAILED) memory_ = nullptr;
  }
  Mapping(Mapping&& other) noexcept { swap(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Mapping() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  void swap(Mapping& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(memory_, other.memory_);
  }
  std::uint64_t bytes_ = 0;
  void* memory_ = nullptr;
};

class Disk {
 public:
  /// A new disk. False, with errno, when something is missing.
  bool start(std::uint64_t bytes, const char* log) {
    log_ = std::fopen(log, "wb");
    if (log_ == nullptr || !make_base(bytes)) return false;
    add({static_cast<std::uint64_t>(Kind::kMark), bytes, 0}, nullptr);
    return true;
  }

  /// Reads a log: its first record says how long the disk is.
  bool replay(const char* log) {
    const int file = ::open(log, O_RDONLY | O_CLOEXEC);
    struct stat facts {};
    if (file < 0 || ::fstat(file, &facts) != 0) return false;
    log_map_ = Mapping(file, static_cast<std::uint64_t>(facts.st_size), PROT_READ, MAP_PRIVATE);
    ::close(file);
    if (log_map_.data() == nullptr) return false;
    for (std::uint64_t at = 0; at + sizeof(Record) <= log_map_.bytes();) {
      Entry entry;
      std::memcpy(&entry.record, log_map_.data() + at, sizeof(Record));
      entry.data = log_map_.data() + at + sizeof(Record);
      at += sizeof(Record) + entry.record.bytes;
      if (at <= log_map_.bytes()) entries_.push_back(entry);
    }
    replaying_ = true;
    return !entries_.empty() && make_base(entries_[0].record.offset) && make_image(0, 0);
  }

  [[nodiscard]] std::uint64_t bytes() const { return base_.bytes(); }

  int read(char* into, std::size_t bytes, std::uint64_t offset) {
    if (const int error = trouble(kRead)) return -error;
    if (offset >= base_.bytes()) return 0;
    bytes = std::min<std::size_t>(bytes, base_.bytes() - offset);
    std::memcpy(into, now() + offset, bytes);
    return static_cast<int>(bytes);
  }

  int write(const char* from, std::size_t bytes, std::uint64_t offset) {
    if (const int error = trouble(kWrite)) return -error;
    if (offset + bytes > base_.bytes()) return -ENOSPC;
    std::memcpy(now() + offset, from, bytes);
    add({static_cast<std::uint64_t>(Kind::kWrite), offset, bytes}, from);
    return static_cast<int>(bytes);
  }

  int flush() {
    if (const int error = trouble(kFlush)) return -error;
    add({static_cast<std::uint64_t>(Kind::kFlush), 0, 0}, nullptr);
    return 0;
  }

  int command(const std::string& text) {
    std::istringstream words(text);
    std::string word, kind;
    words >> word;
    if (word == "mark") {
      const std::string said = text.substr(std::min(text.size(), word.size() + 1));
      add({static_cast<std::uint64_t>(Kind::kMark), 0, said.size()}, said.data());
      return 0;
    }
    if (word == "stop") {
      std::fflush(log_);
      stopped_ = true;
      return 0;
    }
    std::uint64_t first = 0, second = 0;
    if (word == "image" && words >> first >> second) return make_image(first, second) ? 0 : -EIO;
    if (word == "hang" && words >> first) {
      hang_ms_ = static_cast<long>(first);
      return 0;
    }
    if (word == "fail-after" && !(words >> first)) return -EINVAL;
    if (!(words >> kind >> second)) return -EINVAL;
    const Operation operation = kind == "read" ? kRead : kind == "write" ? kWrite : kFlush;
    if (operation == kFlush && kind != "flush") return -EINVAL;
    Trouble& trouble = troubles_[operation];
    if (word == "delay") {
      trouble.delay_ms = static_cast<long>(second);
    } else if (word == "fail" || word == "fail-after") {
      trouble.good = first;
      trouble.error = static_cast<int>(second);
    } else {
      return -EINVAL;
    }
    return 0;
  }

 private:
  [[nodiscard]] std::byte* now() const { return replaying_ ? image_.data() : base_.data(); }

  bool make_base(std::uint64_t bytes) {
    memory_ = ::memfd_create("disk", MFD_CLOEXEC);
    if (memory_ < 0 || ::ftruncate(memory_, static_cast<off_t>(bytes)) != 0) return false;
    base_ = Mapping(memory_, bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
    return base_.data() != nullptr;
  }

  void add(const Record& record, const char* data) {
    if (replaying_ || stopped_) return;
    std::fwrite(&record, sizeof record, 1, log_);
    if (data != nullptr) std::fwrite(data, record.bytes, 1, log_);
  }

  int trouble(Operation operation) {
    Trouble& trouble = troubles_[operation];
    const long late_ms = trouble.delay_ms + std::exchange(hang_ms_, 0);
    if (late_ms != 0) {
      const timespec pause{late_ms / 1000, late_ms % 1000 * 1'000'000};
      ::nanosleep(&pause, nullptr);
    }
    if (trouble.error == 0 || trouble.good == 0) return trouble.error;
    --trouble.good;
    return 0;
  }

  /// Pages of the base are shared with the image until somebody writes to it.
  bool make_image(std::uint64_t operation, std::uint64_t seed) {
    if (!replaying_ || operation > entries_.size() || base_.data() == nullptr) return false;
    image_ = Mapping();
    std::uint64_t flushed = 0;  // records before this one are durable
    for (std::uint64_t i = 0; i < operation; ++i) {
      if (entries_[i].record.kind == static_cast<std::uint64_t>(Kind::kFlush)) flushed = i + 1;
    }
    if (flushed < applied_) {
      std::memset(base_.data(), 0, base_.bytes());
      applied_ = 0;
    }
    for (; applied_ < flushed; ++applied_) land(entries_[applied_], base_.data(), 8, 0);
    image_ = Mapping(memory_, base_.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE);
    if (image_.data() == nullptr) return false;
    // Nothing and everything are as likely as a tear.
    const std::uint64_t mood = penstock::mix64(seed, operation, 0) % 4;
    const std::uint64_t share = mood == 0 ? 0 : mood == 1 ? 8 : 1 + seed % 7;
    for (std::uint64_t i = flushed; i < operation; ++i) {
      land(entries_[i], image_.data(), share, penstock::mix64(seed, operation, i + 1));
    }
    return true;
  }

  /// Of the write's pages, `share` eighths, drawn from `seed`.
  static void land(const Entry& entry, std::byte* disk, std::uint64_t share, std::uint64_t seed) {
    if (entry.record.kind != static_cast<std::uint64_t>(Kind::kWrite)) return;
    const std::uint64_t end = entry.record.offset + entry.record.bytes;
    for (std::uint64_t at = entry.record.offset; at < end;) {
      const std::uint64_t next = std::min(end, (at / kPage + 1) * kPage);
      if (penstock::mix64(seed, at, 0) % 8 < share) {
        std::memcpy(disk + at, entry.data + (at - entry.record.offset), next - at);
      }
      at = next;
    }
  }

  std::FILE* log_ = nullptr;
  int memory_ = -1;
  Mapping base_, image_, log_map_;
  std::vector<Entry> entries_;
  std::uint64_t applied_ = 0;  // records that are in the base
  bool replaying_ = false, stopped_ = false;
  long hang_ms_ = 0;  // of the next operation
  Trouble troubles_[kOperations];
};

// --- the filesystem of two files -----------------------------------------------------------------

Disk& disk() {
  return *static_cast<Disk*>(fuse_get_context()->private_data);
}

bool is_disk(const char* path) {
  return std::strcmp(path, "/disk") == 0;
}

int get_attributes(const char* path, struct stat* facts, fuse_file_info*) {
  *facts = {};
  if (std::strcmp(path, "/") == 0) {
    facts->st_mode = S_IFDIR | 0700;
    facts->st_nlink = 2;
    return 0;
  }
  if (!is_disk(path) && std::strcmp(path, "/control") != 0) return -ENOENT;
  facts->st_mode = S_IFREG | 0600;
  facts->st_nlink = 1;
  facts->st_size = is_disk(path) ? static_cast<off_t>(disk().bytes()) : 0;
  return 0;
}

int read_directory(const char*, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
                   fuse_readdir_flags) {
  for (const char* name : {".", "..", "disk", "control"}) {
    fill(buffer, name, nullptr, 0, static_cast<fuse_fill_dir_flags>(0));
  }
  return 0;
}

int open_file(const char*, fuse_file_info* file) {
  file->direct_io = 1;
  return 0;
}

int read_file(const char* path, char* into, std::size_t bytes, off_t offset, fuse_file_info*) {
  return is_disk(path) ? disk().read(into, bytes, static_cast<std::uint64_t>(offset)) : 0;
}

int write_file(const char* path, const char* from, std::size_t bytes, off_t offset,
               fuse_file_info*) {
  if (is_disk(path)) return disk().write(from, bytes, static_cast<std::uint64_t>(offset));
  const int done = disk().command(std::string(from, bytes));
  return done == 0 ? static_cast<int>(bytes) : done;
}

int truncate_file(const char* path, off_t, fuse_file_info*) {
  return is_disk(path) ? -EPERM : 0;
}

int sync_file(const char* path, int, fuse_file_info*) {
  return is_disk(path) ? disk().flush() : 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: log_disk MOUNTPOINT BYTES|--replay LOG\n");
    return 2;
  }
  Disk disk;
  const bool replay = std::strcmp(words[2], "--replay") == 0;
  const bool ready =
      replay ? disk.replay(words[3]) : disk.start(std::strtoull(words[2], nullptr, 10), words[3]);
  if (!ready) {
    std::fprintf(stderr, "log_disk: %s: %s\n", words[3], std::strerror(errno));
    return 1;
  }
  fuse_operations operations{};
  operations.getattr = get_attributes;
  operations.readdir = read_directory;
  operations.open = open_file;
  operations.read = read_file;
  operations.write = write_file;
  operations.truncate = truncate_file;
  operations.fsync = sync_file;
  char single[] = "-s", foreground[] = "-f";
  char* fuse_words[] = {words[0], single, foreground, words[1], nullptr};
  return fuse_main(4, fuse_words, &operations, &disk);
}
