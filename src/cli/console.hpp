#pragma once

/// Where text goes: data to standard output, messages and progress to standard error.
///
/// Invariant: a live line is on the screen only between live() and the next line of any kind, which
///            replaces it.
/// Control characters in a line, as a name may have them, are shown as \n or \x1b.
/// Errors:    a failed write to standard output is remembered (output_status()) and ends the
///            command with an error; a failed write to standard error has nobody to be told.
/// Threads:   any; notes of the engine come from its own. Each call is whole on the screen.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace penstock {

/// A text in one line that leaves a terminal as it is: control characters as \n, \t, \x1b.
[[nodiscard]] std::string printable(std::string_view text);

enum class ColorChoice : std::uint8_t { kAuto, kAlways, kNever };

struct ConsoleOptions {
  bool json = false;   ///< data as JSON
  bool quiet = false;  ///< no messages but errors
  ColorChoice color = ColorChoice::kAuto;
  int output_fd = 1;
  int message_fd = 2;
  std::function<std::uint64_t()> now_ns{};  ///< monotonic; empty: the system's
};

class Console {
 public:
  static constexpr std::uint64_t kLiveIntervalNs = 200'000'000;  ///< at most 5 Hz

  explicit Console(ConsoleOptions options);
  Console(const Console&) = delete;  // two consoles would not know of each other's live line
  Console& operator=(const Console&) = delete;
  ~Console();

  [[nodiscard]] bool json() const { return options_.json; }
  /// Whether live() shows a line that is replaced: standard error is a terminal.
  [[nodiscard]] bool is_live() const { return live_; }

  /// A line of data.
  void data(std::string_view line);
  /// Data as it is, without a line end (generated text).
  void raw(std::string_view bytes);
  /// A line for the user; dropped when quiet.
  void note(std::string_view line);
  void warn(std::string_view line);
  void error(std::string_view line);
  /// A line about progress. On a terminal it replaces the last one, at most five times a second;
  /// elsewhere it is a plain line. Dropped when quiet.
  void live(std::string_view line);
  /// Leaves the newest live line on the screen as a line of its own.
  void finish_live();

  /// The first failed write to standard output.
  [[nodiscard]] Status output_status() const;

 private:
  void message(std::string_view label, std::string_view color, std::string_view line);
  void clear_live();  // this and the next: mutex_ is held
  void show_live();

  ConsoleOptions options_;
  bool live_ = false;
  bool color_ = false;
  mutable std::mutex mutex_;  // guards what follows, and writing
  std::string newest_live_;
  bool live_shown_ = false;
  std::uint64_t shown_ns_ = 0;
  int output_errno_ = 0;
};

}  // namespace penstock
