#include "cli/wear_view.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace penstock {
namespace {

using nlohmann::json;

double share(std::uint64_t part, std::uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

/// First versions are in it, and steps that were given up, so it may be more than a step can write.
std::optional<std::uint64_t> bytes_a_step(const LifetimeBytes& lifetime, std::uint64_t steps) {
  if (steps == 0 || !lifetime.is_complete) return std::nullopt;
  return lifetime.total() / steps;
}

std::string drive_line(const DriveWear& drive) {
  std::string text = drive.drive + ":";
  if (drive.ours) text += fmt::format(" {} written here,", format_drive_bytes(*drive.ours));
  if (drive.bytes) {
    text += fmt::format(" the system counted {}", format_drive_bytes(*drive.bytes));
    if (drive.ours && *drive.ours > 0) {
      text += fmt::format(" ({:.1f} %, with all other programs)",
                          100.0 * share(*drive.bytes, *drive.ours));
    }
    text += ",";
  }
  if (drive.health) {
    text +=
        fmt::format(" {} in its life, {} % of its rated life used,",
                    format_drive_bytes(drive.health->written_bytes), drive.health->percent_used);
  }
  text.pop_back();
  return text;
}

}  // namespace

void declare_endurance(Flags& flags, std::uint64_t& bytes) {
  flags.custom(
      "--endurance", "SIZE",
      [&bytes](const std::string& value) -> Status {
        auto parsed = parse_bytes(value);
        if (!parsed) return std::move(parsed).error().in("--endurance");
        if (parsed.value() == 0) {
          return make_error(Errc::kArgument,
                            "--endurance 0: no drive is rated for nothing; give what the data "
                            "sheet says, such as 600TB");
        }
        bytes = parsed.value();
        return ok();
      },
      "What the store's drives are rated to take in their life, together (600TB), to show the "
      "share "
      "used");
}

std::string endurance_text(std::uint64_t bytes, std::uint64_t endurance_bytes) {
  if (endurance_bytes == 0) return {};
  return fmt::format("; {:.3g} % of {}", 100.0 * share(bytes, endurance_bytes),
                     format_drive_bytes(endurance_bytes));
}

json endurance_json(std::uint64_t bytes, std::uint64_t endurance_bytes) {
  return endurance_bytes == 0 ? json() : json(share(bytes, endurance_bytes));
}

std::vector<std::string> lifetime_lines(const LifetimeBytes& lifetime,
                                        const std::vector<std::string>& directories,
                                        std::uint64_t endurance_bytes) {
  const std::uint64_t total = lifetime.total();
  std::vector<std::string> lines{
      fmt::format("{}{} written in the store's life, for steps that were given up, too{}",
                  lifetime.is_complete ? "" : "at least ", format_drive_bytes(total),
                  endurance_text(total, endurance_bytes))};
  for (std::size_t i = 0; i < lifetime.written.size() && directories.size() > 1; ++i) {
    lines.push_back(
        fmt::format("{}: {} of it", directories[i], format_drive_bytes(lifetime.written[i])));
  }
  if (!lifetime.is_complete) {
    lines.emplace_back("part of what was written was not counted, or the count was lost");
  }
  return lines;
}

json lifetime_json(const std::optional<LifetimeBytes>& lifetime,
                   const std::vector<std::string>& directories, std::uint64_t steps,
                   std::uint64_t endurance_bytes) {
  if (!lifetime) return nullptr;
  json each = json::array();
  for (std::size_t i = 0; i < lifetime->written.size(); ++i) {
    each.push_back({{"directory", directories[i]}, {"written_bytes", lifetime->written[i]}});
  }
  const auto a_step = bytes_a_step(*lifetime, steps);
  return {{"written_bytes", lifetime->total()},
          {"is_complete", lifetime->is_complete},
          {"bytes_per_step", a_step ? json(*a_step) : json()},
          {"endurance_used", endurance_json(lifetime->total(), endurance_bytes)},
          {"directories", each}};
}

std::vector<std::string> wear_lines(const WearReport& report) {
  std::vector<std::string> lines;
  for (const DriveWear& drive : report.drives) {
    if (drive.ours || drive.bytes || drive.health) lines.push_back(drive_line(drive));
    lines.insert(lines.end(), drive.notes.begin(), drive.notes.end());
  }
  lines.insert(lines.end(), report.notes.begin(), report.notes.end());
  return lines;
}

json drives_json(const WearReport& report) {
  json drives = json::array();
  for (const DriveWear& drive : report.drives) {
    const auto& health = drive.health;
    drives.push_back({{"drive", drive.drive},
                      {"written_bytes", drive.ours ? json(*drive.ours) : json()},
                      {"system_written_bytes", drive.bytes ? json(*drive.bytes) : json()},
                      {"life_written_bytes", health ? json(health->written_bytes) : json()},
                      {"life_percent_used", health ? json(health->percent_used) : json()},
                      {"notes", drive.notes}});
  }
  return drives;
}

}  // namespace penstock
