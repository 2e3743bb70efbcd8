#include "base/allocation_count.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t allocations = 0;

}  // namespace

namespace penstock::testing {

std::uint64_t allocations_of_this_thread() noexcept {
  return allocations;
}

}  // namespace penstock::testing

// The thread sanitizer brings these functions itself; there nothing is counted, and the other
// builds are the ones that check.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PENSTOCK_SANITIZER_ALLOCATES
#endif
#endif
#ifndef PENSTOCK_SANITIZER_ALLOCATES

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

#endif  // PENSTOCK_SANITIZER_ALLOCATES
