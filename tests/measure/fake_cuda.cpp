// A driver library with two GPUs; PENSTOCK_FAKE_CUDA says what goes wrong:
//   init=N   cuInit returns N      hang   cuInit does not come back      name   cuDeviceGetName
//   fails

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {
std::string wish() {
  const char* said = std::getenv("PENSTOCK_FAKE_CUDA");
  return said == nullptr ? "" : said;
}
}  // namespace

#define PENSTOCK_FAKE extern "C" __attribute__((visibility("default"))) int

PENSTOCK_FAKE cuInit(unsigned) {
  const std::string said = wish();
  while (said == "hang") ::pause();
  return said.starts_with("init=") ? std::atoi(said.c_str() + 5) : 0;
}
PENSTOCK_FAKE cuDriverGetVersion(int* version) {
  *version = 12'040;
  return 0;
}
PENSTOCK_FAKE cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
PENSTOCK_FAKE cuDeviceGet(int* device, int index) {
  *device = 10 + index;
  return 0;
}
PENSTOCK_FAKE cuDeviceGetName(char* name, int bytes, int device) {
  if (wish() == "name") return 999;
  std::snprintf(name, static_cast<std::size_t>(bytes), "Fake GPU %d", device);
  return 0;
}
PENSTOCK_FAKE cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{80} << 30;
  return 0;
}
PENSTOCK_FAKE cuGetErrorName(int error, const char** name) {
  *name = error == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : nullptr;
  return *name == nullptr ? 1 : 0;
}

PENSTOCK_FAKE ncclGetVersion(int* version) {
  *version = std::atoi(std::getenv("PENSTOCK_FAKE_NCCL"));
  return *version < 0 ? 3 : 0;
}

PENSTOCK_FAKE MPI_Get_library_version(char* text, int* length) {
  std::strcpy(text, "Fake MPI v4.1.4, package: none\nmore");
  *length = static_cast<int>(std::strlen(text));
  return 0;
}
