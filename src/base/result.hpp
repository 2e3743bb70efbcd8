#pragma once

/// Failures as values.
///
/// Expected failures (I/O, budgets, bad files, missing features) are returned, never thrown: they
/// surface on other threads and must cross the C border. A message is one sentence that says what
/// failed, on which object, why, and what to do next.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace penstock {

/// What kind of failure; the C statuses of penstock.h have the same numbers.
enum class Errc : std::int32_t {
  kOk = 0,
  kArgument = 1,     ///< caller's mistake; the message names the argument and the limit
  kState = 2,        ///< a call out of order, a store in use, an engine that already failed
  kNoMemory = 3,     ///< a byte budget is too small; the message says which tier and by how much
  kNoSpace = 4,      ///< a drive is too small or full
  kIo = 5,           ///< a failed or short transfer
  kCorrupt = 6,      ///< a checksum or a format does not match
  kUnsupported = 7,  ///< missing in this build, kernel or machine
  kTimeout = 8,
  kCancelled = 9,
  kDevice = 10,
  kInternal = 99,  ///< a failed internal check
};

/// A failure with the context a user needs to act on it.
struct [[nodiscard]] Error {
  Errc code = Errc::kInternal;
  int sys_errno = 0;    ///< errno of the failed call, 0 when there was none
  std::string message;  ///< one sentence: what, on which object, why, the next thing to try

  /// Puts in front what the message does not say itself: "commit of step 7 in /x: ...".
  [[nodiscard]] Error in(std::string_view what) && {
    message.insert(0, std::string(what) + ": ");
    return std::move(*this);
  }
};

/// Stands for "no value" in Result<>, so that Status is a Result like any other.
struct Unit {};

/// Either a value or an Error. Reading the wrong one is a programming error.
template <class T = Unit>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] T& value() & noexcept { return *std::get_if<0>(&state_); }
  [[nodiscard]] const T& value() const& noexcept { return *std::get_if<0>(&state_); }
  [[nodiscard]] T&& value() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  [[nodiscard]] Error& error() & noexcept { return *std::get_if<1>(&state_); }
  [[nodiscard]] const Error& error() const& noexcept { return *std::get_if<1>(&state_); }
  [[nodiscard]] Error&& error() && noexcept { return std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<T, Error> state_;
};

using Status = Result<Unit>;

inline Status ok() {
  return Unit{};
}

inline Error make_error(Errc code, std::string message, int sys_errno = 0) {
  return Error{code, sys_errno, std::move(message)};
}

}  // namespace penstock

/// Binds `var` to the value of a Result, or returns its error as it is.
#define PENSTOCK_TAKE(var, expr)                             \
  auto var##_result = (expr);                                \
  if (!var##_result) return std::move(var##_result).error(); \
  auto& var = var##_result.value()

/// The same with `what` in front, for an error that does not name its object by itself; one that
/// does would become a stack of prefixes instead of a sentence.
#define PENSTOCK_TRY(var, expr, what)                                 \
  auto var##_result = (expr);                                         \
  if (!var##_result) return std::move(var##_result).error().in(what); \
  auto& var = var##_result.value()

/// Returns the error of a Status as it is.
#define PENSTOCK_CHECK_OK(expr)                            \
  do {                                                     \
    if (auto penstock_status_ = (expr); !penstock_status_) \
      return std::move(penstock_status_).error();          \
  } while (false)
