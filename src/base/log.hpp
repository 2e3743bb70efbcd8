#pragma once

/// Messages for people, handed to a callback of the caller's. The library itself prints nothing.
///
/// A Logger is a small value, passed in and copied: there is no global one. The default one drops
/// everything.
/// Threads: log() from any thread; calls of one logger and its copies reach the callback one at a
///          time. The callback must not log to the logger that calls it.
/// Errors:  none; what a callback throws is dropped, since no work may fail because of a message.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace penstock {

enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarning, kError };

[[nodiscard]] std::string_view name_of(LogLevel level) noexcept;

class Logger {
 public:
  using Callback =
      std::function<void(LogLevel level, const char* file, int line, std::string_view message)>;

  Logger() = default;
  Logger(LogLevel min_level, Callback callback);

  /// False when a message would be dropped: skip the work of formatting it.
  [[nodiscard]] bool enabled(LogLevel level) const noexcept;

  void log(LogLevel level, std::string_view message, const char* file = __builtin_FILE(),
           int line = __builtin_LINE()) const noexcept;

 private:
  struct Sink;
  std::shared_ptr<Sink> sink_;  // shared: copies of a logger use one callback and one lock
};

}  // namespace penstock

/// Formats only if the level is enabled; the caller includes <fmt/format.h>.
#define PENSTOCK_LOG(logger, level, ...)                                        \
  do {                                                                          \
    if ((logger).enabled(level)) (logger).log(level, fmt::format(__VA_ARGS__)); \
  } while (false)
