#include "train/text_stats.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "train/token_reader.hpp"

namespace penstock {
namespace {

// -sum(c log(c / total)): nats times total.
double weighted_entropy(const std::array<std::uint64_t, 256>& counts, std::uint64_t total) {
  double sum = 0.0;
  for (const std::uint64_t count : counts) {
    if (count == 0) continue;
    const auto share = static_cast<double>(count);
    sum -= share * std::log(share / static_cast<double>(total));
  }
  return sum;
}

}  // namespace

void ByteCounts::add(std::span<const std::byte> piece) {
  for (const std::byte byte : piece) {
    const auto value = std::to_integer<std::size_t>(byte);
    if (bytes_ != 0) ++(*pairs_)[last_][value];
    ++singles_[value];
    ++bytes_;
    last_ = value;
  }
}

double ByteCounts::unigram_nats() const {
  return bytes_ == 0 ? 0.0 : weighted_entropy(singles_, bytes_) / static_cast<double>(bytes_);
}

double ByteCounts::bigram_nats() const {
  if (bytes_ < 2) return 0.0;
  double sum = 0.0;
  for (const auto& row : *pairs_) {
    std::uint64_t total = 0;
    for (const std::uint64_t count : row) total += count;
    if (total != 0) sum += weighted_entropy(row, total);
  }
  return sum / static_cast<double>(bytes_ - 1);
}

Result<ByteCounts> count_bytes(const std::string& path) {
  auto reader = open_tokens({.path = path, .type = DataType::kBytes});
  if (!reader) return std::move(reader).error();
  ByteCounts counts;
  std::vector<std::uint32_t> tokens(64 * 1024);
  std::vector<std::byte> bytes(tokens.size());
  const std::uint64_t total = reader.value()->tokens();
  for (std::uint64_t first = 0; first < total; first += tokens.size()) {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(tokens.size(), total - first));
    PENSTOCK_CHECK_OK(reader.value()->read(first, std::span(tokens).first(count)));
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(tokens[i]);
    counts.add(std::span(bytes).first(count));
  }
  return counts;
}

}  // namespace penstock
