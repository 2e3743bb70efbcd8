// Exported: version, messages, strings, struct defaults.

#include <fmt/format.h>

#include <cstdlib>

#include "capi/json_report.hpp"
#include "capi/text.hpp"
#include "capi/versioned.hpp"

namespace capi = penstock::capi;

extern "C" {

const char* penstock_status_name(penstock_status status) {
  switch (status) {
    case PENSTOCK_OK:
      return "OK";
    case PENSTOCK_E_ARGUMENT:
      return "E_ARGUMENT";
    case PENSTOCK_E_STATE:
      return "E_STATE";
    case PENSTOCK_E_NO_MEMORY:
      return "E_NO_MEMORY";
    case PENSTOCK_E_NO_SPACE:
      return "E_NO_SPACE";
    case PENSTOCK_E_IO:
      return "E_IO";
    case PENSTOCK_E_CORRUPT:
      return "E_CORRUPT";
    case PENSTOCK_E_UNSUPPORTED:
      return "E_UNSUPPORTED";
    case PENSTOCK_E_TIMEOUT:
      return "E_TIMEOUT";
    case PENSTOCK_E_CANCELLED:
      return "E_CANCELLED";
    case PENSTOCK_E_DEVICE:
      return "E_DEVICE";
    case PENSTOCK_E_INTERNAL:
      return "E_INTERNAL";
    default:
      return "unknown";
  }
}

const char* penstock_last_error(void) {
  return capi::last_message();
}

uint32_t penstock_version(void) {
  return PENSTOCK_VERSION_MAJOR * 10000 + PENSTOCK_VERSION_MINOR * 100 + PENSTOCK_VERSION_PATCH;
}

const char* penstock_build_info(void) {
  // In the library's own memory and never freed, so that it may be asked for at exit.
  static const char* const kText = [] {
    char* text = nullptr;
    const penstock_status status =
        capi::guarded([&] { return capi::copy_text(capi::build_info_json(), &text); });
    return status == PENSTOCK_OK ? text : "{}";
  }();
  return kText;
}

void penstock_free(void* memory) {
  std::free(memory);
}

penstock_status penstock_engine_options_init(penstock_engine_options* options, size_t struct_size) {
  return capi::initialise(options, struct_size);
}
penstock_status penstock_tensor_desc_init(penstock_tensor_desc* desc, size_t struct_size) {
  return capi::initialise(desc, struct_size);
}
penstock_status penstock_lease_init(penstock_lease* lease, size_t struct_size) {
  return capi::initialise(lease, struct_size);
}
penstock_status penstock_step_input_init(penstock_step_input* input, size_t struct_size) {
  return capi::initialise(input, struct_size);
}
penstock_status penstock_step_report_init(penstock_step_report* report, size_t struct_size) {
  return capi::initialise(report, struct_size);
}
penstock_status penstock_optimizer_args_init(penstock_optimizer_args* args, size_t struct_size) {
  return capi::initialise(args, struct_size);
}
penstock_status penstock_optimizer_arrays_init(penstock_optimizer_arrays* arrays,
                                               size_t struct_size) {
  return capi::initialise(arrays, struct_size);
}

}  // extern "C"
