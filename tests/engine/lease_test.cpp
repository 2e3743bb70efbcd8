// Leases: what may be held at once, and that a lease keeps its bytes.

#include "engine/harness.hpp"

namespace penstock::testing {
namespace {

struct Opened {
  Setup setup;
  ModelSpec model = small_model();
  TemporaryDirectory directory;
  World world{setup};
  Result<std::unique_ptr<Engine>> engine =
      make_engine(world.parts(setup), engine_options(setup, model, world.store(directory)), model);
};

TEST(LeaseTest, RefusesAnotherGroupOfAFrameThatIsLeased) {
  Opened opened;  // the smallest budget: five layers take turns in two frames
  ASSERT_TRUE(opened.engine.ok()) << opened.engine.error().message;
  Engine& engine = *opened.engine.value();
  ASSERT_TRUE(engine.step_begin().ok());
  auto first = engine.acquire(1);
  auto second = engine.acquire(2);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(second.ok());
  const auto third = engine.acquire(3);
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code, Errc::kState);
  EXPECT_NE(third.error().message.find("layer1"), std::string::npos) << third.error().message;
  first.value().reset();  // and the engine goes on
  EXPECT_TRUE(engine.acquire(3).ok());
  EXPECT_TRUE(engine.error().ok());
}

TEST(LeaseTest, KeepsItsBytesWhileOthersComeAndGo) {
  Opened opened;
  ASSERT_TRUE(opened.engine.ok()) << opened.engine.error().message;
  Engine& engine = *opened.engine.value();
  ASSERT_TRUE(engine.step_begin().ok());
  auto kept = engine.acquire(2);
  ASSERT_TRUE(kept.ok());
  const std::uint64_t elements = engine.plan().groups[2].elements;
  const std::vector<std::uint16_t> before(kept.value().data(), kept.value().data() + elements);
  for (const GroupId group : {0U, 1U, 3U, 5U, 6U, 1U}) ASSERT_TRUE(engine.acquire(group).ok());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), kept.value().data()));
}

}  // namespace
}  // namespace penstock::testing
