#include "io/page_buffer.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace penstock {

PageBuffer::PageBuffer(std::uint64_t bytes) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 56;  // no address space is larger
  if (bytes > kMost) return;
  const std::uint64_t rounded = round_up(std::max<std::uint64_t>(bytes, 1), kPageBytes);
  void* mapping = ::mmap(nullptr, rounded + kPageBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return;
  memory_ = static_cast<std::byte*>(mapping);
  bytes_ = rounded;
  // None of these is refused on a mapping like this; without them the buffer still works.
  (void)::madvise(memory_, bytes_, MADV_DONTFORK);
  (void)::madvise(memory_, bytes_, MADV_DONTDUMP);
  (void)::mprotect(memory_ + bytes_, kPageBytes, PROT_NONE);
}

PageBuffer::~PageBuffer() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_ + kPageBytes);
}

}  // namespace penstock
