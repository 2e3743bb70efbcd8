#pragma once

/// How well counting alone predicts a text: the entropies a trained model must beat.
///
/// Memory: 512 KiB of counts. Threads: one at a time per object.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"

namespace penstock {

/// Counts of bytes and of pairs of neighbours.
class ByteCounts {
 public:
  ByteCounts() : pairs_(std::make_unique<Pairs>()) {}

  /// The next bytes of the text; how it is cut into pieces changes nothing.
  void add(std::span<const std::byte> piece);

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// H(byte), in nats. 0 for an empty text.
  [[nodiscard]] double unigram_nats() const;
  /// H(next byte | this byte), in nats, from the counts of pairs. 0 below two bytes.
  [[nodiscard]] double bigram_nats() const;

 private:
  using Pairs = std::array<std::array<std::uint64_t, 256>, 256>;  // [this byte][next byte]
  std::unique_ptr<Pairs> pairs_;
  std::array<std::uint64_t, 256> singles_{};
  std::uint64_t bytes_ = 0;
  std::size_t last_ = 0;
};

/// The counts of a file, read in pieces. kArgument: it cannot be read.
Result<ByteCounts> count_bytes(const std::string& path);

}  // namespace penstock
