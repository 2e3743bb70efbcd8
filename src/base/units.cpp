#include "base/units.hpp"

#include <array>
#include <cctype>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace penstock {
namespace {

struct UnitName {
  std::string_view name;  // lower case
  std::uint64_t bytes;
};

constexpr std::uint64_t kKilo = 1000;
constexpr std::array kUnits = {
    UnitName{"", 1},
    UnitName{"b", 1},
    UnitName{"kb", kKilo},
    UnitName{"mb", kKilo* kKilo},
    UnitName{"gb", kKilo* kKilo* kKilo},
    UnitName{"tb", kKilo* kKilo* kKilo* kKilo},
    UnitName{"pb", kKilo* kKilo* kKilo* kKilo* kKilo},
    UnitName{"kib", kKiB},
    UnitName{"mib", kMiB},
    UnitName{"gib", kGiB},
    UnitName{"tib", kTiB},
    UnitName{"pib", kTiB << 10},
};

// Decimals beyond these cannot move a whole byte of the largest unit by more than one.
constexpr std::size_t kMaxDecimals = 18;

Error bad(std::string_view text, std::string_view why) {
  return make_error(Errc::kArgument,
                    fmt::format("\"{}\" is not a size: {}; write for example 4096, 60MiB, 1.5GB or "
                                "64GiB",
                                text, why));
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string_view take_digits(std::string_view& text) {
  std::size_t count = 0;
  while (count < text.size() && is_digit(text[count])) ++count;
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

const UnitName* find_unit(std::string_view suffix) {
  std::string lower;
  for (const char c : suffix) {
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const UnitName& unit : kUnits) {
    if (unit.name == lower) return &unit;
  }
  return nullptr;
}

__extension__ using Wide = unsigned __int128;

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::string_view rest = trimmed(text);
  if (rest.empty()) return bad(text, "it is empty");
  if (rest.front() == '-') return bad(text, "it is negative");
  const std::string_view whole_digits = take_digits(rest);
  std::string_view fraction_digits;
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    fraction_digits = take_digits(rest);
    if (fraction_digits.empty()) return bad(text, "no digit follows the point");
  }
  if (whole_digits.empty()) return bad(text, "it does not start with a digit");
  if (fraction_digits.size() > kMaxDecimals) return bad(text, "it has more than 18 decimals");

  const std::string_view suffix = trimmed(rest);
  const UnitName* unit = find_unit(suffix);
  if (unit == nullptr) {
    return bad(text, fmt::format("unknown unit \"{}\" (known: B, kB, MB, GB, TB, PB in powers of "
                                 "1000; KiB, MiB, GiB, TiB, PiB in powers of 1024)",
                                 suffix));
  }

  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  Wide bytes = 0;
  for (const char digit : whole_digits) {
    bytes = bytes * 10 + static_cast<unsigned>(digit - '0');
    if (bytes > kMax) return bad(text, "it is more than 64 bits hold");
  }
  bytes *= unit->bytes;
  std::uint64_t fraction = 0;
  std::uint64_t scale = 1;
  for (const char digit : fraction_digits) {
    fraction = fraction * 10 + static_cast<unsigned>(digit - '0');
    scale *= 10;
  }
  bytes += Wide{fraction} * unit->bytes / scale;
  if (bytes > kMax) return bad(text, "it is more than 64 bits hold");
  return static_cast<std::uint64_t>(bytes);
}

namespace {

template <std::size_t count>
std::string with_unit(double value, double step, const std::array<const char*, count>& names) {
  std::size_t unit = 0;
  // What three decimals would round up to a whole step belongs to the next unit.
  while (unit + 1 < count && value >= step - 0.0005) {
    value /= step;
    ++unit;
  }
  std::string number = fmt::format("{:.3f}", value);
  while (number.back() == '0') number.pop_back();
  if (number.back() == '.') number.pop_back();
  return number + ' ' + names[unit];
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return with_unit(static_cast<double>(bytes), 1024.0, kNames);
}

std::string format_drive_bytes(std::uint64_t bytes) {
  static constexpr std::array kNames = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  return with_unit(static_cast<double>(bytes), 1000.0, kNames);
}

std::string format_rate(double bytes_per_second) {
  static constexpr std::array kNames = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  if (!std::isfinite(bytes_per_second) || bytes_per_second < 0) return "unknown rate";
  return with_unit(bytes_per_second, 1000.0, kNames);
}

}  // namespace penstock
