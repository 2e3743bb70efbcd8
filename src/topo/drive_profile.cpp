#include "topo/drive_profile.hpp"

#include <algorithm>
#include <bit>
#include <ctime>

#include <fmt/format.h>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "base/units.hpp"

namespace penstock {
namespace {

constexpr std::size_t kMostDrives = 1024;  // a limit on what a strange file can make us do

struct Time {
  std::uint64_t unix_seconds = 0;
};

Error damaged(const toml::source_region& where, std::string_view what) {
  return make_error(Errc::kCorrupt, fmt::format("line {}: {}", where.begin.line, what));
}

/// Paths are bytes, of any value: each is one character from U+0000 to U+00FF.
bool read_value(const toml::node& node, std::string& into) {
  const auto value = node.value_exact<std::string>();
  if (!value) return false;
  into.clear();
  for (std::size_t i = 0; i < value->size(); ++i) {
    auto byte = static_cast<unsigned char>((*value)[i]);
    if (byte >= 0x80) {  // UTF-8 of two bytes, 110000bb 10bbbbbb, or a character beyond these
      if ((byte & 0xFC) != 0xC0 || ++i == value->size()) return false;
      byte =
          static_cast<unsigned char>(byte << 6 | (static_cast<unsigned char>((*value)[i]) & 0x3F));
    }
    into += static_cast<char>(byte);
  }
  return true;
}

bool read_value(const toml::node& node, bool& into) {
  const auto value = node.value_exact<bool>();
  into = value.value_or(into);
  return value.has_value();
}

bool read_value(const toml::node& node, std::uint64_t& into) {
  const auto value = node.value_exact<std::int64_t>();
  if (!value || *value < 0) return false;
  into = static_cast<std::uint64_t>(*value);
  return true;
}

/// In UTC, and in whole seconds.
bool read_value(const toml::node& node, Time& into) {
  const auto value = node.value_exact<toml::date_time>();
  if (!value || !value->offset || value->offset->minutes != 0) return false;
  std::tm time{};
  time.tm_year = value->date.year - 1900;
  time.tm_mon = value->date.month - 1;
  time.tm_mday = value->date.day;
  time.tm_hour = value->time.hour;
  time.tm_min = value->time.minute;
  time.tm_sec = value->time.second;
  const std::time_t seconds = ::timegm(&time);
  into.unix_seconds = static_cast<std::uint64_t>(seconds);
  return seconds >= 0;
}

/// Reads the keys of one [[drive]].
class Entry {
 public:
  explicit Entry(const toml::table& table) : table_(table) {}

  template <class T>
  Status required(std::string_view key, T& into) const {
    if (table_.contains(key)) return optional(key, into);
    return damaged(table_.source(), fmt::format("the drive that begins here has no {}", key));
  }
  template <class T>
  Status optional(std::string_view key, T& into) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr || read_value(*node, into)) return ok();
    return damaged(node->source(), fmt::format("{} has no value that it can have", key));
  }
  /// A power of two between the limits.
  Status size(std::string_view key, std::uint32_t least, std::uint32_t most,
              std::uint32_t& into) const {
    if (!table_.contains(key)) return ok();
    std::uint64_t value = least;
    PENSTOCK_CHECK_OK(optional(key, value));
    if (value < least || value > most || !std::has_single_bit(value)) {
      return damaged(table_.get(key)->source(), fmt::format("{} is {}, not a power of two from {} "
                                                            "to {}",
                                                            key, value, least, most));
    }
    into = static_cast<std::uint32_t>(value);
    return ok();
  }
  [[nodiscard]] Error wrong(std::string_view what) const { return damaged(table_.source(), what); }

 private:
  const toml::table& table_;
};

Result<DriveProfile> profile_from(const toml::table& table) {
  const Entry entry(table);
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
    return entry.wrong("queue of the drive that begins here is neither auto nor threads");
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

Status check_schema(const toml::table& file) {
  const toml::node* node = file.get("schema");
  std::string schema;
  if (node == nullptr || !read_value(*node, schema)) {
    return make_error(Errc::kCorrupt, "no schema says what the file is");
  }
  if (schema == kProfileSchema) return ok();
  return make_error(
      Errc::kUnsupported,
      fmt::format("its schema is \"{}\", and this version reads \"{}\"", schema, kProfileSchema));
}

/// As TOML wants a string, in ASCII.
std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte >= 0x7F) {
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
  if (!text.ends_with('\n')) {
    return make_error(Errc::kCorrupt, "its last line does not end; the file was cut");
  }
  // toml++ 3.3 has undefined behaviour for some characters between words (U+FB00 and others).
  const auto odd = std::find_if(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
  if (odd != text.end()) {
    return make_error(Errc::kCorrupt,
                      fmt::format("line {}: has a byte beyond ASCII; write \\u00XX in a string",
                                  1 + std::count(text.begin(), odd, '\n')));
  }
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) return damaged(parsed.error().source(), parsed.error().description());
  const toml::table& file = parsed.table();
  PENSTOCK_CHECK_OK(check_schema(file));
  const toml::node* node = file.get("drive");
  if (node == nullptr) return make_error(Errc::kCorrupt, "it has no [[drive]]; the file was cut");
  const toml::array* drives = node->as_array();
  if (drives == nullptr || drives->empty() || drives->size() > kMostDrives ||
      !drives->is_homogeneous(toml::node_type::table)) {
    return damaged(node->source(),
                   fmt::format("drive is no list of 1 to {} tables [[drive]]", kMostDrives));
  }
  std::vector<DriveProfile> profiles;
  for (const toml::node& drive : *drives) {
    PENSTOCK_TAKE(profile, profile_from(*drive.as_table()));
    profiles.push_back(std::move(profile));
  }
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
