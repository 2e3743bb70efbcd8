#pragma once

/// What the fuzzers share. A target is one LLVMFuzzerTestOneInput; what must hold is checked with
/// must(), whose failure libFuzzer reports with the input that led to it.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>

#include "base/checksum.hpp"
#include "base/result.hpp"

namespace penstock::fuzz {

inline void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  __builtin_trap();
}

/// A refusal of a parser says something.
inline void must_be_said(const Error& error) {
  must(error.code != Errc::kOk && error.message.size() > 10, "a refusal has a code and a message");
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t bytes) {
  return {reinterpret_cast<const char*>(data), bytes};
}

inline std::span<const std::byte> bytes_of(const std::uint8_t* data, std::size_t bytes) {
  return std::as_bytes(std::span(data, bytes));
}

/// Makes the hash at the end of a header or manifest right, so that what it covers is reached.
inline void seal(std::span<std::byte> frame) {
  const Hash128 hash = hash128(frame.first(frame.size() - sizeof(Hash128)));
  std::memcpy(frame.data() + frame.size() - 16, &hash.low, 8);
  std::memcpy(frame.data() + frame.size() - 8, &hash.high, 8);
}

}  // namespace penstock::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);
