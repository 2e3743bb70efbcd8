// Invariants
//   * mapping_ != nullptr  if and only if  bytes_ > 0; data_ .. data_ + bytes_ lies inside it.
//   * used_bytes_ <= bytes_; frames_ lie back to back from data_ and end at data_ + used_bytes_.
//   * reservation_ holds bytes_ from before the mapping exists until after it is gone.

#include "mem/arena.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/units.hpp"
#include "topo/node_binding.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace penstock {
namespace {

// Unmapped space on both sides: an overrun faults, and the kernel cannot merge two arenas into one
// mapping, whose huge pages could then not be told apart.
constexpr std::uint64_t kGuardBytes = 4096;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Bytes of [first, last) that are huge pages, by the kernel's own account.
std::uint64_t count_huge_bytes(std::uintptr_t first, std::uintptr_t last) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  std::uint64_t total = 0;
  while (std::getline(smaps, line)) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uint64_t kib = 0;
    // Only the first line of an entry starts with "address-address".
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      inside = begin >= first && end <= last;
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %" SCNu64 " kB", &kib) == 1) {
      total += kib * kKiB;
    }
  }
  return total;
}

std::string thp_setting() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  if (!std::getline(file, line)) return "missing";
  return line;
}

void touch_pages(std::byte* data, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += kFrameAlignmentBytes) {
    *const_cast<volatile std::byte*>(data + at) = std::byte{0};
  }
}

}  // namespace

Arena::Arena(std::string name, Reservation reservation)
    : name_(std::move(name)), reservation_(std::move(reservation)) {}

Arena::Arena(Arena&& other) noexcept
    : name_(std::move(other.name_)),
      reservation_(std::move(other.reservation_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      used_bytes_(std::exchange(other.used_bytes_, 0)),
      huge_bytes_(std::exchange(other.huge_bytes_, 0)),
      note_(std::move(other.note_)),
      far_note_(std::move(other.far_note_)),
      frames_(std::move(other.frames_)) {}

Arena::~Arena() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

Result<Arena> Arena::create(ByteBudget& budget, std::string name, std::uint64_t bytes,
                            ArenaOptions options) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 56;  // no address space is larger
  if (bytes > kMaxBytes) {
    return make_error(Errc::kNoMemory,
                      fmt::format("arena \"{}\": {} bytes are more than any address space holds; "
                                  "ask for less",
                                  name, bytes));
  }
  const std::uint64_t rounded = round_up(bytes, kHugePageBytes);
  PENSTOCK_TAKE(reservation, budget.take(name, rounded));
  Arena arena(std::move(name), std::move(reservation));
  if (rounded != 0) {
    PENSTOCK_CHECK_OK(arena.map(rounded, options));
    PENSTOCK_CHECK_OK(arena.fill(options));
  }
  return Result<Arena>(std::move(arena));
}

Status Arena::system_error(std::string_view call, int error) const {
  return make_error(
      Errc::kNoMemory,
      fmt::format("arena \"{}\": {} of {} ({} bytes) failed: {}; lower the memory limits or free "
                  "memory (see MemAvailable in /proc/meminfo, \"ulimit -v\" and the cgroup)",
                  name_, call, format_bytes(bytes_), bytes_,
                  std::generic_category().message(error)),
      error);
}

Status Arena::map(std::uint64_t bytes, ArenaOptions options) {
  bytes_ = bytes;
  mapping_bytes_ = bytes + 2 * kGuardBytes + kHugePageBytes;
  void* mapping =
      mmap(nullptr, mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return system_error("mmap", errno);
  mapping_ = mapping;
  const auto begin = reinterpret_cast<std::uintptr_t>(mapping) + kGuardBytes;
  const auto aligned = round_up(begin, kHugePageBytes);
  data_ = static_cast<std::byte*>(mapping) + (aligned - reinterpret_cast<std::uintptr_t>(mapping));
  if (mprotect(data_, bytes_, PROT_READ | PROT_WRITE) != 0) return system_error("mprotect", errno);

  // A child that shares these pages would make every later write here a copy, into pages that a
  // drive does not write to. Neither advice is refused on memory like this; without them the arena
  // still works, so a kernel that lacks them is no error.
  (void)madvise(data_, bytes_, MADV_DONTFORK);
  (void)madvise(data_, bytes_, MADV_DONTDUMP);
  if (madvise(data_, bytes_, options.huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0 &&
      options.huge_pages) {
    note_ =
        fmt::format("the kernel refuses huge pages ({})", std::generic_category().message(errno));
  }
  if (options.node >= 0) {
    const auto binding = NodeBinding::load();
    const Status near = binding ? binding.value().prefer_memory(data_, bytes_, options.node)
                                : Status(binding.error());
    if (!near) {
      far_note_ =
          fmt::format("arena \"{}\" may be far from its drives: {}", name_, near.error().message);
    }
  }
  return ok();
}

Status Arena::fill(ArenaOptions options) {
  bool filled = false;
  if (options.populate_syscall) {
    int result = 0;
    do {
      result = madvise(data_, bytes_, MADV_POPULATE_WRITE);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    // EINVAL: a kernel before 5.14.
    if (result != 0 && errno != EINVAL) return system_error("MADV_POPULATE_WRITE", errno);
    filled = result == 0;
  }
  if (!filled) touch_pages(data_, bytes_);

  const auto first = reinterpret_cast<std::uintptr_t>(data_);
  huge_bytes_ = count_huge_bytes(first, first + bytes_);
  if (huge_bytes_ >= bytes_) {
    note_ = far_note_;
    return ok();
  }
  std::string reason = note_;
  if (!options.huge_pages) {
    reason = "4 KiB pages were asked for";
  } else if (reason.empty()) {
    reason = fmt::format(
        "/sys/kernel/mm/transparent_hugepage/enabled is \"{}\"; \"madvise\" or "
        "\"always\" and unfragmented free memory are needed",
        thp_setting());
  }
  note_ =
      fmt::format("arena \"{}\": {} of {} are in 2 MiB pages, so drives transfer more slowly: {}",
                  name_, format_bytes(huge_bytes_), format_bytes(bytes_), reason);
  if (!far_note_.empty()) note_ += "; " + far_note_;
  return ok();
}

Result<Frame> Arena::frame(std::string_view name, std::uint64_t bytes) {
  const std::uint64_t free = bytes_ - used_bytes_;
  // Both are multiples of 4 KiB, so comparing before rounding avoids an overflow.
  if (bytes > free) {
    return make_error(
        Errc::kNoMemory,
        fmt::format("frame \"{}\" of {} bytes in arena \"{}\": {} of {} bytes are used and {} are "
                    "free; the arena must be larger",
                    name, bytes, name_, used_bytes_, bytes_, free));
  }
  const std::uint64_t rounded = round_up(bytes, kFrameAlignmentBytes);
  const Frame frame{data_ == nullptr ? nullptr : data_ + used_bytes_, rounded};
  frames_.push_back(NamedFrame{std::string(name), frame});
  used_bytes_ += rounded;
  return frame;
}

}  // namespace penstock
