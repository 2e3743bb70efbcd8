// Method: libraries of the test's own are opened, with everything that can be wrong with them.

#include "measure/check_libraries.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/units.hpp"
#include "temporary_directory.hpp"
#include "topo/fake_system.hpp"

namespace penstock {
namespace {

constexpr const char* kNone = "libpenstock-there-is-no-such-library.so.1";

class LibrariesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    unsetenv("PENSTOCK_FAKE_CUDA");
    unsetenv("PENSTOCK_FAKE_NCCL");
  }
  CudaFacts cuda(const char* wish, std::uint64_t limit_ns = kCudaLimitNs) {
    setenv("PENSTOCK_FAKE_CUDA", wish, 1);
    return try_cuda(PENSTOCK_FAKE_LIBRARY, system_.files(), limit_ns);
  }
  /// A file that is no library.
  std::string broken() {
    std::ofstream(directory_.path() + "/libbroken.so") << "this is text";
    return directory_.path() + "/libbroken.so";
  }
  testing::FakeSystem system_;
  testing::TemporaryDirectory directory_;
};

TEST_F(LibrariesTest, NamesTheGpus) {
  CudaFacts facts = cuda("");
  EXPECT_EQ(facts.state, LibraryState::kWorks) << facts.problem;
  ASSERT_EQ(facts.devices.size(), 2U);
  EXPECT_EQ(facts.devices[1].name, "Fake GPU 11");
  facts.is_used = true;
  const Check check = check_cuda(facts);
  EXPECT_EQ(check.status, CheckStatus::kOk);
  EXPECT_EQ(check.why, "driver for CUDA 12.4, Fake GPU 10 (80 GiB), Fake GPU 11 (80 GiB)");
  facts.is_used = false;
  EXPECT_NE(check_cuda(facts).why.find("computes on the processor"), std::string::npos);
}

TEST_F(LibrariesTest, AMachineWithoutAGpuIsNoWarning) {
  EXPECT_EQ(check_cuda(cuda("init=100")).status, CheckStatus::kSkip) << "a driver, but no GPU";
  const CudaFacts facts = try_cuda(kNone, system_.files());
  EXPECT_EQ(facts.state, LibraryState::kAbsent) << facts.problem;
  EXPECT_EQ(check_cuda(facts).status, CheckStatus::kSkip);
  EXPECT_EQ(check_nccl(try_nccl(kNone)).status, CheckStatus::kSkip);
  EXPECT_EQ(check_mpi(try_mpi({kNone, kNone})).status, CheckStatus::kSkip);
}

TEST_F(LibrariesTest, ABrokenOneIsAWarningWithItsReason) {
  Check check = check_cuda(cuda("init=803"));
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_NE(check.why.find("cuInit says CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
            std::string::npos)
      << check.why;
  check = check_cuda(cuda("name"));
  EXPECT_NE(check.why.find("GPU 0 says unknown error (999)"), std::string::npos) << check.why;
  check = check_cuda(try_cuda(broken(), system_.files()));
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_NE(check.why.find("libbroken.so"), std::string::npos) << check.why;
  // Another library under that name.
  check = check_cuda(try_cuda("libc.so.6", system_.files()));
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_NE(check.why.find("it has no cuInit"), std::string::npos) << check.why;
  EXPECT_EQ(check_nccl(try_nccl(broken())).status, CheckStatus::kWarn);
  EXPECT_NE(check_nccl(try_nccl("libc.so.6")).why.find("no ncclGetVersion"), std::string::npos);
  EXPECT_EQ(check_mpi(try_mpi({kNone, broken()})).status, CheckStatus::kWarn);
}

TEST_F(LibrariesTest, DeviceFilesWithoutALibraryAreAContainerWithoutIt) {
  system_.write("dev/nvidiactl", "");
  const Check check = check_cuda(try_cuda(kNone, system_.files()));
  EXPECT_EQ(check.status, CheckStatus::kWarn);
  EXPECT_NE(check.fix.find("--gpus all"), std::string::npos);
}

TEST_F(LibrariesTest, ADriverThatHangsIsNotWaitedFor) {
  const CudaFacts facts = cuda("hang", 20'000'000);
  EXPECT_EQ(facts.state, LibraryState::kLate);
  EXPECT_EQ(check_cuda(facts).status, CheckStatus::kWarn);
}

TEST_F(LibrariesTest, ReadsVersions) {
  setenv("PENSTOCK_FAKE_NCCL", "22809", 1);
  EXPECT_EQ(try_nccl(PENSTOCK_FAKE_LIBRARY).version, "2.28.9");
  setenv("PENSTOCK_FAKE_NCCL", "2804", 1);
  EXPECT_EQ(try_nccl(PENSTOCK_FAKE_LIBRARY).version, "2.8.4");
  setenv("PENSTOCK_FAKE_NCCL", "-1", 1);
  EXPECT_EQ(try_nccl(PENSTOCK_FAKE_LIBRARY).state, LibraryState::kBroken);
  const LibraryFacts mpi = try_mpi({kNone, PENSTOCK_FAKE_LIBRARY});
  EXPECT_EQ(mpi.version, "Fake MPI v4.1.4");
  EXPECT_EQ(check_mpi(mpi).status, CheckStatus::kOk);
}

}  // namespace
}  // namespace penstock
