#pragma once

/// The known word closest to one that is unknown, for messages.
/// Threads: pure functions.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
/// Bytes; at most the first 64 of each word are looked at.
[[nodiscard]] std::size_t edit_distance(std::string_view one, std::string_view other);

/// The closest of `known` within a third of the word's length (at least 1, at most 3 edits), the
/// first of equals; empty when none is close.
[[nodiscard]] std::string_view closest_word(std::string_view word,
                                            std::span<const std::string_view> known);

/// "; did you mean \"tiny\"?", or nothing.
[[nodiscard]] std::string did_you_mean(std::string_view word,
                                       std::span<const std::string_view> known);

}  // namespace penstock
