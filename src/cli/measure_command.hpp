#pragma once

/// What the commands that measure (bench, tune) share: flags for how long and with how much, and
/// what a console shows meanwhile.
///
/// Threads: one. Errors: kArgument, with the flag, the value and what would be right.

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/console.hpp"
#include "cli/flags.hpp"
#include "measure/bench.hpp"

namespace penstock {

/// "30s", "1.5", "2m", "500ms".
[[nodiscard]] Result<double> parse_seconds(const std::string& flag, const std::string& value);

/// A size that may not be 0, into `target`.
void size_flag(Flags& flags, const std::string& name, std::uint64_t& target,
               const std::string& help);

/// Notes at once, progress where somebody watches. The console must outlive it.
class ConsoleObserver final : public BenchObserver {
 public:
  explicit ConsoleObserver(Console& console) : console_(console) {}
  void on_note(std::string_view sentence) override { console_.note(sentence); }
  void on_progress(std::string_view text) override {
    if (console_.is_live()) console_.live(text);
  }

 private:
  Console& console_;
};

}  // namespace penstock
