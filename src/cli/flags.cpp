#include "cli/flags.hpp"

#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "model/did_you_mean.hpp"

namespace penstock {
namespace {

Error bad_value(const std::string& name, const std::string& value, const std::string& wanted) {
  return make_error(Errc::kArgument, fmt::format("{} \"{}\" is not {}", name, value, wanted));
}

template <class T>
bool parse_all(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

template <class T>
std::function<Status(const std::string&)> count_taker(std::string name, T& target, T min, T max) {
  return [name = std::move(name), &target, min, max](const std::string& value) -> Status {
    T number = 0;
    if (!parse_all(value, number) || number < min || number > max) {
      return bad_value(name, value, fmt::format("a whole number from {} to {}", min, max));
    }
    target = number;
    return ok();
  };
}

}  // namespace

void Flags::on(const std::string& name, bool& target, const std::string& help) {
  CLI::Option* option = app_.add_flag(name, help);
  entries_.push_back({name, option, [name, &target](const std::string& value) -> Status {
                        if (value != "true" && value != "false") {
                          return bad_value(name, value, "true or false; a switch needs no value");
                        }
                        target = value == "true";
                        return ok();
                      }});
}

void Flags::custom(const std::string& name, const std::string& shape,
                   std::function<Status(const std::string&)> take, const std::string& help) {
  // A target of its own keeps CLI11 from converting; results() has the text.
  CLI::Option* option =
      app_.add_option(name, CLI::callback_t([](const CLI::results_t&) { return true; }), help);
  option->type_name(shape);
  option->expected(1);
  // As usual on a command line: the last one counts.
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  entries_.push_back({name, option, std::move(take)});
}

void Flags::text(const std::string& name, std::string& target, const std::string& help,
                 const std::string& shape) {
  custom(
      name, shape,
      [&target](const std::string& value) -> Status {
        target = value;
        return ok();
      },
      help);
}

void Flags::texts(const std::string& name, std::vector<std::string>& target,
                  const std::string& help, const std::string& shape) {
  custom(name, shape, nullptr, help);
  CLI::Option* option = entries_.back().option;
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  entries_.back().take = [option, &target](const std::string&) -> Status {
    target = option->results();
    return ok();
  };
}

void Flags::argument(const std::string& name, std::string& target, const std::string& help) {
  text(name, target, help, "");
  entries_.back().option->required();
}

void Flags::arguments(const std::string& name, std::vector<std::string>& target,
                      const std::string& help, bool required) {
  custom(name, "", nullptr, help);
  CLI::Option* option = entries_.back().option;
  option->expected(CLI::detail::expected_max_vector_size);  // from one on
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->required(required);
  entries_.back().take = [option, &target](const std::string&) -> Status {
    target = option->results();
    return ok();
  };
}

void Flags::count(const std::string& name, std::uint64_t& target, std::uint64_t min,
                  std::uint64_t max, const std::string& help) {
  custom(name, "N", count_taker<std::uint64_t>(name, target, min, max), help);
}

void Flags::count(const std::string& name, std::uint32_t& target, std::uint32_t min,
                  std::uint32_t max, const std::string& help) {
  custom(name, "N", count_taker<std::uint32_t>(name, target, min, max), help);
}

void Flags::real(const std::string& name, double& target, double min, double max,
                 const std::string& help) {
  custom(
      name, "X",
      [name, &target, min, max](const std::string& value) -> Status {
        double number = 0.0;
        if (!parse_all(value, number) || !(number >= min) || !(number <= max)) {
          return bad_value(name, value, fmt::format("a number from {} to {}", min, max));
        }
        target = number;
        return ok();
      },
      help);
}

void Flags::choice(const std::string& name, std::initializer_list<std::string_view> words,
                   std::function<void(std::size_t)> take, const std::string& help) {
  std::vector<std::string> known(words.begin(), words.end());
  std::string shape = fmt::format("{}", fmt::join(known, "|"));
  custom(
      name, shape,
      [name, known, shape, take = std::move(take)](const std::string& value) -> Status {
        for (std::size_t i = 0; i < known.size(); ++i) {
          if (known[i] != value) continue;
          take(i);
          return ok();
        }
        const std::vector<std::string_view> views(known.begin(), known.end());
        return bad_value(name, value,
                         fmt::format("one of {}{}", shape, did_you_mean(value, views)));
      },
      help);
}

Status Flags::convert() const {
  for (const Entry& entry : entries_) {
    if (entry.option->count() == 0) continue;
    PENSTOCK_CHECK_OK(entry.take(entry.option->results().back()));
  }
  return ok();
}

bool Flags::given(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.name == name) return entry.option->count() != 0;
  }
  return false;
}

std::vector<std::string> Flags::names() const {
  std::vector<std::string> names = {"--help"};
  for (const Entry& entry : entries_) {
    if (entry.name.starts_with("-")) names.push_back(entry.name);
  }
  return names;
}

}  // namespace penstock
