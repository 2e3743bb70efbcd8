#pragma once

// Page-aligned memory and recognisable contents for storage tests.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"
#include "io/section.hpp"
#include "io/storage.hpp"

namespace penstock::testing {

/// Page-aligned, zeroed memory.
class Pages {
 public:
  explicit Pages(std::uint64_t bytes)
      : bytes_(bytes),
        memory_(static_cast<std::byte*>(std::aligned_alloc(
            kPageBytes, round_up(bytes == 0 ? kPageBytes : bytes, kPageBytes)))) {
    std::memset(memory_.get(), 0, bytes_);
  }
  [[nodiscard]] std::byte* data() const { return memory_.get(); }
  [[nodiscard]] std::uint64_t size() const { return bytes_; }
  [[nodiscard]] std::span<std::byte> span() const { return {memory_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::uint64_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

/// Words that differ by position and by `seed`, so that a misplaced or stale page shows.
inline void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) {
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = (seed + 1) * 0x9E3779B97F4A7C15U ^ (at * 0xBF58476D1CE4E5B9U);
    word ^= word >> 29;
    std::memcpy(bytes.data() + at, &word, 8);
  }
}

inline bool has_pattern(std::span<const std::byte> bytes, std::uint64_t seed) {
  Pages expected(bytes.size());
  fill_pattern(expected.span(), seed);
  return std::memcmp(expected.data(), bytes.data(), bytes.size()) == 0;
}

/// Puts other bytes in a file's place, or makes the file.
inline Status replace_file(Storage& storage, const std::string& path,
                           std::span<const std::byte> bytes) {
  PENSTOCK_TAKE(exists, storage.exists(path));
  if (exists) PENSTOCK_CHECK_OK(storage.remove(path));
  return storage.write_file(path, bytes);
}

}  // namespace penstock::testing
