// A file of tokens. The first two bytes of the input choose how it is read.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "fuzz/fuzz.hpp"
#include "train/token_reader.hpp"

namespace penstock::fuzz {
namespace {

/// A file that lasts as long as the fuzzer, in memory.
int file() {
  static const int descriptor = ::memfd_create("tokens", MFD_CLOEXEC);
  return descriptor;
}

void read_ends(TokenReader& tokens) {
  std::array<std::uint32_t, 64> values{};
  const std::uint64_t count = std::min<std::uint64_t>(values.size(), tokens.tokens());
  for (const std::uint64_t first : {std::uint64_t{0}, tokens.tokens() - count}) {
    const Status read = tokens.read(first, std::span(values).first(count));
    if (!read) {
      must(!tokens.scanned(), "what was read at opening is read again");
      must_be_said(read.error());
      continue;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      must(values[i] < tokens.vocab(), "a token is below the vocabulary");
    }
  }
}

}  // namespace
}  // namespace penstock::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using penstock::fuzz::must;
  if (bytes < 2) return 0;
  const int file = penstock::fuzz::file();
  const auto length = static_cast<off_t>(bytes - 2);
  must(::ftruncate(file, 0) == 0 && ::pwrite(file, data + 2, bytes - 2, 0) == length, "memory");
  penstock::DataOptions options;
  options.path = "/proc/self/fd/" + std::to_string(file);
  options.type = static_cast<penstock::DataType>(data[0] % 4);
  const std::array<std::uint64_t, 8> vocabularies = {0, 1, 255, 256, 50257, 65536, 65537, 1U << 24};
  options.vocab = vocabularies[data[0] / 4 % vocabularies.size()];
  options.scan_limit_bytes = data[1] % 2 == 0 ? 0 : std::uint64_t{1} << 30;
  auto tokens = penstock::open_tokens(options);
  if (!tokens) {
    penstock::fuzz::must_be_said(tokens.error());
    return 0;
  }
  must(tokens.value()->tokens() > 0, "an open file has tokens");
  penstock::fuzz::read_ends(*tokens.value());
  return 0;
}
