#pragma once

/// One mapping of huge pages, filled before use and cut into frames.
///
/// Why:       drives read two to three times faster into 2 MiB pages than into scattered 4 KiB
///            pages, and memory that is all there at the start cannot run out in step 10,000.
/// Owner:     the arena owns the bytes and the reservation for them; frames are views.
/// Alignment: the arena begins at a multiple of 2 MiB, frames at multiples of 4 KiB.
/// Content:   zero at first. Left out of children (fork) and of core dumps.
/// Threads:   frame() by one thread; the bytes follow their leases.
/// Errors:    kNoMemory when the budget, the system or the arena has no room, with the numbers.
///            Plain pages instead of huge ones, or another node, are no error: note() says so.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "mem/budget.hpp"
#include "mem/frame.hpp"

namespace penstock {

inline constexpr std::uint64_t kHugePageBytes = 2 * 1024 * 1024;
inline constexpr std::uint64_t kFrameAlignmentBytes = 4096;

struct ArenaOptions {
  bool huge_pages = true;        ///< false asks for 4 KiB pages, to measure the difference
  int node = -1;                 ///< NUMA node to take the memory from, best effort; -1: any
  bool populate_syscall = true;  ///< false fills by touching every page, as older kernels need
};

class Arena {
 public:
  /// Takes `bytes`, rounded up to 2 MiB, from `budget`, which must outlive the arena. All of it is
  /// resident when this returns. Zero bytes make an empty arena.
  [[nodiscard]] static Result<Arena> create(ByteBudget& budget, std::string name,
                                            std::uint64_t bytes, ArenaOptions options = {});

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;  // one mapping, one owner, for its whole life
  ~Arena();

  /// The next `bytes`, rounded up to 4 KiB. Frames are never given back one by one.
  [[nodiscard]] Result<Frame> frame(std::string_view name, std::uint64_t bytes);

  struct NamedFrame {
    std::string name;
    Frame frame;
  };
  [[nodiscard]] const std::vector<NamedFrame>& frames() const noexcept { return frames_; }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }  ///< multiple of 2 MiB
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  [[nodiscard]] std::uint64_t huge_bytes() const noexcept { return huge_bytes_; }

  /// What the user should know about these pages; empty when all are huge and near.
  [[nodiscard]] const std::string& note() const noexcept { return note_; }

 private:
  Arena(std::string name, Reservation reservation);
  Status map(std::uint64_t bytes, ArenaOptions options);
  Status fill(ArenaOptions options);
  Status system_error(std::string_view call, int error) const;

  std::string name_;
  Reservation reservation_;
  void* mapping_ = nullptr;  // [guard][data_ .. data_ + bytes_][guard]
  std::uint64_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t huge_bytes_ = 0;
  std::string note_, far_note_;
  std::vector<NamedFrame> frames_;
};

}  // namespace penstock
