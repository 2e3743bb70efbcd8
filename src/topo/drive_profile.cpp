#include "topo/drive_profile.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <ctime>
#include <map>
#include <optional>
#include <variant>

#include <fmt/format.h>

#include "base/units.hpp"

namespace penstock {
namespace {

constexpr std::size_t kMostDrives = 1024;  // a limit on what a strange file can make us do

struct Time {
  std::uint64_t unix_seconds = 0;
};
using Value = std::variant<std::string, std::uint64_t, bool, Time>;
using Table = std::map<std::string, Value, std::less<>>;

Error damaged(std::size_t line, std::string_view what) {
  return make_error(Errc::kCorrupt, fmt::format("line {}: {}", line, what));
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

/// "2026-01-31T12:00:00Z", in years that four digits hold.
std::optional<Time> parse_time(std::string_view text) {
  constexpr std::string_view kShape = "dddd-dd-ddTdd:dd:ddZ";
  if (text.size() != kShape.size()) return std::nullopt;
  int numbers[6] = {};
  std::size_t number = 0;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] != 'd') {
      if (text[i] != kShape[i]) return std::nullopt;
      ++number;
    } else if (text[i] < '0' || text[i] > '9') {
      return std::nullopt;
    } else {
      numbers[number] = numbers[number] * 10 + (text[i] - '0');
    }
  }
  std::tm time{};
  time.tm_year = numbers[0] - 1900;
  time.tm_mon = numbers[1] - 1;
  time.tm_mday = numbers[2];
  time.tm_hour = numbers[3];
  time.tm_min = numbers[4];
  time.tm_sec = numbers[5];
  const std::time_t seconds = ::timegm(&time);
  if (seconds < 0) return std::nullopt;
  const Time parsed{static_cast<std::uint64_t>(seconds)};
  // The system carries a 32nd of a month over; such a date is none.
  if (format_time(parsed.unix_seconds) != text) return std::nullopt;
  return parsed;
}

void add_utf8(std::uint32_t code, std::string& to) {
  if (code < 0x80) {
    to += static_cast<char>(code);
  } else if (code < 0x800) {
    to += static_cast<char>(0xC0 | code >> 6);
    to += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    to += static_cast<char>(0xE0 | code >> 12);
    to += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    to += static_cast<char>(0x80 | (code & 0x3F));
  }
}

/// The string that `text` begins with; its quotes and what is between them leave `text`.
std::optional<std::string> take_string(std::string_view& text) {
  std::string value;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return value;
    }
    if (text[i] != '\\') {
      value += text[i];
      continue;
    }
    if (++i == text.size()) break;
    if (text[i] == '"' || text[i] == '\\') {
      value += text[i];
    } else if (text[i] == 'u' && text.size() - i > 4) {
      std::uint32_t code = 0;
      const auto [end, error] = std::from_chars(&text[i + 1], &text[i + 1] + 4, code, 16);
      if (error != std::errc() || end != &text[i + 1] + 4) break;
      add_utf8(code, value);
      i += 4;
    } else {
      break;
    }
  }
  return std::nullopt;
}

/// What follows "key ="; the rest of the line may be a comment.
std::optional<Value> parse_value(std::string_view text) {
  std::optional<Value> value;
  if (text.starts_with('"')) {
    auto string = take_string(text);
    if (!string) return std::nullopt;
    value = std::move(*string);
  } else {
    const std::string_view word = text.substr(0, text.find_first_of(" \t#"));
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (word == "true" || word == "false") {
      value = word == "true";
    } else if (error == std::errc() && end == word.data() + word.size() && !word.empty()) {
      value = number;
    } else if (const auto time = parse_time(word)) {
      value = *time;
    } else {
      return std::nullopt;
    }
    text.remove_prefix(word.size());
  }
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  if (!text.empty() && text.front() != '#') return std::nullopt;
  return value;
}

Status add_line(std::string_view line, std::size_t number, Table& table) {
  const std::size_t key_end = line.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_");
  std::size_t equals = std::min(key_end, line.size());
  while (equals < line.size() && is_blank(line[equals])) ++equals;
  if (key_end == 0 || equals >= line.size() || line[equals] != '=') {
    return damaged(number, "is no \"key = value\"");
  }
  std::string_view rest = line.substr(equals + 1);
  while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
  auto value = parse_value(rest);
  const std::string key(line.substr(0, key_end));
  if (!value) return damaged(number, fmt::format("the value of {} cannot be read", key));
  if (!table.emplace(key, std::move(*value)).second) {
    return damaged(number, fmt::format("{} is there twice", key));
  }
  return ok();
}

/// Reads the keys of one [[drive]].
class Entry {
 public:
  Entry(const Table& table, std::size_t line) : table_(table), line_(line) {}

  template <class T>
  Status required(std::string_view key, T& into) const {
    const auto at = table_.find(key);
    if (at == table_.end()) {
      return damaged(line_, fmt::format("the drive that begins here has no {}", key));
    }
    return take(*at, into);
  }
  template <class T>
  Status optional(std::string_view key, T& into) const {
    const auto at = table_.find(key);
    return at == table_.end() ? ok() : take(*at, into);
  }
  /// A power of two between the limits.
  Status size(std::string_view key, std::uint32_t least, std::uint32_t most,
              std::uint32_t& into) const {
    std::uint64_t value = least;
    if (!table_.contains(key)) return ok();
    PENSTOCK_CHECK_OK(optional(key, value));
    if (value < least || value > most || !std::has_single_bit(value)) {
      return damaged(line_, fmt::format("{} of the drive that begins here is {}, not a power of "
                                        "two from {} to {}",
                                        key, value, least, most));
    }
    into = static_cast<std::uint32_t>(value);
    return ok();
  }

 private:
  template <class T>
  Status take(const Table::value_type& at, T& into) const {
    const T* value = std::get_if<T>(&at.second);
    if (value == nullptr) {
      return damaged(line_,
                     fmt::format("{} of the drive that begins here is of another type", at.first));
    }
    into = *value;
    return ok();
  }

  const Table& table_;
  const std::size_t line_;
};

Result<DriveProfile> profile_from(const Table& table, std::size_t line) {
  const Entry entry(table, line);
  DriveProfile profile;
  Time time;
  std::string queue = "auto";
  bool registers = true;
  PENSTOCK_CHECK_OK(entry.required("device", profile.device));
  PENSTOCK_CHECK_OK(entry.required("filesystem", profile.filesystem));
  PENSTOCK_CHECK_OK(entry.required("path", profile.path));
  PENSTOCK_CHECK_OK(entry.required("penstock", profile.version));
  PENSTOCK_CHECK_OK(entry.required("measured", time));
  PENSTOCK_CHECK_OK(entry.optional("queue", queue));
  PENSTOCK_CHECK_OK(entry.optional("register_memory", registers));
  if (queue != "auto" && queue != "threads") {
    return damaged(line, "queue of the drive that begins here is neither auto nor threads");
  }
  QueueTuning& tuning = profile.tuning;
  tuning.threads = queue == "threads";
  tuning.plain_memory = !registers;
  PENSTOCK_CHECK_OK(
      entry.size("piece_bytes", kLeastProfilePiece, kMostProfilePiece, tuning.piece_bytes));
  PENSTOCK_CHECK_OK(entry.size("read_credit_bytes", kLeastProfileCredit, kMostProfileCredit,
                               tuning.read_credit_bytes));
  PENSTOCK_CHECK_OK(entry.size("write_credit_bytes", kLeastProfileCredit, kMostProfileCredit,
                               tuning.write_credit_bytes));
  PENSTOCK_CHECK_OK(entry.required("default_read_bytes_per_second", profile.by_default.read));
  PENSTOCK_CHECK_OK(entry.required("default_mixed_bytes_per_second", profile.by_default.mixed));
  PENSTOCK_CHECK_OK(entry.required("tuned_read_bytes_per_second", profile.tuned.read));
  PENSTOCK_CHECK_OK(entry.required("tuned_mixed_bytes_per_second", profile.tuned.mixed));
  profile.unix_seconds = time.unix_seconds;
  return profile;
}

Status check_schema(const Table& head) {
  const auto at = head.find("schema");
  const std::string* schema = at == head.end() ? nullptr : std::get_if<std::string>(&at->second);
  if (schema == nullptr) return damaged(1, "no schema says what the file is");
  if (*schema == kProfileSchema) return ok();
  return make_error(
      Errc::kUnsupported,
      fmt::format("its schema is \"{}\", and this version reads \"{}\"", *schema, kProfileSchema));
}

/// As TOML wants a string; bytes beyond ASCII stay as they are, UTF-8 if the path is.
std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\u{:04X}", byte);
    } else {
      result += c;
    }
  }
  return result + '"';
}

void add_size(std::string_view key, std::uint32_t value, std::string& text) {
  if (value != 0) text += fmt::format("{} = {}\n", key, value);
}

}  // namespace

Result<std::vector<DriveProfile>> parse_profiles(std::string_view text) {
  std::vector<DriveProfile> profiles;
  Table table;
  std::size_t number = 0, first_line = 0;  // 0: before the first drive
  const auto finish = [&]() -> Status {
    if (first_line == 0) return check_schema(table);
    PENSTOCK_TAKE(profile, profile_from(table, first_line));
    if (profiles.size() == kMostDrives) return damaged(first_line, "there are too many drives");
    profiles.push_back(std::move(profile));
    return ok();
  };
  while (!text.empty()) {
    ++number;
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return damaged(number, "does not end; the file was cut");
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
    if (line.empty() || line.front() == '#') continue;
    if (line == "[[drive]]") {
      PENSTOCK_CHECK_OK(finish());
      table.clear();
      first_line = number;
      continue;
    }
    PENSTOCK_CHECK_OK(add_line(line, number, table));
  }
  PENSTOCK_CHECK_OK(finish());
  if (profiles.empty()) return damaged(number, "no drive follows; the file was cut");
  return profiles;
}

std::string format_profiles(const std::vector<DriveProfile>& profiles) {
  std::string text =
      "# Written by penstock tune. Every run on these drives uses it, unless PENSTOCK_PROFILE is\n"
      "# none; it changes how fast a run is and nothing else, and may be removed at any time.\n";
  text += fmt::format("schema = \"{}\"\n", kProfileSchema);
  for (const DriveProfile& profile : profiles) {
    text += fmt::format("\n[[drive]]\ndevice = {}\nfilesystem = {}\npath = {}\npenstock = {}\n",
                        toml_string(profile.device), toml_string(profile.filesystem),
                        toml_string(profile.path), toml_string(profile.version));
    text += fmt::format("measured = {}\n", format_time(profile.unix_seconds));
    if (profile.tuning.threads) text += "queue = \"threads\"\n";
    add_size("piece_bytes", profile.tuning.piece_bytes, text);
    add_size("read_credit_bytes", profile.tuning.read_credit_bytes, text);
    add_size("write_credit_bytes", profile.tuning.write_credit_bytes, text);
    if (profile.tuning.plain_memory) text += "register_memory = false\n";
    text += fmt::format("default_read_bytes_per_second = {}\n", profile.by_default.read);
    text += fmt::format("default_mixed_bytes_per_second = {}\n", profile.by_default.mixed);
    text += fmt::format("tuned_read_bytes_per_second = {}\n", profile.tuned.read);
    text += fmt::format("tuned_mixed_bytes_per_second = {}\n", profile.tuned.mixed);
  }
  return text;
}

std::string format_time(std::uint64_t unix_seconds) {
  constexpr std::uint64_t kLastSecond = 253'402'300'799;  // of the year 9999
  const auto seconds = static_cast<std::time_t>(std::min(unix_seconds, kLastSecond));
  std::tm time{};
  ::gmtime_r(&seconds, &time);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", time.tm_year + 1900, time.tm_mon + 1,
                     time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec);
}

std::string words_of(const QueueTuning& tuning) {
  std::vector<std::string> words;
  if (tuning.threads) words.emplace_back("threads instead of io_uring");
  if (tuning.piece_bytes != 0) {
    words.push_back(fmt::format("pieces of {}", format_bytes(tuning.piece_bytes)));
  }
  if (tuning.read_credit_bytes != 0) {
    words.push_back(fmt::format("{} of reads in flight", format_bytes(tuning.read_credit_bytes)));
  }
  if (tuning.write_credit_bytes != 0) {
    words.push_back(fmt::format("{} of writes in flight", format_bytes(tuning.write_credit_bytes)));
  }
  if (tuning.plain_memory) words.emplace_back("memory that is not registered");
  return words.empty() ? "the defaults" : fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace penstock
