#pragma once

/// A run of tokens: a file of bytes, a file of 16- or 32-bit tokens, or random ones.
///
/// Token files are little-endian, either bare (nanoGPT) or behind the 1,024-byte header of llm.c:
///   offset  bytes
///        0      4  magic: 20240520 (16-bit tokens) or 20240801 (32-bit tokens)
///        4      4  version: 1 for 16-bit, 7 for 32-bit tokens
///        8      4  number of tokens, which must match the length of the file
///       12   1012  not read
/// Memory:  one buffer of at most kBufferBytes; files are read with pread, never mapped, so a file
///          that is cut while it is read gives an error and no signal.
/// Errors:  kArgument at opening (missing, unreadable, empty, odd length, unknown header, token not
///          below the vocabulary); kIo while running (cut, drive error), kCorrupt (token). Messages
///          name the file and the offset.
/// Threads: one at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"

namespace penstock {

/// How --data is to be read.
enum class DataType : std::uint8_t {
  kAuto,  ///< bytes without --vocab; with it the header decides, else 16 bits up to 65,536
  kBytes,
  kU16,
  kU32,
};

struct DataOptions {
  std::string path;  ///< or "random:N": random tokens of vocabulary N, the same in every run
  DataType type = DataType::kAuto;
  std::uint64_t vocab = 0;  ///< 0: not given
  std::uint64_t scan_limit_bytes = std::uint64_t{1}
                                   << 30;  ///< files up to this are read at opening
  std::uint64_t sum_limit_bytes = std::uint64_t{256}
                                  << 20;  ///< content() reads files up to this as a whole
};

class TokenReader {
 public:
  static constexpr std::size_t kBufferBytes = 256 * 1024;

  virtual ~TokenReader() = default;
  [[nodiscard]] virtual std::uint64_t tokens() const = 0;
  [[nodiscard]] virtual std::uint32_t vocab() const = 0;
  /// "bytes", "16-bit tokens", "32-bit tokens", "random tokens".
  [[nodiscard]] virtual std::string kind() const = 0;
  [[nodiscard]] virtual const std::string& path() const = 0;
  /// Whether every token was compared with the vocabulary at opening.
  [[nodiscard]] virtual bool scanned() const = 0;
  /// Hash of length, type, vocabulary and the first and last 64 KiB: tells files apart on resume.
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  static constexpr std::uint64_t kSumPieces = 1024, kSumPieceBytes = 64 * 1024;
  /// Length of the file; 0 where nothing is read.
  [[nodiscard]] virtual std::uint64_t bytes() const = 0;
  /// XXH3-64 of the bytes, to tell on resume that they changed: of the whole file up to
  /// sum_limit_bytes, else of kSumPieces pieces from its first byte to its last, evenly spaced.
  virtual Result<std::uint64_t> content() = 0;
  /// Tokens first..first+into.size(), each below vocab(); they must lie within tokens().
  virtual Status read(std::uint64_t first, std::span<std::uint32_t> into) = 0;
};

Result<std::unique_ptr<TokenReader>> open_tokens(const DataOptions& options);

}  // namespace penstock
