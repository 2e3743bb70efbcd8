#pragma once

/// Structs that grow: the caller's may be older or newer than ours.
///
/// A caller's struct begins with struct_size. It is copied into ours, whose members it lacks keep
/// their defaults; what it has beyond ours must be zero. Sizes: every size ever shipped.
/// Errors: kArgument names the struct and what to do.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "capi/status.hpp"

namespace penstock::capi {

/// Larger than any struct will grow: a struct_size beyond it was never set.
inline constexpr std::size_t kLargestStruct = 4096;

/// For each struct of penstock.h: its name, its sizes so far (oldest first), its defaults.
template <class T>
struct Versions;

template <class T>
Status check_size(std::size_t size) {
  const auto& sizes = Versions<T>::kSizes;
  const bool shipped = std::find(std::begin(sizes), std::end(sizes), size) != std::end(sizes);
  if (shipped || (size > sizeof(T) && size <= kLargestStruct)) return ok();
  return argument(
      fmt::format("{}: struct_size is {}, this library knows {}; fill the struct with "
                  "its init function first",
                  Versions<T>::kName, size, sizeof(T)));
}

/// Fills the caller's struct, as long as the caller thinks it is, with defaults.
template <class T>
penstock_status initialise(T* to, std::size_t size) noexcept {
  return guarded([&]() -> Status {
    if (to == nullptr) return argument(fmt::format("{}: the struct is NULL", Versions<T>::kName));
    PENSTOCK_CHECK_OK(check_size<T>(size));
    T defaults = Versions<T>::defaults();
    defaults.struct_size = static_cast<std::uint32_t>(size);
    std::memset(static_cast<void*>(to), 0, size);
    std::memcpy(static_cast<void*>(to), &defaults, std::min(size, sizeof(T)));
    return ok();
  });
}

/// Checks size and tail of a struct that the caller passes in.
template <class T>
Status check_struct(const T* from) {
  const char* name = Versions<T>::kName;
  if (from == nullptr) return argument(fmt::format("{} is NULL", name));
  const std::size_t size = from->struct_size;
  PENSTOCK_CHECK_OK(check_size<T>(size));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return argument(
          fmt::format("{}: byte {} is set, but this library knows only {} bytes; use a "
                      "newer library or leave new members zero",
                      name, i, sizeof(T)));
    }
  }
  return ok();
}

template <class T>
Result<T> read_struct(const T* from) {
  PENSTOCK_CHECK_OK(check_struct(from));
  T value = Versions<T>::defaults();
  std::memcpy(static_cast<void*>(&value), from,
              std::min<std::size_t>(from->struct_size, sizeof(T)));
  return value;
}

/// Writes as much of a result as the caller's struct, checked before, has room for.
template <class T>
void write_struct(T value, T* to) {
  value.struct_size = to->struct_size;
  std::memcpy(static_cast<void*>(to), &value, std::min<std::size_t>(to->struct_size, sizeof(T)));
}

inline penstock_engine_options default_engine_options() {
  penstock_engine_options value{};
  value.level = 2;
  value.mode = PENSTOCK_CREATE_OR_RESUME;
  value.deadline_ns = 120'000'000'000;
  value.log_min_level = PENSTOCK_LOG_INFO;
  return value;
}

template <>
struct Versions<penstock_engine_options> {
  static constexpr const char* kName = "penstock_engine_options";
  static constexpr std::size_t kSizes[] = {144};
  static penstock_engine_options defaults() { return default_engine_options(); }
};

template <>
struct Versions<penstock_tensor_desc> {
  static constexpr const char* kName = "penstock_tensor_desc";
  static constexpr std::size_t kSizes[] = {144};
  static penstock_tensor_desc defaults() {
    penstock_tensor_desc value{};
    value.trainable = value.decay = 1;
    value.contributions = 1;
    value.init = PENSTOCK_INIT_ZEROS;
    return value;
  }
};

template <>
struct Versions<penstock_lease> {
  static constexpr const char* kName = "penstock_lease";
  static constexpr std::size_t kSizes[] = {48};
  static penstock_lease defaults() { return {}; }
};

template <>
struct Versions<penstock_step_input> {
  static constexpr const char* kName = "penstock_step_input";
  static constexpr std::size_t kSizes[] = {64};
  static penstock_step_input defaults() { return {0, 0, 1e-3, 0.9, 0.999, 1e-8, 0.0, 0.0, 1.0}; }
};

template <>
struct Versions<penstock_step_report> {
  static constexpr const char* kName = "penstock_step_report";
  static constexpr std::size_t kSizes[] = {48};
  static penstock_step_report defaults() { return {}; }
};

template <>
struct Versions<penstock_optimizer_args> {
  static constexpr const char* kName = "penstock_optimizer_args";
  static constexpr std::size_t kSizes[] = {64, 112};
  static penstock_optimizer_args defaults() {
    penstock_optimizer_args value{};
    value.kind = PENSTOCK_ADAMW;
    value.t = 1;
    value.lr = 1e-3;
    value.beta1 = 0.9;
    value.beta2 = 0.999;
    value.eps = 1e-8;
    value.gradient_factor = 1.0;
    return value;
  }
};

template <>
struct Versions<penstock_optimizer_arrays> {
  static constexpr const char* kName = "penstock_optimizer_arrays";
  static constexpr std::size_t kSizes[] = {104, 136};
  static penstock_optimizer_arrays defaults() {
    penstock_optimizer_arrays value{};
    value.grad_dtype = value.state_dtype = PENSTOCK_F32;
    return value;
  }
};

// A struct that grows gets a new size at the end of its list; old ones stay.
template <class T>
inline constexpr bool kLastSizeIsOurs = *(std::end(Versions<T>::kSizes) - 1) == sizeof(T);
static_assert(kLastSizeIsOurs<penstock_engine_options>);
static_assert(kLastSizeIsOurs<penstock_tensor_desc>);
static_assert(kLastSizeIsOurs<penstock_lease>);
static_assert(kLastSizeIsOurs<penstock_step_input>);
static_assert(kLastSizeIsOurs<penstock_step_report>);
static_assert(kLastSizeIsOurs<penstock_optimizer_args>);
static_assert(kLastSizeIsOurs<penstock_optimizer_arrays>);

}  // namespace penstock::capi
