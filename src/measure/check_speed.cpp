#include "measure/check_speed.hpp"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "base/units.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kMostProbeBytes = kGiB;
constexpr std::uint64_t kFreeShare = 20;  // at most 5 % of what is free
constexpr std::uint64_t kLeastProbeBytes = 16 * kMiB;
// Below this a step of a model worth streaming takes minutes: hard drives, slow networks.
constexpr double kSlowBytesPerSecond = 300e6;
// Weights and moments of 1e9 parameters.
constexpr double kStateBytes = 12e9;

std::string milliseconds(double seconds) {
  return fmt::format("{:.3g} ms", seconds * 1e3);
}

void add_pass(const char* name, const PassRates& pass, Check& check) {
  check.data.emplace_back(fmt::format("{}_bytes_per_second", name), pass.bytes_per_second);
  check.data.emplace_back(fmt::format("{}_p99_seconds", name), pass.p99_seconds);
  check.data.emplace_back(fmt::format("{}_bytes", name), pass.bytes);
}

}  // namespace

std::uint64_t probe_bytes(std::uint64_t free_bytes, std::uint64_t longest_file_bytes) {
  const std::uint64_t bytes =
      std::min({kMostProbeBytes, free_bytes / kFreeShare, longest_file_bytes});
  return bytes < kLeastProbeBytes ? 0 : bytes / kProbePieceBytes * kProbePieceBytes;
}

Check skip_speed(const std::string& path, std::string why) {
  Check check{.name = "speed", .path = path};
  check.found(CheckStatus::kSkip, std::move(why));
  return check;
}

Check check_speed(const std::string& path, const Result<ProbeResult>& probe) {
  Check check{.name = "speed", .path = path};
  if (!probe) {
    const Error& error = probe.error();
    check.found(
        CheckStatus::kFail,
        error.sys_errno == 0 || error.message.find('"') != std::string::npos
            ? error.message
            : fmt::format("{}: {} ({})", error.message,
                          std::generic_category().message(error.sys_errno), error.sys_errno),
        "a training would fail in the same way", "dmesg | tail; or name another drive");
    return check;
  }
  const ProbeResult& result = probe.value();
  add_pass("read", result.read, check);
  add_pass("write", result.write, check);
  add_pass("first_write", result.first_write, check);
  check.data.emplace_back("written_bytes", result.written_bytes);
  check.data.emplace_back("queue", result.queue);
  check.data.emplace_back("direct", result.is_direct);
  const double read = result.read.bytes_per_second, write = result.write.bytes_per_second;
  const std::string why = fmt::format(
      "{} read (p99 {}), {} overwritten (p99 {}), {} written at first; short probe of {}, {}",
      format_rate(read), milliseconds(result.read.p99_seconds), format_rate(write),
      milliseconds(result.write.p99_seconds), format_rate(result.first_write.bytes_per_second),
      format_bytes(result.first_write.bytes), result.queue);
  // Reads and writes share the drive, so their times add up.
  const double seconds = read > 0 && write > 0 ? kStateBytes / read + kStateBytes / write : 0;
  check.data.emplace_back("state_pass_seconds", seconds > 0 ? CheckValue(seconds) : CheckValue());
  const std::string cost = fmt::format(
      "states of 1 billion parameters (12 GB) are read and written once in {:.3g} s", seconds);
  if (std::min(read, write) < kSlowBytesPerSecond) {
    check.found(CheckStatus::kWarn, why, cost,
                "name a directory on an NVMe drive, or give more to --ram so that less is moved");
  } else {
    check.found(CheckStatus::kOk, why, cost);
  }
  return check;
}

}  // namespace penstock
