#include "measure/check_libraries.hpp"

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "base/units.hpp"

namespace penstock {
namespace {

constexpr const char* kNotNeeded = "not needed for one process without a GPU";

/// An opened library. Never closed: drivers leave threads and handlers behind.
struct Library {
  void* handle = nullptr;
  LibraryState state = LibraryState::kAbsent;
  std::string problem;

  explicit Library(const std::string& name) {
    handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) {
      state = LibraryState::kWorks;
      return;
    }
    const char* said = ::dlerror();
    problem = said == nullptr ? "the loader does not say why" : said;
    // Anything else is a library that is there: of another machine, or without what it needs.
    if (!problem.starts_with(name + ": cannot open shared object file: No such file")) {
      state = LibraryState::kBroken;
    }
  }

  /// Null, and a problem, where the library has no such function.
  template <class Function>
  Function* find(const char* name) {
    void* const symbol = ::dlsym(handle, name);
    if (symbol == nullptr && problem.empty()) problem = fmt::format("it has no {}", name);
    return reinterpret_cast<Function*>(symbol);
  }
};

// The driver interface as far as it is used; 0 is success.
using CuInit = int(unsigned flags);
using CuGetVersion = int(int* version);
using CuGetCount = int(int* count);
using CuGetDevice = int(int* device, int index);
using CuGetName = int(char* name, int bytes, int device);
using CuGetMemory = int(std::size_t* bytes, int device);
using CuGetErrorName = int(int error, const char** name);

constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

CudaFacts ask_cuda(const std::string& name) {
  Library library(name);
  CudaFacts facts;
  facts.state = library.state;
  facts.problem = library.problem;
  if (library.state != LibraryState::kWorks) return facts;
  const auto init = library.find<CuInit>("cuInit");
  const auto get_version = library.find<CuGetVersion>("cuDriverGetVersion");
  const auto get_count = library.find<CuGetCount>("cuDeviceGetCount");
  const auto get_device = library.find<CuGetDevice>("cuDeviceGet");
  const auto get_name = library.find<CuGetName>("cuDeviceGetName");
  const auto get_memory = library.find<CuGetMemory>("cuDeviceTotalMem_v2");
  const auto get_error_name = library.find<CuGetErrorName>("cuGetErrorName");
  facts.problem = library.problem;
  facts.state = LibraryState::kBroken;
  if (!facts.problem.empty()) return facts;
  const auto failed = [&](const char* call, int error) {
    const char* text = nullptr;
    if (get_error_name(error, &text) != 0 || text == nullptr) text = "unknown error";
    facts.problem = fmt::format("{} says {} ({})", call, text, error);
    return facts;
  };
  (void)get_version(&facts.driver_version);  // stays 0 where it does not say
  int count = 0;
  const int started = init(0);
  if (started != 0 && started != kNoDevice) return failed("cuInit", started);
  if (started == 0) {
    if (const int error = get_count(&count); error != 0) return failed("cuDeviceGetCount", error);
  }
  for (int index = 0; index < count; ++index) {
    std::array<char, 256> text{};
    std::size_t bytes = 0;
    int device = 0;
    int error = get_device(&device, index);
    if (error == 0) error = get_name(text.data(), static_cast<int>(text.size()) - 1, device);
    if (error == 0) error = get_memory(&bytes, device);
    if (error != 0) return failed(fmt::format("GPU {}", index).c_str(), error);
    facts.devices.push_back({text.data(), bytes});
  }
  facts.state = LibraryState::kWorks;
  return facts;
}

Check check_library(const char* name, const LibraryFacts& facts, const char* need) {
  Check check{.name = name};
  check.data = {{"version", facts.version}};
  if (facts.state == LibraryState::kAbsent) {
    check.found(CheckStatus::kSkip, fmt::format("not installed; {}", kNotNeeded));
  } else if (facts.state == LibraryState::kWorks) {
    check.found(CheckStatus::kOk, facts.version);
  } else {
    check.found(
        CheckStatus::kWarn, "it does not work: " + facts.problem, need,
        fmt::format("install {} anew, or take the broken one out of LD_LIBRARY_PATH", name));
  }
  return check;
}

}  // namespace

CudaFacts try_cuda(const std::string& library, const SystemFiles& files, std::uint64_t limit_ns) {
  CudaFacts facts;
  // Shared: a driver that never answers keeps its thread, which outlives this call.
  const auto promise = std::make_shared<std::promise<CudaFacts>>();
  std::future<CudaFacts> answer = promise->get_future();
  bool is_asked = true;
  try {
    std::thread([promise, library] { promise->set_value(ask_cuda(library)); }).detach();
  } catch (const std::system_error&) {
    is_asked = false;
  }
  if (!is_asked) {
    facts = {.state = LibraryState::kBroken, .problem = "no thread could be started to ask it"};
  } else if (answer.wait_for(std::chrono::nanoseconds(limit_ns)) == std::future_status::ready) {
    facts = answer.get();
  } else {
    facts.state = LibraryState::kLate;
    facts.problem = fmt::format("the driver has not answered in {} s", limit_ns / 1'000'000'000);
  }
  std::error_code error;
  facts.has_device_files = std::filesystem::exists(files.dev / "nvidiactl", error);
#ifdef PENSTOCK_HAVE_CUDA
  facts.is_used = true;
#endif
  return facts;
}

LibraryFacts try_nccl(const std::string& name) {
  Library library(name);
  LibraryFacts facts{.state = library.state, .problem = library.problem};
  if (library.state != LibraryState::kWorks) return facts;
  facts.state = LibraryState::kBroken;
  const auto get_version = library.find<int(int*)>("ncclGetVersion");
  facts.problem = library.problem;
  if (get_version == nullptr) return facts;
  int version = 0;
  if (const int error = get_version(&version); error != 0) {
    facts.problem = fmt::format("ncclGetVersion fails ({})", error);
    return facts;
  }
  facts.state = LibraryState::kWorks;
  // 22809 is 2.28.9; before 2.9 it was 2804 for 2.8.4.
  facts.version =
      version >= 10'000
          ? fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100)
          : fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  return facts;
}

LibraryFacts try_mpi(const std::vector<std::string>& libraries) {
  constexpr std::size_t kMostText = 8192;  // Open MPI's text has 256 bytes at most, MPICH's 8192
  for (const std::string& name : libraries) {
    Library library(name);
    if (library.state == LibraryState::kAbsent) continue;
    LibraryFacts facts{.state = library.state, .problem = library.problem};
    if (library.state != LibraryState::kWorks) return facts;
    facts.state = LibraryState::kBroken;
    const auto get_version = library.find<int(char*, int*)>("MPI_Get_library_version");
    facts.problem = library.problem;
    if (get_version == nullptr) return facts;
    std::string text(kMostText, '\0');
    int length = 0;
    if (const int error = get_version(text.data(), &length); error != 0) {
      facts.problem = fmt::format("MPI_Get_library_version fails ({})", error);
      return facts;
    }
    facts.state = LibraryState::kWorks;
    facts.version = text.substr(0, text.find_first_of(std::string_view("\n,\0", 3)));
    return facts;
  }
  return {};
}

Check check_cuda(const CudaFacts& facts) {
  Check check{.name = "CUDA"};
  std::vector<std::string> names;
  for (const CudaDevice& device : facts.devices) {
    names.push_back(fmt::format("{} ({})", device.name, format_bytes(device.memory_bytes)));
  }
  check.data = {{"devices", names},
                {"driver_version", std::uint64_t(static_cast<unsigned>(facts.driver_version))}};
  constexpr const char* kCost = "no GPU can be used; processor, memory and drives can";
  switch (facts.state) {
    case LibraryState::kAbsent:
      if (facts.has_device_files) {
        check.found(CheckStatus::kWarn, "a GPU's device files are here, but not its library", kCost,
                    "docker run --gpus all, or install the driver's libcuda.so.1");
      } else {
        check.found(CheckStatus::kSkip, fmt::format("no driver; {}", kNotNeeded));
      }
      break;
    case LibraryState::kBroken:
    case LibraryState::kLate:
      check.found(CheckStatus::kWarn, "it does not work: " + facts.problem, kCost,
                  "nvidia-smi; restart after a change of the driver");
      break;
    case LibraryState::kWorks:
      if (names.empty()) {
        check.found(CheckStatus::kSkip, fmt::format("a driver, but no GPU; {}", kNotNeeded));
      } else {
        check.found(CheckStatus::kOk,
                    fmt::format("driver for CUDA {}.{}, {}{}", facts.driver_version / 1000,
                                facts.driver_version % 1000 / 10, fmt::join(names, ", "),
                                facts.is_used ? "" : "; this build computes on the processor"));
      }
      break;
  }
  return check;
}

Check check_nccl(const LibraryFacts& facts) {
  return check_library("NCCL", facts, "several GPUs cannot work together");
}

Check check_mpi(const LibraryFacts& facts) {
  return check_library("MPI", facts, "a trainer that starts its processes with MPI will not start");
}

}  // namespace penstock
