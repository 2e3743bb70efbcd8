// Method: a small training through penstock.h runs again and again; in the n-th run the n-th
// allocation of any thread fails, n = 1, 2, ... until a run ends that makes fewer. Each time the
// training says that memory is short, or does without; nothing throws or ends the program, and the
// store holds a committed step that opens.
//
// Once the engine is open every allocation may be the one. Before, only those of some size: the
// JSON library takes a few bytes in destructors, where a failure ends the program.
//
// PENSTOCK_FAULT_LOOP=all tries every n; by default a seed leaves most of the later ones out.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "capi/failing_new.hpp"
#include "capi/training.h"
#include "io/store.hpp"
#include "temporary_directory.hpp"

namespace penstock::capi_testing {
namespace {

using testing::TemporaryDirectory;

constexpr std::size_t kSomeSize = 4096;

struct Case {
  const char* name;
  const char* queue;
  std::int32_t level;
  std::int32_t lent;
  bool once_open;  ///< allocations of any size, once the engine is open
};

std::uint64_t fails_when_open = 0;  // for opened(), which has no argument

class AllocationFailureTest : public ::testing::TestWithParam<Case> {};

TEST_P(AllocationFailureTest, IsAStatusAndLeavesACommittedStep) {
  if (!failing_new_works()) {
    GTEST_SKIP() << "a sanitizer owns operator new; the build without one makes it fail";
  }
  const char* wanted = std::getenv("PENSTOCK_FAULT_LOOP");
  const bool all = wanted != nullptr && std::string(wanted) == "all";
  std::uint64_t runs = 0, refused = 0, elements = 0;
  for (const training_tensor& tensor : kTraining) elements += tensor.elements;
  std::vector<float> masters(elements);
  for (std::uint64_t n = 1;; ++n) {
    ASSERT_LT(n, 1'000'000U);
    if (!all && n > 20 && mix64(n, 3, 0) % 16 != 0) continue;
    SCOPED_TRACE("allocation " + std::to_string(n));
    const TemporaryDirectory directory("/dev/shm");  // flushes would take most of the time
    const std::string store = directory.store();
    training_options options{};
    options.directory = store.c_str();
    options.level = GetParam().level;
    options.lent = GetParam().lent;
    options.weights_dtype = PENSTOCK_BF16;
    options.threads = 1;
    options.queue = GetParam().queue;
    training_result result{};
    result.masters = masters.data();
    if (GetParam().once_open) {
      fails_when_open = n;
      options.opened = [] { fail_allocation(fails_when_open, 0); };
    } else {
      fail_allocation(n, kSomeSize);
    }
    const int line = training_run(&options, &result);
    const bool reached = !allocations_may_fail();
    fail_allocation(0, 0);
    if (!reached) {
      EXPECT_EQ(line, 0) << result.error;
      break;
    }
    ++runs;
    refused += line != 0 ? 1 : 0;
    const std::string said = result.error;
    EXPECT_TRUE(line == 0 || said.find("memory") != std::string::npos)
        << "line " << line << ": " << said;
    auto storage = make_posix_storage();
    auto opened = open_store(*storage, store, StoreOptions{}, true);
    if (!opened) {
      EXPECT_EQ(opened.error().code, Errc::kState) << opened.error().message;
      EXPECT_NE(line, 0);
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(refused, 10U);
  std::printf("%llu allocations failed, %llu of them ended the training\n",
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(refused));
}

INSTANTIATE_TEST_SUITE_P(Levels, AllocationFailureTest,
                         ::testing::Values(Case{"FromCreationLevel2", "threads", 2, 0, false},
                                           Case{"FromCreationLevel1", "io_uring", 1, 1, false},
                                           Case{"OnceOpenLevel2", "io_uring", 2, 0, true},
                                           Case{"OnceOpenLevel1", "io_uring", 1, 1, true},
                                           Case{"OnceOpenThreads", "threads", 2, 0, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::capi_testing
