#pragma once

/// What `penstock inspect` found out, as text or as JSON (schema penstock.inspect/1).
///
/// Threads: one.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/checksum.hpp"
#include "cli/console.hpp"
#include "cli/store_reader.hpp"
#include "cli/store_scrub.hpp"
#include "cli/tensor_stats.hpp"
#include "topo/drive_wear.hpp"

namespace penstock {

struct TensorFindings {
  const DescribedTensor* tensor = nullptr;
  std::vector<SectionStats> stats;
};

struct Findings {
  bool verified = false;
  ScrubResult scrub;
  std::vector<Damage> damage;  ///< the first of it
  std::optional<Hash128> hash;
  std::uint64_t endurance_bytes = 0;      ///< of its drives; 0: not given
  WearReport wear;                        ///< what its drives say
  bool is_checkpoint = false;             ///< its step is not the store's
  const DescribedTensor* only = nullptr;  ///< the tensor that was asked for; null: all
  std::vector<TensorFindings> stats;      ///< empty: not asked for
};

void show_findings(const Findings& findings, const StoreReader& reader, Console& console);

}  // namespace penstock
