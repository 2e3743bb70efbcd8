#pragma once

/// The flags of `train` and `generate`, and the checks that need no file.
/// Errors: kArgument, one sentence each.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/flags.hpp"
#include "train/run.hpp"

namespace penstock {

/// Flags into TrainOptions. Declare, convert the flags, then finish().
class TrainFlags {
 public:
  void declare(Flags& flags);
  /// What depends on several flags.
  Result<TrainOptions> finish() const;

 private:
  TrainOptions options_;
  std::vector<std::string> stores_;
  std::string config_;
  std::string model_;
  bool micro_given_ = false;
};

/// Likewise for GenerateOptions.
class GenerateFlags {
 public:
  void declare(Flags& flags);
  Result<GenerateOptions> finish() const;

 private:
  GenerateOptions options_;
  std::vector<std::string> stores_;
};

}  // namespace penstock
