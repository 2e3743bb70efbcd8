#include "capi/failing_new.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PENSTOCK_OWN_NEW 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PENSTOCK_OWN_NEW 0
#endif
#endif
#ifndef PENSTOCK_OWN_NEW
#define PENSTOCK_OWN_NEW 1
#endif

namespace {

std::atomic<std::uint64_t> countdown{0};  // allocations until the one that fails; 0: none does
std::atomic<std::size_t> smallest{0};

}  // namespace

namespace penstock::capi_testing {

bool failing_new_works() noexcept {
  return PENSTOCK_OWN_NEW == 1;
}

void fail_allocation(std::uint64_t n, std::size_t at_least) noexcept {
  smallest.store(at_least);
  countdown.store(n);
}

bool allocations_may_fail() noexcept {
  return countdown.load() != 0;
}

/// Whether this allocation is the one; a breakpoint here shows its caller.
__attribute__((noinline)) bool allocation_fails(std::size_t bytes) noexcept {
  if (bytes < smallest.load(std::memory_order_relaxed)) return false;
  std::uint64_t left = countdown.load(std::memory_order_relaxed);
  while (left != 0) {
    if (countdown.compare_exchange_weak(left, left - 1)) return left == 1;
  }
  return false;
}

}  // namespace penstock::capi_testing

#if PENSTOCK_OWN_NEW
void* operator new(std::size_t bytes) {
  if (penstock::capi_testing::allocation_fails(bytes)) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif
