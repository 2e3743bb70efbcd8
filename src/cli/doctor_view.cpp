#include "cli/doctor_view.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::size_t kIndent = 24;  // "  " name in 14, "  " status in 4, "  "

/// `text` in lines of at most kDoctorColumns, all but the first of them indented.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (column > indent && column + 1 + word.size() > kDoctorColumns) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

json value_json(const CheckValue& value) {
  return std::visit(
      [](const auto& held) -> json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>) {
          return {};
        } else {
          return held;
        }
      },
      value);
}

}  // namespace

std::string check_lines(const Check& check) {
  std::string text = fmt::format("  {:<14}  {:<4}  {}", check.name, check_status_name(check.status),
                                 wrapped(check.why, kIndent));
  const auto add = [&text](const char* label, const std::string& line) {
    if (!line.empty()) text += fmt::format("\n{:>{}}  {}", label, kIndent - 2, line);
  };
  add("cost", wrapped(check.cost, kIndent));
  add("fix", check.fix);
  return text;
}

json check_json(const Check& check) {
  json data = json::object();
  for (const auto& [name, value] : check.data) data[name] = value_json(value);
  return {{"name", check.name},
          {"path", check.path.empty() ? json() : json(check.path)},
          {"status", check_status_name(check.status)},
          {"why", check.why},
          {"cost", check.cost},
          {"fix", check.fix},
          {"data", data}};
}

std::string summary_line(const CheckSummary& summary) {
  const auto count = [](std::size_t number, const char* noun) {
    return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
  };
  return fmt::format("{}, {}: {}", count(summary.warnings, "warning"),
                     count(summary.failures, "failure"), summary.text);
}

}  // namespace penstock
