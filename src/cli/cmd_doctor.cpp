#include <sys/utsname.h>

#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/clean.hpp"
#include "cli/command.hpp"
#include "cli/doctor_view.hpp"
#include "cli/json_line.hpp"
#include "cli/signals.hpp"
#include "measure/doctor.hpp"

namespace penstock {
namespace {

using nlohmann::json;

std::string kernel_name() {
  utsname name{};
  return ::uname(&name) == 0 ? fmt::format("{} {}", name.sysname, name.release) : "unknown";
}

/// What killed programs left in a directory; none where that is nothing, or cannot be looked at.
std::optional<Check> check_leftovers(const std::string& path) {
  const auto found = find_leftovers({path}, {});
  if (!found) return std::nullopt;
  std::uint64_t bytes = 0, count = 0;
  for (const Leftover& leftover : found.value()) {
    if (!leftover.removable) continue;
    ++count;
    bytes += leftover.bytes;
  }
  if (count == 0) return std::nullopt;
  Check check{.name = "leftovers", .path = path};
  check.data = {{"bytes", bytes}, {"count", count}};
  check.found(CheckStatus::kWarn,
              fmt::format("programs that were killed left {} of them, {} in all", count,
                          format_bytes(bytes)),
              "the space is not free", fmt::format("penstock clean {} --yes", path));
  return check;
}

/// Shows each check under a heading as soon as it is made.
class DoctorView {
 public:
  explicit DoctorView(Console& console) : console_(console) {}

  void show(const Check& check) {
    if (console_.json()) return;
    if (!heading_ || *heading_ != check.path) {
      heading_ = check.path;
      console_.data(check.path.empty() ? "this machine" : check.path);
    }
    // A line at a time: the console shows line ends inside of one as what they are.
    std::istringstream lines(check_lines(check));
    for (std::string line; std::getline(lines, line);) console_.data(line);
  }

 private:
  Console& console_;
  std::optional<std::string> heading_;
};

class DoctorCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "doctor"; }
  [[nodiscard]] std::string summary() const override {
    return "Try what a training needs here, and say what to mend";
  }
  [[nodiscard]] std::string example() const override {
    return "Examples: penstock doctor /mnt/nvme0\n"
           "          penstock doctor --no-probe --json\n"
           "Tries each thing: OK, WARN (works, but slower or less safely), FAIL, or SKIP (not "
           "there\n"
           "and not needed), with the cost and a command that mends it. Leaves nothing behind.";
  }

  void declare(Flags& flags) override {
    flags.arguments("PATH", paths_, "Directories for stores; default: this one", false);
    flags.on("--no-probe", no_probe_, "Do not measure the drives");
  }

  Result<ExitCode> run(Console& console) override {
    if (paths_.empty()) paths_.emplace_back(".");
    const std::string kernel = kernel_name();
    if (!console.json()) {
      console.data(fmt::format("penstock {}, {}", PENSTOCK_VERSION_TEXT, kernel));
    }
    DoctorView view(console);
    DoctorOptions options;
    options.paths = paths_;
    options.probe = !no_probe_;
    options.stop = &stop_requested();
    options.profile = profile_place();
    options.report = [&view](const Check& check) { view.show(check); };
    PENSTOCK_TAKE(checks, run_doctor(options));
    add_leftovers(view, checks);
    const CheckSummary summary = summarize_checks(checks);
    if (console.json()) {
      console.data(json_line(to_json(kernel, checks, summary)));
    } else {
      console.data(summary_line(summary));
    }
    return summary.failures > 0 ? ExitCode::kEnvironment : ExitCode::kOk;
  }

 private:
  /// Only where the directory was found to answer.
  static void add_leftovers(DoctorView& view, std::vector<Check>& checks) {
    std::vector<std::string> usable;
    for (const Check& check : checks) {
      if (check.name == "speed") usable.push_back(check.path);
    }
    for (const std::string& path : usable) {
      if (auto check = check_leftovers(path)) {
        view.show(*check);
        checks.push_back(std::move(*check));
      }
    }
  }

  [[nodiscard]] json to_json(const std::string& kernel, const std::vector<Check>& checks,
                             const CheckSummary& summary) const {
    json list = json::array();
    for (const Check& check : checks) list.push_back(check_json(check));
    return {{"schema", "penstock.doctor/1"},
            {"version", PENSTOCK_VERSION_TEXT},
            {"kernel", kernel},
            {"paths", paths_},
            {"checks", list},
            {"ok", summary.ok},
            {"warnings", summary.warnings},
            {"failures", summary.failures},
            {"skipped", summary.skipped},
            {"summary", summary.text}};
  }

  std::vector<std::string> paths_;
  bool no_probe_ = false;
};

}  // namespace

std::unique_ptr<Command> make_doctor_command() {
  return std::make_unique<DoctorCommand>();
}

}  // namespace penstock
