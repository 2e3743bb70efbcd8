// The header of a data file. The input is a page as it is, and again with its hash made right.

#include <algorithm>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "io/store_format.hpp"

namespace penstock::fuzz {
namespace {

void try_page(std::span<const std::byte> page) {
  (void)has_data_magic(page);
  const auto header = decode_header(page, "page");
  if (!header) return must_be_said(header.error());
  std::vector<std::byte> again(kHeaderBytes);
  encode_header(header.value(), again);
  const auto second = decode_header(again, "page");
  must(second.ok() && second.value() == header.value(), "a header survives being written again");
}

}  // namespace
}  // namespace penstock::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto input = penstock::fuzz::bytes_of(data, bytes);
  penstock::fuzz::try_page(input);
  std::vector<std::byte> page(penstock::kHeaderBytes);
  std::copy_n(input.begin(), std::min(input.size(), page.size()), page.begin());
  penstock::fuzz::seal(page);
  penstock::fuzz::try_page(page);
  return 0;
}
