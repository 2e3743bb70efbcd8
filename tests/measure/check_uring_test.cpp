// Method: what the kernel may answer is given as facts; this machine's own answer is asked once.

#include "measure/check_uring.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/units.hpp"
#include "mem/arena.hpp"

namespace penstock {
namespace {

UringFacts refused(int error) {
  UringFacts facts;
  facts.ring = make_error(Errc::kUnsupported, "set up io_uring: no", error);
  facts.offered_bytes = 64 * kMiB;
  return facts;
}

UringFacts granted(std::uint64_t registered, int buffers_errno = 0) {
  UringFacts facts;
  facts.ring = std::string("io_uring with 256 entries, single issuer");
  facts.offered_bytes = 64 * kMiB;
  facts.registered_bytes = registered;
  facts.buffers_errno = buffers_errno;
  return facts;
}

TEST(UringCheck, SaysWhatWasGranted) {
  UringFacts facts = granted(64 * kMiB);
  Check check = check_uring(facts);
  EXPECT_EQ(check.status, CheckStatus::kOk);
  EXPECT_EQ(check.why, "io_uring with 256 entries, single issuer, registered files");
  EXPECT_EQ(check.fix, "");
  facts.files_errno = EMFILE;
  check = check_uring(facts);
  EXPECT_NE(check.why.find("no registered files (Too many open files)"), std::string::npos);
}

TEST(UringCheck, ARefusalIsAWarningWithItsOwnRemedy) {
  const std::pair<int, const char*> cases[] = {
      {EPERM, "kernel.io_uring_disabled"},
      {ENOSYS, "Linux 5.6"},
      {ENOMEM, "ulimit -l"},
      {EMFILE, "ulimit -n"},
      {EINVAL, "dmesg"},
  };
  for (const auto& [error, remedy] : cases) {
    const Check check = check_uring(refused(error));
    EXPECT_EQ(check.status, CheckStatus::kWarn) << "threads do the same";
    EXPECT_NE(check.fix.find(remedy), std::string::npos) << check.fix;
    EXPECT_NE(check.cost.find("threads read and write instead"), std::string::npos);
    EXPECT_NE(check.why.find(std::to_string(error)), std::string::npos) << check.why;
  }
}

TEST(RegisteredMemoryCheck, SaysHowMuchTheLimitAllows) {
  UringFacts facts = granted(64 * kMiB);
  EXPECT_EQ(check_registered_memory(facts).status, CheckStatus::kOk);
  EXPECT_NE(check_registered_memory(facts).why.find("no limit"), std::string::npos);
  facts = granted(4 * kMiB, ENOMEM);
  facts.memlock_bytes = 8 * kMiB;
  const Check check = check_registered_memory(facts);
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_NE(check.why.find("limit 8 MiB: of 64 MiB io_uring registers 4 MiB"), std::string::npos)
      << check.why;
  EXPECT_NE(check.fix.find("memlock"), std::string::npos);
}

TEST(RegisteredMemoryCheck, WithoutARingOrMemoryItIsNotTried) {
  EXPECT_EQ(check_registered_memory(refused(EPERM)).status, CheckStatus::kSkip);
  EXPECT_EQ(check_registered_memory(UringFacts()).status, CheckStatus::kSkip);
}

TEST(UringTrial, AsksThisKernel) {
  ByteBudget budget("host", 4 * kMiB);
  const Result<Arena> arena = Arena::create(budget, "test", 4 * kMiB);
  ASSERT_TRUE(arena) << arena.error().message;
  const UringFacts facts = try_uring({arena.value().data(), arena.value().bytes()});
  EXPECT_EQ(facts.offered_bytes, 4 * kMiB);
  if (!facts.ring) GTEST_SKIP() << facts.ring.error().message;
  EXPECT_EQ(check_uring(facts).status, CheckStatus::kOk);
  EXPECT_EQ(facts.files_errno, 0);
  // All of it, or as much as the limit of locked memory allows.
  EXPECT_TRUE(facts.registered_bytes == 4 * kMiB || facts.buffers_errno == ENOMEM)
      << facts.registered_bytes << " bytes, errno " << facts.buffers_errno;
}

}  // namespace
}  // namespace penstock
