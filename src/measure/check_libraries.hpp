#pragma once

/// CUDA, NCCL and MPI, opened at run time: Penstock does not link them and does without.
///
/// Threads: the libraries may start their own. try_cuda() asks the driver on a thread of its own
///          and waits for it with a limit; one that never answers is left behind.

#include <cstdint>
#include <string>
#include <vector>

#include "measure/check.hpp"
#include "topo/block_devices.hpp"

namespace penstock {

/// What the loader looks for; others in tests.
struct LibraryNames {
  std::string cuda = "libcuda.so.1";
  std::string nccl = "libnccl.so.2";
  std::vector<std::string> mpi = {"libmpi.so.40", "libmpi.so.12", "libmpi.so"};
};

enum class LibraryState : std::uint8_t { kAbsent, kBroken, kLate, kWorks };

struct CudaDevice {
  std::string name;
  std::uint64_t memory_bytes = 0;
};

struct CudaFacts {
  LibraryState state = LibraryState::kAbsent;
  std::string problem{};          ///< of a library that is broken
  int driver_version = 0;         ///< 12040 is 12.4
  bool has_device_files = false;  ///< the kernel's part of the driver is there
  bool is_used = false;           ///< this build has kernels for it
  std::vector<CudaDevice> devices{};
};

struct LibraryFacts {
  LibraryState state = LibraryState::kAbsent;
  std::string problem{};
  std::string version{};
};

inline constexpr std::uint64_t kCudaLimitNs = 10'000'000'000;

[[nodiscard]] CudaFacts try_cuda(const std::string& library, const SystemFiles& files,
                                 std::uint64_t limit_ns = kCudaLimitNs);
[[nodiscard]] LibraryFacts try_nccl(const std::string& library);
/// The first of the libraries that is there.
[[nodiscard]] LibraryFacts try_mpi(const std::vector<std::string>& libraries);

[[nodiscard]] Check check_cuda(const CudaFacts& facts);
[[nodiscard]] Check check_nccl(const LibraryFacts& facts);
[[nodiscard]] Check check_mpi(const LibraryFacts& facts);

}  // namespace penstock
