#pragma once

/// One call of each transformer kernel on made-up arrays, to compare tables, splits and float modes
/// bit for bit. All arrays end at an unreadable page.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/transformer.hpp"
#include "kernels/kernel_test_support.hpp"

namespace penstock::test {

enum class Content {
  kNormal,      ///< unremarkable numbers
  kDenormal,    ///< mostly tiny: rounding and flushing modes show
  kSpecial,     ///< infinities, NaNs, zeros, extremes among normal numbers
  kRandomBits,  ///< any of the 2^32 patterns
};

/// Hands out guarded arrays and remembers those that a kernel writes.
class ScenarioArrays {
 public:
  ScenarioArrays(std::uint64_t seed, Content content) : random_(seed), content_(content) {}

  const float* in(std::size_t n) { return filled(n); }
  float* out(std::size_t n) {
    float* data = filled(n);
    written_.emplace_back(data, n);
    return data;
  }
  /// Below `bound`, or kNoTarget.
  const std::uint32_t* indices(std::size_t n, std::size_t bound);
  const std::uint16_t* halves(std::size_t n);

  /// Everything written, NaNs canonical.
  [[nodiscard]] std::vector<std::uint32_t> result() const;

 private:
  float* filled(std::size_t n);
  float value();
  void* memory(std::size_t bytes);

  RandomBits random_;
  Content content_;
  std::vector<std::unique_ptr<GuardedBuffer>> buffers_;
  std::vector<std::pair<const float*, std::size_t>> written_;
};

/// The rows of a call, made in pieces of `group` rows.
struct Rows {
  std::size_t rows, n, group;

  template <class Call>
  void each_group(Call call) const {
    for (std::size_t first = 0; first < rows; first += group) {
      call(first, std::min(group, rows - first));
    }
  }
};

/// Prepares a scenario's arrays and returns the call, so that nothing but kernels runs in it.
using ScenarioCall = std::function<void(const TransformerKernels& kernels)>;
struct Scenario {
  const char* name;
  ScenarioCall (*prepare)(const Rows& rows, ScenarioArrays& arrays);
};
std::span<const Scenario> transformer_scenarios();

/// Runs with MXCSR set to `mxcsr` (0: as it is). Says in `restored` whether it was so afterwards.
std::vector<std::uint32_t> run_scenario(const Scenario& scenario, const TransformerKernels& kernels,
                                        const Rows& rows, Content content, unsigned mxcsr = 0,
                                        bool* restored = nullptr);

/// "" or the first scenario in which the tables differ.
std::string compare_tables(const TransformerKernels& a, const TransformerKernels& b);

}  // namespace penstock::test
