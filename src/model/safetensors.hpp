#pragma once

/// The safetensors file format, headers only; data is moved by the caller.
///
///   offset size
///        0    8  N, the length of the header, little endian
///        8    N  JSON: {"__metadata__": {string: string, ...},
///                       NAME: {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]},
///                       ...}
///                it begins with '{' and may end in spaces
///      8+N       the tensors' bytes, row by row; offsets count from here and leave no hole
///
/// Files may come from anybody: the reader takes exactly this and nothing else. A tensor's range
/// has the length of its shape, ranges tile the data, no key is there twice, numbers are whole and
/// fit 64 bits, a type that is not known is refused rather than skipped. Limits:  kMaxHeaderBytes,
/// kMaxTensors, kMaxDimensions, kMaxNameBytes, kMaxMetadata; memory is at
///          most four times the header and 16 MiB, and nothing is allocated before the header's
///          length was checked against the file's.
/// Errors:  kCorrupt, kUnsupported (type), kIo; one sentence that names file, tensor and value.
/// Threads: pure functions, but for reading the file that is named.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace penstock::safetensors {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxTensors = 2'000'000;
inline constexpr std::size_t kMaxDimensions = 8;
inline constexpr std::size_t kMaxNameBytes = 512;
inline constexpr std::size_t kMaxMetadata = 65'536;

struct Tensor {
  std::string name;
  std::string dtype;  ///< as the file spells it: "BF16", "F32", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< bytes, from the start of the data
};

struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<Tensor> tensors;   ///< in order of their data
  std::uint64_t data_start = 0;  ///< in the file
  std::uint64_t data_bytes = 0;
};

/// Bytes of one element; 0: not a type of this format that has whole bytes.
[[nodiscard]] std::uint64_t element_bytes(std::string_view dtype);

/// The header of a file of `file_bytes` bytes that begins with `head`; `head` reaches at least to
/// the end of the header, or is the whole file. `where` names it in messages.
Result<Header> parse(std::span<const std::byte> head, std::uint64_t file_bytes,
                     std::string_view where);

/// Reads and checks the header of a regular file.
Result<Header> read_header(const std::string& path);

/// The first bytes of a file with these tensors, up to their data, which follow one another in this
/// order: `begin` and `end` are set here. The length is a multiple of 8. kArgument: a name that is
/// not UTF-8 or there twice, an unknown type, a limit exceeded.
Result<std::string> encode_header(const std::map<std::string, std::string>& metadata,
                                  std::vector<Tensor>& tensors);

}  // namespace penstock::safetensors
