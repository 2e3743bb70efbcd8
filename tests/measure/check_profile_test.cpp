// Method: profiles and drives that the test makes up.

#include "measure/check_profile.hpp"

#include <gtest/gtest.h>

#include "topo/sample_profile.hpp"

namespace penstock {
namespace {

using testing::sample_profile;
using Profiles = Result<std::vector<DriveProfile>>;

ProfileFacts facts_of(const DriveProfile& profile) {
  ProfileFacts facts;
  facts.path = "here";
  facts.absolute = profile.path;
  facts.drive.id = profile.device;
  facts.drive.filesystem = profile.filesystem;
  facts.place.file = "/config/profile.toml";
  facts.unix_seconds = profile.unix_seconds + 3 * 86400;
  return facts;
}

TEST(CheckProfile, OneOfThisDriveIsSaidWithItsAge) {
  const Check check = check_profile(facts_of(sample_profile()), Profiles({sample_profile()}));
  EXPECT_EQ(check.status, CheckStatus::kOk);
  EXPECT_NE(check.why.find("pieces of 512 KiB"), std::string::npos) << check.why;
  EXPECT_NE(check.why.find("measured 3 days ago by version 0.1.0"), std::string::npos) << check.why;
  EXPECT_TRUE(check.fix.empty());
}

TEST(CheckProfile, OneFromTheFutureIsNew) {
  ProfileFacts facts = facts_of(sample_profile());
  facts.unix_seconds = 0;
  const Check check = check_profile(facts, Profiles({sample_profile()}));
  EXPECT_NE(check.why.find("measured 0 hours ago"), std::string::npos) << check.why;
}

TEST(CheckProfile, NoneIsNothingToMend) {
  const DriveProfile other = sample_profile("another");
  ProfileFacts facts = facts_of(sample_profile());
  facts.absolute = "/elsewhere";
  for (const Profiles& profiles : {Profiles(std::vector<DriveProfile>()), Profiles({other})}) {
    const Check check = check_profile(facts, profiles);
    EXPECT_EQ(check.status, CheckStatus::kSkip);
    EXPECT_EQ(check.fix, "penstock tune here");
  }
  facts.place.is_refused = true;
  const Check check = check_profile(facts, Profiles({sample_profile()}));
  EXPECT_EQ(check.status, CheckStatus::kSkip);
  EXPECT_NE(check.why.find("PENSTOCK_PROFILE=none"), std::string::npos);
}

TEST(CheckProfile, AnotherDeviceOrFilesystemSinceIsNamed) {
  ProfileFacts facts = facts_of(sample_profile());
  facts.drive.id = "new-drive";
  Check check = check_profile(facts, Profiles({sample_profile()}));
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_NE(check.why.find("the device was " + sample_profile().device + " and is new-drive"),
            std::string::npos)
      << check.why;
  EXPECT_EQ(check.fix, "penstock tune here");
  facts = facts_of(sample_profile());
  facts.drive.filesystem = "xfs";
  facts.absolute = "/elsewhere";
  check = check_profile(facts, Profiles({sample_profile()}));
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_NE(check.why.find("the filesystem was ext4 and is xfs"), std::string::npos) << check.why;
}

TEST(CheckProfile, ADamagedFileIsAWarningWithItsRemedy) {
  const Check check = check_profile(facts_of(sample_profile()),
                                    Profiles(make_error(Errc::kCorrupt, "it is damaged")));
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_EQ(check.why, "it is damaged");
  EXPECT_EQ(check.fix, "penstock tune here");
}

TEST(CheckProfile, AgesAreSaidInTheirUnit) {
  EXPECT_EQ(age_text(0), "0 hours");
  EXPECT_EQ(age_text(3600), "1 hour");
  EXPECT_EQ(age_text(3 * 86400), "3 days");
  EXPECT_EQ(age_text(400 * 86400), "13 months");
}

}  // namespace
}  // namespace penstock
