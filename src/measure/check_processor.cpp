#include "measure/check_processor.hpp"

#include <cpuid.h>

#include <fmt/format.h>

#include "base/units.hpp"

namespace penstock {
namespace {

constexpr unsigned kExtendedFeatures = 7;
constexpr unsigned kBf16Bit = 1U << 5;  // of eax, subleaf 1
constexpr unsigned kVbmiBit = 1U << 1;  // of ecx, subleaf 0

Isa widest_isa() {
  if (isa_supported(Isa::kAvx512)) return Isa::kAvx512;
  return isa_supported(Isa::kAvx2) ? Isa::kAvx2 : Isa::kScalar;
}

}  // namespace

ProcessorFacts read_processor_facts() {
  ProcessorFacts facts;
  facts.topology = read_topology();
  facts.chosen = choose_isa();
  facts.widest = widest_isa();
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(kExtendedFeatures, 0, &eax, &ebx, &ecx, &edx) != 0) {
    facts.has_vbmi = (ecx & kVbmiBit) != 0;
  }
  if (__get_cpuid_count(kExtendedFeatures, 1, &eax, &ebx, &ecx, &edx) != 0) {
    facts.has_bf16 = (eax & kBf16Bit) != 0;
  }
  return facts;
}

Check check_processor(const ProcessorFacts& facts) {
  Check check{.name = "cores"};
  if (!facts.topology) {
    check.found(CheckStatus::kWarn, facts.topology.error().message,
                "the number of threads is guessed", "give --threads a number");
    return check;
  }
  const Topology& topology = facts.topology.value();
  const auto count = [](int number) { return std::uint64_t(static_cast<unsigned>(number)); };
  check.data = {{"cores", count(topology.cores)},
                {"hardware_threads", count(topology.hardware_threads)},
                {"usable_threads", count(topology.usable_threads)},
                {"numa_nodes", std::uint64_t(topology.numa_nodes.size())}};
  std::string why = fmt::format("{} cores, {} hardware threads, {} NUMA node{}", topology.cores,
                                topology.hardware_threads, topology.numa_nodes.size(),
                                topology.numa_nodes.size() == 1 ? "" : "s");
  if (topology.usable_threads < topology.hardware_threads) {
    check.found(CheckStatus::kWarn,
                fmt::format("{}; the control group grants time for {:.3g} of them", why,
                            topology.cpu_quota),
                "updates and matrix products take that much longer",
                "docker run --cpus, CPUQuota= of the service, or --cpus-per-task of the batch job");
  } else if (topology.numa_nodes.size() > 1) {
    check.found(CheckStatus::kWarn, why,
                "memory of another node is slower, and threads and frames are not yet bound to "
                "nodes",
                "numactl --cpunodebind=0 --membind=0 penstock train ..., with the node of the "
                "drive");
  } else {
    check.found(CheckStatus::kOk, std::move(why));
  }
  return check;
}

Check check_instructions(const ProcessorFacts& facts) {
  Check check{.name = "instructions"};
  check.data = {{"widest", std::string(isa_name(facts.widest))},
                {"bf16", facts.has_bf16},
                {"vbmi", facts.has_vbmi}};
  if (!facts.chosen) {
    check.found(CheckStatus::kFail, facts.chosen.error().message, "no command that computes starts",
                "unset PENSTOCK_ISA");
    return check;
  }
  const Isa chosen = facts.chosen.value();
  check.data.emplace_back("chosen", std::string(isa_name(chosen)));
  const std::string why =
      fmt::format("{}; bf16 products {}, byte permutations {}", isa_name(chosen),
                  facts.has_bf16 ? "yes" : "no", facts.has_vbmi ? "yes" : "no");
  if (chosen != facts.widest) {
    check.found(CheckStatus::kWarn,
                fmt::format("{}, because PENSTOCK_ISA says so; this processor runs {}", why,
                            isa_name(facts.widest)),
                "updates take longer, for the same bits", "unset PENSTOCK_ISA");
  } else if (chosen == Isa::kScalar) {
    check.found(CheckStatus::kWarn, why,
                "updates and loops are several times slower than with AVX2",
                "use a processor with AVX2, FMA and F16C, or let the virtual machine see them");
  } else {
    check.found(CheckStatus::kOk, why);
  }
  return check;
}

}  // namespace penstock
