#include "mem/lease.hpp"

#include <gtest/gtest.h>

#include <tuple>
#include <utility>
#include <vector>

namespace penstock {
namespace {

struct Owner {
  std::vector<std::pair<std::uint64_t, Access>> released{};
  Lease lease(std::uint64_t token, Access access) {
    return Lease(Frame{bytes, sizeof(bytes)}, access, this, token,
                 [](void* owner, std::uint64_t released_token, Access a) noexcept {
                   static_cast<Owner*>(owner)->released.emplace_back(released_token, a);
                 });
  }
  alignas(4096) std::byte bytes[4096]{};
};

using Released = std::vector<std::pair<std::uint64_t, Access>>;

TEST(LeaseTest, ReleasesOnceWithItsTokenAndAccess) {
  Owner owner;
  {
    const Lease lease = owner.lease(7, Access::kExclusive);
    EXPECT_TRUE(lease);
    EXPECT_EQ(lease.frame().data, owner.bytes);
    EXPECT_EQ(lease.token(), 7U);
    EXPECT_EQ(lease.access(), Access::kExclusive);
    EXPECT_TRUE(owner.released.empty());
  }
  EXPECT_EQ(owner.released, (Released{{7, Access::kExclusive}}));
}

TEST(LeaseTest, MovingHandsTheRightOn) {
  Owner owner;
  {
    Lease first = owner.lease(1, Access::kShared);
    Lease second = std::move(first);
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that it is empty is the claim
    EXPECT_EQ(first.frame().data, nullptr);
    EXPECT_TRUE(second);
    Lease third;
    third = std::move(second);
    EXPECT_TRUE(owner.released.empty());
    EXPECT_EQ(third.token(), 1U);
  }
  EXPECT_EQ(owner.released, (Released{{1, Access::kShared}}));
}

TEST(LeaseTest, AssignmentReleasesWhatWasHeld) {
  Owner owner;
  Lease lease = owner.lease(1, Access::kShared);
  lease = owner.lease(2, Access::kExclusive);
  EXPECT_EQ(owner.released, (Released{{1, Access::kShared}}));
  Lease& self = lease;
  lease = std::move(self);
  EXPECT_TRUE(lease) << "moving onto itself keeps the right";
  lease.release();
  lease.release();
  EXPECT_FALSE(lease);
  EXPECT_EQ(lease.frame().data, nullptr) << "no right, no address";
  EXPECT_EQ(owner.released, (Released{{1, Access::kShared}, {2, Access::kExclusive}}));
}

TEST(LeaseTest, EmptyOnesReleaseNothing) {
  Lease empty;
  EXPECT_FALSE(empty);
  empty.release();
  const Lease other = std::move(empty);
  EXPECT_FALSE(other);
}

}  // namespace
}  // namespace penstock
