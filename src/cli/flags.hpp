#pragma once

/// The options of one command, declared once: name, limits, help text.
///
/// Values are converted after parsing, so that a wrong one gives a sentence with flag, value and
/// what would be right. CLI11 stays behind this header.
/// Ownership: targets are the caller's and outlive the object.
/// Threads:   one.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace penstock {

class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  /// A switch.
  void on(const std::string& name, bool& target, const std::string& help);
  /// `shape`, here and below, stands for the value in the help.
  void text(const std::string& name, std::string& target, const std::string& help,
            const std::string& shape = "TEXT");
  /// A text that may be given several times; all of them, in order.
  void texts(const std::string& name, std::vector<std::string>& target, const std::string& help,
             const std::string& shape = "TEXT");
  /// An argument without a flag, which must be there.
  void argument(const std::string& name, std::string& target, const std::string& help);
  /// One or more of them; none leaves `target` as it is where `required` is false.
  void arguments(const std::string& name, std::vector<std::string>& target, const std::string& help,
                 bool required = true);
  /// A whole number in [min, max].
  void count(const std::string& name, std::uint64_t& target, std::uint64_t min, std::uint64_t max,
             const std::string& help);
  void count(const std::string& name, std::uint32_t& target, std::uint32_t min, std::uint32_t max,
             const std::string& help);
  /// A number in [min, max].
  void real(const std::string& name, double& target, double min, double max,
            const std::string& help);
  /// One of a few words; calls `take` with its index.
  void choice(const std::string& name, std::initializer_list<std::string_view> words,
              std::function<void(std::size_t)> take, const std::string& help);
  /// Anything else: `take` converts and complains.
  void custom(const std::string& name, const std::string& shape,
              std::function<Status(const std::string&)> take, const std::string& help);

  /// Converts what was given; the first complaint, in order of declaration.
  Status convert() const;
  /// Whether the flag was given.
  [[nodiscard]] bool given(std::string_view name) const;
  /// All flags, for "did you mean".
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  struct Entry {
    std::string name;
    CLI::Option* option;
    std::function<Status(const std::string&)> take;
  };
  CLI::App& app_;
  std::vector<Entry> entries_;
};

}  // namespace penstock
