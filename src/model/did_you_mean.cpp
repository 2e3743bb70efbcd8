#include "model/did_you_mean.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace penstock {
namespace {

constexpr std::size_t kMaxWord = 64;

}  // namespace

std::size_t edit_distance(std::string_view one, std::string_view other) {
  one = one.substr(0, kMaxWord);
  other = other.substr(0, kMaxWord);
  // Rows of the optimal-string-alignment table; a swap looks two rows back.
  std::array<std::array<std::size_t, kMaxWord + 1>, 3> rows{};
  auto* before = &rows[0];
  auto* above = &rows[1];
  auto* row = &rows[2];
  for (std::size_t j = 0; j <= other.size(); ++j) (*above)[j] = j;
  for (std::size_t i = 1; i <= one.size(); ++i) {
    (*row)[0] = i;
    for (std::size_t j = 1; j <= other.size(); ++j) {
      const std::size_t replaced = (*above)[j - 1] + (one[i - 1] == other[j - 1] ? 0 : 1);
      std::size_t best = std::min({replaced, (*above)[j] + 1, (*row)[j - 1] + 1});
      if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1]) {
        best = std::min(best, (*before)[j - 2] + 1);
      }
      (*row)[j] = best;
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return (*above)[other.size()];
}

std::string_view closest_word(std::string_view word, std::span<const std::string_view> known) {
  std::size_t best_distance = std::clamp<std::size_t>(word.size() / 3, 1, 3) + 1;
  std::string_view best;
  for (const std::string_view candidate : known) {
    // Words of other lengths are at least the difference apart.
    const std::size_t one = std::min(word.size(), kMaxWord);
    const std::size_t other = std::min(candidate.size(), kMaxWord);
    if (std::max(one, other) - std::min(one, other) >= best_distance) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view best = closest_word(word, known);
  if (best.empty()) return {};
  return "; did you mean \"" + std::string(best) + "\"?";
}

}  // namespace penstock
