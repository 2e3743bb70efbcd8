#include "measure/check_profile.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace penstock {
namespace {

/// One that was measured for this directory or drive when it was another.
const DriveProfile* find_former(const ProfileFacts& facts,
                                const std::vector<DriveProfile>& profiles) {
  for (const DriveProfile& profile : profiles) {
    if (profile.path == facts.absolute || profile.device == facts.drive.id) return &profile;
  }
  return nullptr;
}

std::string change_text(const DriveProfile& former, const DriveIdentity& now) {
  if (former.device != now.id) {
    return fmt::format("the device was {} and is {}", former.device, now.id);
  }
  return fmt::format("the filesystem was {} and is {}", former.filesystem, now.filesystem);
}

}  // namespace

std::string age_text(std::uint64_t seconds) {
  constexpr std::uint64_t kHour = 3600, kDay = 24 * kHour, kMonth = 30 * kDay;
  const auto text = [](std::uint64_t count, const char* unit) {
    return fmt::format("{} {}{}", count, unit, count == 1 ? "" : "s");
  };
  if (seconds < 2 * kDay) return text(seconds / kHour, "hour");
  return seconds < 3 * kMonth ? text(seconds / kDay, "day") : text(seconds / kMonth, "month");
}

Check check_profile(const ProfileFacts& facts, const Result<std::vector<DriveProfile>>& profiles) {
  constexpr const char* kCost = "runs use the defaults, which other settings may beat";
  Check check{.name = "profile", .path = facts.path};
  check.data = {{"file", facts.place.file},
                {"device_id", facts.drive.id},
                {"filesystem", facts.drive.filesystem},
                {"age_seconds", CheckValue()}};
  const std::string fix = fmt::format("penstock tune {}", facts.path);
  if (facts.place.is_refused) {
    check.found(CheckStatus::kSkip, fmt::format("left out, as {}=none asks", kProfileVariable));
    return check;
  }
  if (!profiles) {
    check.found(CheckStatus::kWarn, profiles.error().message, kCost, fix);
    return check;
  }
  if (const DriveProfile* own = find_profile(profiles.value(), facts.drive)) {
    const std::uint64_t age = facts.unix_seconds - std::min(facts.unix_seconds, own->unix_seconds);
    check.data.back().second = age;
    check.found(CheckStatus::kOk, fmt::format("{}, measured {} ago by version {}",
                                              words_of(own->tuning), age_text(age), own->version));
  } else if (const DriveProfile* former = find_former(facts, profiles.value())) {
    check.found(CheckStatus::kWarn,
                fmt::format("the one that was measured here is not used, since {}",
                            change_text(*former, facts.drive)),
                kCost, fix);
  } else {
    check.found(CheckStatus::kSkip, "none for this drive; the defaults are used", {}, fix);
  }
  return check;
}

}  // namespace penstock
