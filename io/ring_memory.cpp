#include "io/ring_memory.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "base/units.hpp"

namespace penstock {

namespace {

// The kernel's limits are 1 GiB a chunk and 16384 chunks. Multiples of a huge page, so that no
// piece lies in two of them; small enough that a low limit still lets some of them in.
constexpr std::uint64_t kSmallestChunk = 64U << 20, kLargestChunk = 1U << 30;
constexpr std::uint64_t kMostChunks = 8192;

}  // namespace

void RingMemory::lend(io_uring& ring, std::span<const std::span<std::byte>> spans) {
  std::uint64_t all = 0, lent = 0;
  for (const auto& span : spans) all += span.size();
  if (all == 0) return;
  std::uint64_t chunk = kSmallestChunk;
  while (all / chunk > kMostChunks && chunk < kLargestChunk) chunk *= 2;
  std::vector<iovec> parts;
  for (const auto& span : spans) {
    for (std::uint64_t at = 0; at < span.size() && parts.size() < kMostChunks; at += chunk) {
      parts.push_back({span.data() + at, std::min<std::uint64_t>(chunk, span.size() - at)});
    }
  }
  int error = 0, refused = 0;
  std::size_t count = parts.size();
  while (count > 0) {
    error = -io_uring_register_buffers(&ring, parts.data(), static_cast<unsigned>(count));
    if (error != 0) refused = error;
    if (error != ENOMEM) break;
    count /= 2;  // what the limit of locked memory lets in
  }
  if (error != 0) count = 0;
  for (std::size_t i = 0; i < count; ++i) {
    chunks_.push_back(
        {static_cast<const std::byte*>(parts[i].iov_base), parts[i].iov_len, static_cast<int>(i)});
    lent += parts[i].iov_len;
  }
  std::sort(chunks_.begin(), chunks_.end(),
            [](const Chunk& a, const Chunk& b) { return a.begin < b.begin; });
  words_ = fmt::format("{} of {} of memory registered", format_bytes(lent), format_bytes(all));
  if (lent == all || refused == 0) return;
  const std::string why = std::generic_category().message(refused);
  words_ += fmt::format(" ({}; \"ulimit -l\" limits it)", why);
  // The figures are those of measure/check_uring.cpp.
  shortfall_ = fmt::format(
      "io_uring registers {} of the {} of memory ({}), so that transfers take as long, but up to "
      "1.7 times the CPU time with 2 MiB pages and more with 4 KiB ones; raise the limit of locked "
      "memory: \"ulimit -l unlimited\", or LimitMEMLOCK=infinity of a service",
      format_bytes(lent), format_bytes(all), why);
}

int RingMemory::find(const std::byte* memory, std::uint64_t bytes) const noexcept {
  const auto behind =
      std::upper_bound(chunks_.begin(), chunks_.end(), memory,
                       [](const std::byte* at, const Chunk& chunk) { return at < chunk.begin; });
  if (behind == chunks_.begin()) return -1;
  const Chunk& chunk = *(behind - 1);
  const auto offset = static_cast<std::uint64_t>(memory - chunk.begin);
  return offset + bytes <= chunk.bytes ? chunk.place : -1;
}

}  // namespace penstock
