#include "measure/device_copy.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "mem/arena.hpp"

namespace penstock {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{64} << 20;

/// The part of the CUDA driver interface that is used, by its documented names and types: CUresult,
/// CUdevice and flags are ints, CUcontext is a pointer, CUdeviceptr an integer of 64 bits.
struct Driver {
  int (*init)(unsigned flags) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_name)(char* name, int length, int device) = nullptr;
  int (*context_retain)(void** context, int device) = nullptr;
  int (*context_release)(int device) = nullptr;
  int (*context_set)(void* context) = nullptr;
  int (*allocate)(unsigned long long* memory, std::size_t bytes) = nullptr;
  int (*free)(unsigned long long memory) = nullptr;
  int (*host_register)(void* memory, std::size_t bytes, unsigned flags) = nullptr;
  int (*host_unregister)(void* memory) = nullptr;
  int (*to_device)(unsigned long long to, const void* from, std::size_t bytes) = nullptr;
  int (*to_host)(void* to, unsigned long long from, std::size_t bytes) = nullptr;
  int (*synchronize)() = nullptr;
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  // The one conversion that POSIX defines for this.
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

std::optional<Driver> load_driver() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  Driver driver;
  const bool whole = find(library, "cuInit", driver.init) &&
                     find(library, "cuDeviceGetCount", driver.device_count) &&
                     find(library, "cuDeviceGet", driver.device_get) &&
                     find(library, "cuDeviceGetName", driver.device_name) &&
                     find(library, "cuDevicePrimaryCtxRetain", driver.context_retain) &&
                     find(library, "cuDevicePrimaryCtxRelease_v2", driver.context_release) &&
                     find(library, "cuCtxSetCurrent", driver.context_set) &&
                     find(library, "cuMemAlloc_v2", driver.allocate) &&
                     find(library, "cuMemFree_v2", driver.free) &&
                     find(library, "cuMemHostRegister_v2", driver.host_register) &&
                     find(library, "cuMemHostUnregister", driver.host_unregister) &&
                     find(library, "cuMemcpyHtoD_v2", driver.to_device) &&
                     find(library, "cuMemcpyDtoH_v2", driver.to_host) &&
                     find(library, "cuCtxSynchronize", driver.synchronize);
  if (!whole) return std::nullopt;  // the library stays loaded: drivers do not take unloading well
  return driver;
}

/// A device with memory on both sides, until it dies.
class DeviceMemory {
 public:
  static Result<std::shared_ptr<DeviceMemory>> create(const Driver& driver, int ordinal) {
    auto made = std::make_shared<DeviceMemory>(driver);
    PENSTOCK_CHECK_OK(made->open(ordinal));
    return made;
  }
  explicit DeviceMemory(const Driver& driver) : driver_(driver) {}
  ~DeviceMemory() {
    if (context_ == nullptr) return;
    driver_.context_set(context_);
    if (memory_ != 0) driver_.free(memory_);
    if (registered_) driver_.host_unregister(host_->data());
    driver_.context_release(device_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }

  Result<RoundFigures> copy(bool to_device, double seconds) {
    if (const int code = driver_.context_set(context_); code != 0) return failed("context", code);
    const std::uint64_t start = now_ns();
    std::uint64_t bytes = 0, now = start;
    do {
      const int code = to_device ? driver_.to_device(memory_, host_->data(), kCopyBytes)
                                 : driver_.to_host(host_->data(), memory_, kCopyBytes);
      if (code != 0) return failed("copy", code);
      if (const int waited = driver_.synchronize(); waited != 0) return failed("wait", waited);
      bytes += kCopyBytes;
      now = now_ns();
    } while (static_cast<double>(now - start) * 1e-9 < seconds);
    RoundFigures figures;
    figures.window_seconds = static_cast<double>(now - start) * 1e-9;
    figures.bytes_per_second = static_cast<double>(bytes) / figures.window_seconds;
    return figures;
  }

 private:
  [[nodiscard]] Error failed(const char* what, int code) const {
    return make_error(Errc::kDevice,
                      fmt::format("device {}: {} failed with CUDA driver error {}; look it up in "
                                  "the driver's documentation",
                                  ordinal_, what, code));
  }

  Status open(int ordinal) {
    ordinal_ = ordinal;
    char name[256] = {};
    if (int code = driver_.device_get(&device_, ordinal); code != 0) return failed("get", code);
    if (driver_.device_name(name, sizeof(name) - 1, device_) == 0) name_ = name;
    void* context = nullptr;
    if (int code = driver_.context_retain(&context, device_); code != 0) {
      return failed("context", code);
    }
    context_ = context;
    if (int code = driver_.context_set(context_); code != 0) return failed("context", code);
    if (int code = driver_.allocate(&memory_, kCopyBytes); code != 0) {
      memory_ = 0;
      return failed("memory", code);
    }
    budget_ = std::make_unique<ByteBudget>("host", kCopyBytes);
    PENSTOCK_TAKE(arena, Arena::create(*budget_, "device copy", kCopyBytes));
    host_ = std::make_unique<Arena>(std::move(arena));
    if (int code = driver_.host_register(host_->data(), kCopyBytes, 0); code != 0) {
      return failed("pinned memory", code);
    }
    registered_ = true;
    return ok();
  }

  const Driver driver_;
  int ordinal_ = 0, device_ = 0;
  std::string name_;
  void* context_ = nullptr;
  unsigned long long memory_ = 0;
  bool registered_ = false;
  std::unique_ptr<ByteBudget> budget_;
  std::unique_ptr<Arena> host_;
};

}  // namespace

void add_device_copy_cases(std::vector<BenchCase>& cases, std::vector<std::string>& notes) {
  const auto driver = load_driver();
  int count = 0;
  if (!driver || driver->init(0) != 0 || driver->device_count(&count) != 0 || count == 0) {
    notes.push_back(driver ? "the CUDA driver shows no device, so copies between host and device "
                             "were not measured"
                           : "there is no CUDA driver (libcuda.so.1), so copies between host and "
                             "device were not measured");
    return;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    auto memory = DeviceMemory::create(*driver, ordinal);
    if (!memory) {
      notes.push_back(memory.error().message);
      continue;
    }
    for (const bool to_device : {true, false}) {
      BenchCase made;
      made.row.name = to_device ? fmt::format("copy host to device {}", ordinal)
                                : fmt::format("copy device {} to host", ordinal);
      made.row.kind = "copy";
      made.row.block_bytes = kCopyBytes;
      made.row.note = fmt::format("pinned memory; {}", memory.value()->name());
      made.run = [memory = memory.value(), to_device](double seconds) {
        return memory->copy(to_device, seconds);
      };
      cases.push_back(std::move(made));
    }
  }
}

}  // namespace penstock
