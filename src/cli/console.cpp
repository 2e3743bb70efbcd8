#include "cli/console.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr std::string_view kRed = "\x1b[1;31m", kYellow = "\x1b[1;33m", kPlain = "\x1b[0m";
constexpr std::string_view kClearLine = "\r\x1b[K";

// 0 or the errno.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

std::size_t terminal_columns(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

bool wants_color(ColorChoice choice, int fd) {
  if (choice != ColorChoice::kAuto) return choice == ColorChoice::kAlways;
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org
  const char* terminal = std::getenv("TERM");
  return ::isatty(fd) == 1 && (no_color == nullptr || *no_color == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

std::uint64_t monotonic_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      shown += "\\n";
    } else if (c == '\t') {
      shown += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  return shown;
}

Console::Console(ConsoleOptions options) : options_(std::move(options)) {
  if (!options_.now_ns) options_.now_ns = monotonic_ns;
  live_ = ::isatty(options_.message_fd) == 1;
  color_ = wants_color(options_.color, options_.message_fd);
}

Console::~Console() {
  finish_live();
}

void Console::data(std::string_view line) {
  raw(printable(line) + '\n');
}

void Console::raw(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  clear_live();
  const int error = write_all(options_.output_fd, bytes);
  if (output_errno_ == 0) output_errno_ = error;
}

void Console::note(std::string_view line) {
  if (!options_.quiet) message("", "", line);
}

void Console::warn(std::string_view line) {
  if (!options_.quiet) message("warning: ", kYellow, line);
}

void Console::error(std::string_view line) {
  message("penstock: ", kRed, line);
}

void Console::message(std::string_view label, std::string_view color, std::string_view line) {
  const std::lock_guard lock(mutex_);
  clear_live();
  const bool colored = color_ && !label.empty();
  const std::string text = fmt::format("{}{}{}{}\n", colored ? color : "", label,
                                       colored ? kPlain : "", printable(line));
  // Nobody could be told of a failure.
  static_cast<void>(write_all(options_.message_fd, text));
}

void Console::live(std::string_view line) {
  if (options_.quiet) return;
  if (!live_) {
    message("", "", line);
    return;
  }
  const std::lock_guard lock(mutex_);
  newest_live_ = printable(line);
  const std::uint64_t now = options_.now_ns();
  if (shown_ns_ != 0 && now - shown_ns_ < kLiveIntervalNs) return;
  shown_ns_ = std::max<std::uint64_t>(now, 1);
  show_live();
}

void Console::show_live() {
  // A line that wraps could not be replaced.
  const std::size_t room = std::max<std::size_t>(terminal_columns(options_.message_fd), 2) - 1;
  const std::string text =
      std::string(kClearLine) + newest_live_.substr(0, std::min(newest_live_.size(), room));
  static_cast<void>(write_all(options_.message_fd, text));
  live_shown_ = true;
}

void Console::clear_live() {
  if (live_shown_) static_cast<void>(write_all(options_.message_fd, kClearLine));
  live_shown_ = false;
}

void Console::finish_live() {
  const std::lock_guard lock(mutex_);
  if (!live_ || newest_live_.empty()) return;
  show_live();
  static_cast<void>(write_all(options_.message_fd, "\n"));
  newest_live_.clear();
  live_shown_ = false;
}

Status Console::output_status() const {
  const std::lock_guard lock(mutex_);
  if (output_errno_ == 0) return ok();
  return make_error(
      Errc::kIo,
      fmt::format("cannot write to standard output: {}; give it a place with room, or "
                  "a reader that stays",
                  std::generic_category().message(output_errno_)),
      output_errno_);
}

}  // namespace penstock
