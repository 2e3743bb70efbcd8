#pragma once

/// Cores, NUMA nodes and the instruction set that the kernels use.
///
/// Threads: pure functions, but for reading the environment and the processor.

#include <string>

#include "base/result.hpp"
#include "kernels/cpu/isa.hpp"
#include "measure/check.hpp"
#include "topo/topology.hpp"

namespace penstock {

struct ProcessorFacts {
  Result<Topology> topology = Topology();
  Result<Isa> chosen = Isa::kScalar;
  Isa widest = Isa::kScalar;  ///< that this processor runs
  bool has_bf16 = false;      ///< products of bf16 in the vector unit (AVX512_BF16)
  bool has_vbmi = false;      ///< permutations of bytes (AVX512_VBMI)
};

[[nodiscard]] ProcessorFacts read_processor_facts();
[[nodiscard]] Check check_processor(const ProcessorFacts& facts);
[[nodiscard]] Check check_instructions(const ProcessorFacts& facts);

}  // namespace penstock
