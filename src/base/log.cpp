#include "base/log.hpp"

#include <mutex>
#include <utility>

namespace penstock {

struct Logger::Sink {
  LogLevel min_level;
  Callback callback;
  std::mutex mutex;  // held while the callback runs
};

std::string_view name_of(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kTrace:
      return "trace";
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

Logger::Logger(LogLevel min_level, Callback callback) {
  if (!callback) return;
  sink_ = std::make_shared<Sink>();
  sink_->min_level = min_level;
  sink_->callback = std::move(callback);
}

bool Logger::enabled(LogLevel level) const noexcept {
  return sink_ != nullptr && level >= sink_->min_level;
}

void Logger::log(LogLevel level, std::string_view message, const char* file,
                 int line) const noexcept {
  if (!enabled(level)) return;
  try {
    const std::lock_guard lock(sink_->mutex);
    sink_->callback(level, file, line, message);
  } catch (...) {
    // Dropped, as the header says.
  }
}

}  // namespace penstock
