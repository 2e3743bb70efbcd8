// The header of a safetensors file. The input is such a file; and again its first eight bytes are
// the length of the data and the rest is the JSON, whose own length is made right, so that data of
// any size is described without being there.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "model/safetensors.hpp"

namespace penstock::fuzz {
namespace {

/// A file that lasts as long as the fuzzer, in memory.
int file() {
  static const int descriptor = ::memfd_create("safetensors", MFD_CLOEXEC);
  return descriptor;
}

bool same(const safetensors::Header& a, const safetensors::Header& b) {
  return a.metadata == b.metadata && a.data_bytes == b.data_bytes &&
         std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                    [](const safetensors::Tensor& x, const safetensors::Tensor& y) {
                      return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape &&
                             x.begin == y.begin && x.end == y.end;
                    });
}

/// What a reader of the data relies on.
void check_header(const safetensors::Header& header, std::uint64_t file_bytes) {
  must(header.data_start <= file_bytes && header.data_bytes == file_bytes - header.data_start,
       "the data is the rest of the file");
  std::set<std::string_view> names;
  std::uint64_t reached = 0;
  for (const safetensors::Tensor& tensor : header.tensors) {
    must(names.insert(tensor.name).second, "a tensor is there once");
    must(tensor.begin == reached && tensor.end >= tensor.begin, "tensors follow one another");
    reached = tensor.end;
    std::uint64_t bytes = safetensors::element_bytes(tensor.dtype);
    must(bytes != 0, "a tensor has a known type");
    for (const std::uint64_t length : tensor.shape) {
      must(!__builtin_mul_overflow(bytes, length, &bytes), "a shape has a size");
    }
    must(tensor.end - tensor.begin == bytes, "a tensor has the length of its shape");
  }
  must(reached == header.data_bytes, "tensors fill the data");
}

void try_head(std::span<const std::byte> head, std::uint64_t file_bytes) {
  const auto header = safetensors::parse(head, file_bytes, "file");
  if (!header) return must_be_said(header.error());
  check_header(header.value(), file_bytes);
  std::vector<safetensors::Tensor> tensors = header.value().tensors;
  const auto again = safetensors::encode_header(header.value().metadata, tensors);
  must(again.ok(), "what was read can be written");
  const std::string& text = again.value();
  const auto second = safetensors::parse(std::as_bytes(std::span(text)),
                                         text.size() + header.value().data_bytes, "again");
  must(second.ok() && same(second.value(), header.value()), "a header survives being written");
}

/// Reading from a file comes to the same as having its bytes.
void try_file(const std::uint8_t* data, std::size_t bytes) {
  const int fd = file();
  must(::ftruncate(fd, 0) == 0 && ::pwrite(fd, data, bytes, 0) == static_cast<ssize_t>(bytes),
       "memory");
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const auto from_file = safetensors::read_header(path);
  const auto from_bytes = safetensors::parse(bytes_of(data, bytes), bytes, path);
  must(from_file.ok() == from_bytes.ok(), "file and bytes are taken alike");
  if (from_file) must(same(from_file.value(), from_bytes.value()), "file and bytes say the same");
  if (!from_file) must(from_file.error().message == from_bytes.error().message, "in equal words");
}

}  // namespace
}  // namespace penstock::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using penstock::fuzz::bytes_of;
  penstock::fuzz::try_head(bytes_of(data, bytes), bytes);
  if (bytes < 8) return 0;
  std::uint64_t data_bytes = 0;
  std::memcpy(&data_bytes, data, 8);
  data_bytes >>= 1;  // files have signed lengths
  std::vector<std::byte> head(bytes);
  const std::uint64_t length = bytes - 8;
  std::memcpy(head.data(), &length, 8);
  std::memcpy(head.data() + 8, data + 8, length);
  // One input in sixteen costs system calls, too.
  if (data[0] % 16 == 0) penstock::fuzz::try_file(data, bytes);
  penstock::fuzz::try_head(head, bytes + std::min(data_bytes, ~std::uint64_t{0} / 2 - bytes));
  return 0;
}
