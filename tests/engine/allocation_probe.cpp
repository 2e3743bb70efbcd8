#include "engine/allocation_probe.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PENSTOCK_PROBE 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PENSTOCK_PROBE 0
#endif
#endif
#ifndef PENSTOCK_PROBE
#define PENSTOCK_PROBE 1
#endif

namespace {

std::atomic<bool> counting{false};
std::atomic<std::uint64_t> allocations{0};
std::atomic<std::uint64_t> first{0};

}  // namespace

namespace penstock::testing {

/// Where a debugger finds out who allocates.
__attribute__((noinline)) void allocation_counted(std::size_t bytes) noexcept {
  if (allocations.fetch_add(1) == 0) first.store(bytes);
}

bool allocation_probe_works() noexcept {
  return PENSTOCK_PROBE == 1;
}

AllocationProbe::AllocationProbe() noexcept {
  allocations.store(0);
  first.store(0);
  counting.store(true);
}
AllocationProbe::~AllocationProbe() {
  counting.store(false);
}
std::uint64_t AllocationProbe::count() const noexcept {
  return allocations.load();
}
std::uint64_t AllocationProbe::first_bytes() noexcept {
  return first.load();
}

}  // namespace penstock::testing

#if PENSTOCK_PROBE
void* operator new(std::size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) penstock::testing::allocation_counted(bytes);
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
