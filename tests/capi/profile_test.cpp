// An engine of the C interface uses the profile of its drive, unless its options say otherwise.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "capi/profile_writer.hpp"
#include "penstock/penstock.hpp"
#include "temporary_directory.hpp"

namespace penstock::capi_testing {
namespace {

constexpr const char* kProfileVariable = "PENSTOCK_PROFILE";

class EngineProfile : public ::testing::Test {
 protected:
  EngineProfile() {
    EXPECT_TRUE(write_profile(file_, directory_.path()));
    if (const char* value = ::getenv(kProfileVariable)) before_ = value;
    ::setenv(kProfileVariable, file_.c_str(), 1);
  }
  ~EngineProfile() override { ::setenv(kProfileVariable, before_.c_str(), 1); }

  /// The queue of an engine with these options.
  std::string queue_of(const char* asked) {
    messages_.clear();
    const std::string store = directory_.store();
    penstock_engine_options options = engine_options();
    options.directory = store.c_str();
    options.threads = 1;
    options.scratch = 1;
    options.queue = asked;
    options.log_min_level = PENSTOCK_LOG_INFO;
    options.log_user = &messages_;
    options.log = [](void* user, penstock_log_level, const char*, int, const char* text) {
      *static_cast<std::string*>(user) += std::string(text) + "\n";
    };
    Engine engine(options);
    penstock_tensor_desc desc = tensor_desc();
    desc.name = "a";
    desc.group = engine.add_group("a");
    desc.rank = 1;
    desc.shape[0] = 1000;
    (void)engine.add_tensor(desc);
    engine.set_host_budget(engine.minimum_host_bytes());
    engine.open();
    return nlohmann::json::parse(engine.stats_json())["queue"];
  }
  [[nodiscard]] bool is_named() const {
    return messages_.find("the profile " + file_) != std::string::npos;
  }

  const testing::TemporaryDirectory directory_;
  const std::string file_ = directory_.path() + "/profile.toml";
  std::string before_, messages_;
};

TEST_F(EngineProfile, IsUsedAndNamedInTheLog) {
  EXPECT_EQ(queue_of(nullptr), "threads");
  EXPECT_TRUE(is_named()) << messages_;
}

TEST_F(EngineProfile, IsLeftOutWhereOptionsOrEnvironmentSaySo) {
  ::setenv(kProfileVariable, "none", 1);
  const std::string usual = queue_of(nullptr);
  EXPECT_FALSE(is_named()) << messages_;
  if (usual != "io_uring") GTEST_SKIP() << "the kernel refuses io_uring; allow it to see more";
  ::setenv(kProfileVariable, file_.c_str(), 1);
  EXPECT_EQ(queue_of("io_uring"), "io_uring");
  EXPECT_FALSE(is_named()) << messages_;
}

}  // namespace
}  // namespace penstock::capi_testing
