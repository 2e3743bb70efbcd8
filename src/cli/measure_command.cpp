#include "cli/measure_command.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace penstock {
namespace {

constexpr double kLeastSeconds = 0.5, kMostSeconds = 24 * 3600.0;

}  // namespace

Result<double> parse_seconds(const std::string& flag, const std::string& value) {
  double unit = 1.0;
  std::string number = value;
  if (number.ends_with("ms")) {
    unit = 1e-3;
    number.resize(number.size() - 2);
  } else if (number.ends_with("s") || number.ends_with("m")) {
    unit = number.back() == 'm' ? 60.0 : 1.0;
    number.pop_back();
  }
  const auto parsed = nlohmann::json::parse(number, nullptr, false);
  const double seconds = parsed.is_number() ? parsed.get<double>() * unit : 0.0;
  if (seconds >= kLeastSeconds && seconds <= kMostSeconds) return seconds;
  return make_error(
      Errc::kArgument,
      fmt::format("{} \"{}\" is not a time from 500ms to 1440m, such as 30s", flag, value));
}

void size_flag(Flags& flags, const std::string& name, std::uint64_t& target,
               const std::string& help) {
  flags.custom(
      name, "SIZE",
      [name, &target](const std::string& value) -> Status {
        PENSTOCK_TRY(bytes, parse_bytes(value), name);
        if (bytes == 0) {
          return make_error(Errc::kArgument,
                            fmt::format("{} 0 measures nothing; take 1MiB, for example", name));
        }
        target = bytes;
        return ok();
      },
      help);
}

}  // namespace penstock
