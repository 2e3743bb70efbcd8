#include "measure/check_memory.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "base/units.hpp"

namespace penstock {
namespace {

// The smallest training takes about 30 MiB; below this the system itself is in trouble.
constexpr std::uint64_t kLeastMemoryBytes = 64 * kMiB;
constexpr std::uint64_t kLittleMemoryBytes = kGiB;
// Of a store of the smallest model that is worth a training.
constexpr std::uint64_t kLeastFileBytes = 64 * kMiB;
// A training on one drive gets along with 12; each further drive takes a few more.
constexpr std::uint64_t kLeastOpenFiles = 12;
constexpr std::uint64_t kFewOpenFiles = 64;
constexpr std::uint64_t kLeastAddressBytes = kGiB;

CheckValue value_of(const std::optional<std::uint64_t>& number) {
  return number ? CheckValue(*number) : CheckValue();
}

std::optional<std::uint64_t> limit_of(__rlimit_resource resource) {
  struct rlimit limit {};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

}  // namespace

MemoryFacts read_memory_facts(const SystemFiles& files, const std::filesystem::path& root) {
  MemoryFacts facts;
  std::ifstream meminfo(files.proc / "meminfo");  // lines "MemAvailable:   123 kB"
  std::string key, rest;
  std::uint64_t value = 0, swap_free = 0;
  while (meminfo >> key >> value) {
    std::getline(meminfo, rest);
    if (key == "MemTotal:") facts.total_bytes = value * kKiB;
    if (key == "MemAvailable:") facts.available_bytes = value * kKiB;
    if (key == "SwapTotal:") facts.swap_bytes = value * kKiB;
    if (key == "SwapFree:") swap_free = value * kKiB;
  }
  facts.swap_used_bytes = facts.swap_bytes - std::min(swap_free, facts.swap_bytes);
  facts.group = read_memory_limit(files.proc / "self", root);
  return facts;
}

Check check_memory(const MemoryFacts& facts) {
  Check check{.name = "memory"};
  check.data = {
      {"total_bytes", value_of(facts.total_bytes)},
      {"available_bytes", value_of(facts.available_bytes)},
      {"group_limit_bytes", facts.group ? CheckValue(facts.group->limit_bytes) : CheckValue()},
      {"swap_used_bytes", facts.swap_used_bytes}};
  if (!facts.total_bytes || !facts.available_bytes) {
    check.found(CheckStatus::kWarn, "/proc/meminfo does not say how much there is",
                "--ram all takes too much or too little", "give --ram a size");
    return check;
  }
  std::uint64_t left = *facts.available_bytes;
  std::string why =
      fmt::format("{} available of {}", format_bytes(left), format_bytes(*facts.total_bytes));
  const bool is_grouped = facts.group && facts.group->left_bytes() < left;
  if (is_grouped) {
    left = facts.group->left_bytes();
    why += fmt::format(", of which the control group leaves {} (limit {})", format_bytes(left),
                       format_bytes(facts.group->limit_bytes));
  }
  const std::string more = is_grouped ? "raise the group's limit: docker run --memory, MemoryMax= "
                                        "of the service, or --mem of the batch job"
                                      : "end other programs, or add memory";
  if (left < kLeastMemoryBytes) {
    check.found(CheckStatus::kFail, why, "the system kills a training that takes more", more);
  } else if (left < kLittleMemoryBytes) {
    check.found(CheckStatus::kWarn, why, "only small models and batches fit", more);
  } else if (facts.swap_used_bytes > 0) {
    check.found(CheckStatus::kWarn,
                fmt::format("{}; {} are swapped out", why, format_bytes(facts.swap_used_bytes)),
                "memory that is swapped in and out during a step is slower than what Penstock "
                "streams itself",
                "give less to --ram and to other programs; swapoff -a where all of it fits");
  } else {
    check.found(CheckStatus::kOk, why);
  }
  return check;
}

HugePageFacts read_huge_page_facts(const Result<Arena>& arena, std::uint64_t asked_bytes,
                                   const SystemFiles& files) {
  HugePageFacts facts;
  facts.asked_bytes = asked_bytes;
  facts.huge_bytes = arena ? Result<std::uint64_t>(arena.value().huge_bytes())
                           : Result<std::uint64_t>(arena.error());
  std::ifstream setting(files.sys / "kernel" / "mm" / "transparent_hugepage" / "enabled");
  std::getline(setting, facts.setting);
  facts.disabled_here = ::prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1;
  return facts;
}

Check check_huge_pages(const HugePageFacts& facts) {
  Check check{.name = "huge pages"};
  check.data = {
      {"asked_bytes", facts.asked_bytes},
      {"huge_bytes", facts.huge_bytes ? CheckValue(facts.huge_bytes.value()) : CheckValue()},
      {"setting", facts.setting},
      {"disabled_for_process", facts.disabled_here}};
  if (!facts.huge_bytes) {
    check.found(CheckStatus::kFail, facts.huge_bytes.error().message,
                "a training keeps all its buffers in such memory", "free memory");
    return check;
  }
  const std::uint64_t huge = facts.huge_bytes.value();
  const std::string got = fmt::format("{} of {} came in 2 MiB pages", format_bytes(huge),
                                      format_bytes(facts.asked_bytes));
  if (huge >= facts.asked_bytes) {
    check.found(CheckStatus::kOk, got);
    return check;
  }
  constexpr const char* kCost =
      "drives read 2 to 2.8 times and write 1.4 to 1.9 times more slowly into 4 KiB pages, for 5 "
      "to 8 times the CPU time (measured on a virtual machine)";
  if (facts.setting.empty()) {
    check.found(CheckStatus::kWarn, got + "; this kernel has none", kCost,
                "boot a kernel with CONFIG_TRANSPARENT_HUGEPAGE");
  } else if (facts.setting.find("[never]") != std::string::npos) {
    check.found(CheckStatus::kWarn, got + "; /sys/kernel/mm/transparent_hugepage/enabled is never",
                kCost, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
  } else if (facts.disabled_here) {
    check.found(CheckStatus::kWarn, got + "; they are switched off for this process", kCost,
                "start without prctl(PR_SET_THP_DISABLE), which a parent program has set");
  } else {
    check.found(CheckStatus::kWarn, got + "; free memory is in pieces", kCost,
                "echo 1 | sudo tee /proc/sys/vm/compact_memory");
  }
  return check;
}

LimitFacts read_limit_facts() {
  return {limit_of(RLIMIT_NOFILE), limit_of(RLIMIT_FSIZE), limit_of(RLIMIT_AS)};
}

Check check_limits(const LimitFacts& facts) {
  Check check{.name = "limits"};
  check.data = {{"open_files", value_of(facts.open_files)},
                {"file_bytes", value_of(facts.file_bytes)},
                {"address_bytes", value_of(facts.address_bytes)}};
  const auto bytes = [](const std::optional<std::uint64_t>& limit) {
    return limit ? format_bytes(*limit) : std::string("any size");
  };
  const std::uint64_t files = facts.open_files.value_or(~std::uint64_t{0});
  if (facts.file_bytes) {
    check.found(
        *facts.file_bytes < kLeastFileBytes ? CheckStatus::kFail : CheckStatus::kWarn,
        fmt::format("files may have {} at most", bytes(facts.file_bytes)),
        fmt::format("a store on one drive is one file of about 24 bytes a parameter, so models of "
                    "more than {} M parameters are refused",
                    *facts.file_bytes / 24 / 1'000'000),
        "ulimit -f unlimited");
  } else if (facts.address_bytes) {
    check.found(*facts.address_bytes < kLeastAddressBytes ? CheckStatus::kFail : CheckStatus::kWarn,
                fmt::format("the address space is {} at most", bytes(facts.address_bytes)),
                "memory of a training ends there, however much is free", "ulimit -v unlimited");
  } else if (files < kFewOpenFiles) {
    check.found(files < kLeastOpenFiles ? CheckStatus::kFail : CheckStatus::kWarn,
                fmt::format("{} files may be open at a time", files),
                "a training on one drive takes 12, each further drive a few more",
                "ulimit -n 1024");
  } else {
    check.found(CheckStatus::kOk, fmt::format("{} open files; files and memory of any size",
                                              facts.open_files ? std::to_string(files) : "any"));
  }
  return check;
}

}  // namespace penstock
