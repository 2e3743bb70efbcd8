#pragma once

/// An engine to misuse, and the check of what a refused call says.

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "penstock/penstock.hpp"
#include "temporary_directory.hpp"

namespace penstock::capi_testing {

using testing::TemporaryDirectory;

/// A small engine: groups "a" and "b", one tensor each.
struct Small {
  TemporaryDirectory directory;
  std::string store = directory.store();  // before the engine, whose options point to it
  Engine engine;
  penstock_group a, b;
  penstock_tensor wa, wb;

  explicit Small(std::int32_t level = 2, bool open = true) : engine(options(level)) {
    a = engine.add_group("a");
    b = engine.add_group("b");
    wa = add("a.w", a);
    wb = add("b.w", b);
    engine.set_host_budget(engine.minimum_host_bytes());
    if (open) engine.open();
  }
  penstock_engine_options options(std::int32_t level) {
    penstock_engine_options out = engine_options();
    out.directory = store.c_str();
    out.level = level;
    out.threads = 1;
    return out;
  }
  penstock_tensor add(const char* name, penstock_group group) {
    return engine.add_tensor(describe(name, group));
  }
  static penstock_tensor_desc describe(const char* name, penstock_group group) {
    penstock_tensor_desc desc = tensor_desc();
    desc.name = name;
    desc.group = group;
    desc.rank = 1;
    desc.shape[0] = 100;
    return desc;
  }
};

#define EXPECT_REFUSED(expected, call)                                              \
  do {                                                                              \
    const penstock_status got_ = (call);                                            \
    EXPECT_STREQ(penstock_status_name(got_), penstock_status_name(expected))        \
        << #call << ": " << penstock_last_error();                                  \
    EXPECT_GT(std::strlen(penstock_last_error()), 10U) << #call << " says nothing"; \
  } while (false)

/// Arguments that take what a call gives.
struct Outputs {
  std::uint64_t number = 0;
  std::int32_t flag = 0;
  penstock_tensor tensor = 0;
  penstock_group group = 0;
  char* text = nullptr;
  void* data = nullptr;
  const void* blob = nullptr;
  float values[100] = {};
  penstock_lease lease{};
  penstock_step_input input = step_input();
  penstock_tensor_desc desc{};
  Outputs() { check(penstock_lease_init(&lease, sizeof lease)); }
  ~Outputs() { penstock_free(text); }
};

}  // namespace penstock::capi_testing
