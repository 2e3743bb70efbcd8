#pragma once

/// Handles: numbers in the clothes of pointers, looked up and never dereferenced.
///
/// So a stale, forged or wrong handle is told from a live one without touching freed memory, and a
/// number is never used twice. The table of live handles is the library's only process-wide state.
/// Owner:   the table; a call in progress shares the object, so destroying it from another thread
///          meanwhile is safe: it dies with the last such call.
/// Fork:    a child knows its parent's handles but may not use them: their threads are not there.
/// Threads: any.
/// Errors:  kArgument for NULL and for a handle of another kind, kState for a stale or inherited
///          one and for calls out of a callback.

#include <cstdint>
#include <memory>

#include "base/result.hpp"

namespace penstock::capi {

enum class HandleKind : std::uint8_t { kEngine = 1, kPool = 2 };

class Object {
 public:
  virtual ~Object() = default;
};

/// The number of a new handle; it is unique among all of the process. Low 4 bits: the kind.
[[nodiscard]] std::uint64_t new_handle(HandleKind kind);
/// From now on `handle` is live.
void publish(std::uint64_t handle, std::shared_ptr<Object> object);

[[nodiscard]] Result<std::shared_ptr<Object>> find_object(const void* handle, HandleKind kind);
/// Takes the object out of the table: the handle is stale from now on.
[[nodiscard]] Result<std::shared_ptr<Object>> take_object(const void* handle, HandleKind kind);

template <class T>
[[nodiscard]] Result<std::shared_ptr<T>> find(const void* handle) {
  PENSTOCK_TAKE(object, find_object(handle, T::kKind));
  return std::static_pointer_cast<T>(object);
}

/// The C type's pointer for a number.
template <class C>
[[nodiscard]] C* as_pointer(std::uint64_t handle) {
  return reinterpret_cast<C*>(static_cast<std::uintptr_t>(handle));
}

}  // namespace penstock::capi
