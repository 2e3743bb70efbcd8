#pragma once

/// Failures at the C border: a status, and a message of the calling thread.
///
/// Every exported function that can fail is one call of guarded(): the only place that catches, so
/// nothing is thrown across the border.
/// Threads: the message and the callback mark belong to the calling thread.
/// Memory:  the message is a fixed buffer: setting it cannot fail and nothing is freed at exit.

#include <exception>
#include <new>

#include "base/result.hpp"
#include "penstock/penstock.h"

namespace penstock::capi {

/// Remembers why the calling thread's call failed (cut to the buffer) and returns the status.
penstock_status fail(Errc code, std::string_view message) noexcept;
void clear_message() noexcept;
[[nodiscard]] const char* last_message() noexcept;

/// Marks the calling thread as inside one of the trainer's callbacks.
class CallbackScope {
 public:
  CallbackScope() noexcept;
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
};
[[nodiscard]] bool in_callback() noexcept;

/// Runs body() -> Status and turns what comes out into a status and a message.
template <class Body>
penstock_status guarded(Body&& body) noexcept {
  try {
    clear_message();
    const Status status = body();
    return status ? PENSTOCK_OK : fail(status.error().code, status.error().message);
  } catch (const std::bad_alloc&) {
    return fail(Errc::kNoMemory, "out of host memory; grant the engine less or free some");
  } catch (const std::exception& exception) {
    return fail(Errc::kInternal, exception.what());
  } catch (...) {
    return fail(Errc::kInternal,
                "an unknown exception, perhaps of a callback, which must not throw");
  }
}

inline Error argument(std::string message) {
  return make_error(Errc::kArgument, std::move(message));
}
inline Error wrong_state(std::string message) {
  return make_error(Errc::kState, std::move(message));
}

}  // namespace penstock::capi
