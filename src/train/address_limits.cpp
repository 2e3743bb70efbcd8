#include "train/address_limits.hpp"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "base/units.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kLibraryBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kLeastStackBytes = std::uint64_t{4} << 20;  // oneTBB's own choice

std::optional<std::uint64_t> limit_of(int resource) {
  struct rlimit limit {};
  const bool any = ::getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0 &&
                   limit.rlim_cur != RLIM_INFINITY;
  return any ? std::optional<std::uint64_t>(limit.rlim_cur) : std::nullopt;
}

std::uint64_t default_stack_bytes() {
  pthread_attr_t attributes;
  std::size_t bytes = 0;
  if (::pthread_getattr_default_np(&attributes) != 0) return kLeastStackBytes;
  if (::pthread_attr_getstacksize(&attributes, &bytes) != 0) bytes = 0;
  ::pthread_attr_destroy(&attributes);
  return std::max<std::uint64_t>(bytes, kLeastStackBytes);
}

}  // namespace

AddressLimits AddressLimits::read() {
  AddressLimits limits;
  limits.mapped_limit_bytes = limit_of(RLIMIT_AS);
  limits.data_limit_bytes = limit_of(RLIMIT_DATA);
  limits.stack_bytes = default_stack_bytes();
  // Pages: all, resident, shared, text, (nothing), data with the stack.
  std::uint64_t all = 0, skipped = 0, data = 0;
  std::ifstream file("/proc/self/statm");
  file >> all >> skipped >> skipped >> skipped >> skipped >> data;
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  limits.mapped_bytes = all * page_bytes;
  limits.data_bytes = data * page_bytes;
  return limits;
}

void AddressLimits::share_heap() const {
  if (mapped_limit_bytes) (void)::mallopt(M_ARENA_MAX, 1);
}

Status AddressLimits::check(std::uint32_t threads, std::size_t drives,
                            std::uint64_t budget_bytes) const {
  const std::uint64_t stacks = (std::uint64_t{threads} * 2 + drives * 5) * stack_bytes;
  const auto fits = [&](const std::optional<std::uint64_t>& limit, std::uint64_t used,
                        const char* name) {
    const std::uint64_t own = used + kLibraryBytes;
    const std::uint64_t needed = own + stacks + budget_bytes;
    if (!limit || needed <= *limit) return ok();
    const std::string budget =
        budget_bytes == 0 ? ""
                          : fmt::format("{} of memory for the run, ", format_bytes(budget_bytes));
    return Status(make_error(
        Errc::kUnsupported,
        fmt::format("this process may map {} by \"ulimit {}\" and needs {} ({}{} of stacks for {} "
                    "threads, {} of program and libraries); raise the limit, or lower --ram or "
                    "--threads",
                    format_bytes(*limit), name, format_bytes(needed), budget, format_bytes(stacks),
                    stacks / stack_bytes, format_bytes(own))));
  };
  PENSTOCK_CHECK_OK(fits(mapped_limit_bytes, mapped_bytes, "-v"));
  return fits(data_limit_bytes, data_bytes, "-d");
}

}  // namespace penstock
