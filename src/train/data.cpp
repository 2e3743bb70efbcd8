#include "train/data.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/checksum.hpp"
#include "base/random.hpp"

namespace penstock {
namespace {

__extension__ using Wide = unsigned __int128;

}  // namespace

Result<TrainingData> TrainingData::open(const DataOptions& options, std::uint64_t seed) {
  auto reader = open_tokens(options);
  if (!reader) return std::move(reader).error();
  return TrainingData(std::move(reader).value(), seed);
}

TrainingData::TrainingData(std::unique_ptr<TokenReader> reader, std::uint64_t seed)
    : reader_(std::move(reader)),
      seed_(seed),
      held_out_(std::min(reader_->tokens() / kHeldOutShare, kMaxHeldOut)) {}

Status TrainingData::check_sequence(std::uint64_t seq) const {
  if (seq >= 1 && seq < kMaxHeldOut && held_out_ >= seq + 1) return ok();
  if (seq < 1 || seq >= kMaxHeldOut) {
    return make_error(Errc::kArgument,
                      fmt::format("--seq {} is not from 1 to {}", seq, kMaxHeldOut - 1));
  }
  const std::string other =
      held_out_ >= 2 ? fmt::format(", or --seq {} or less", held_out_ - 1) : std::string();
  return make_error(
      Errc::kArgument,
      fmt::format("the data {} has {} tokens, but --seq {} needs at least {}, so that the held-out "
                  "last 5 % holds one sequence; use longer data{}",
                  reader_->path(), reader_->tokens(), seq, kHeldOutShare * (seq + 1), other));
}

std::uint64_t TrainingData::start_of(std::uint64_t step, std::uint64_t index,
                                     std::uint64_t seq) const {
  static const std::uint64_t stream = hash_name("penstock training order");
  // The last target is token start + seq, which must still be a training token.
  const std::uint64_t places = train_tokens() - seq;
  return static_cast<std::uint64_t>((Wide{mix64(seed_, stream + step, index)} * places) >> 64);
}

Status TrainingData::check_spans(std::uint64_t sequences, std::uint64_t seq,
                                 std::span<const std::uint32_t> tokens,
                                 std::span<const std::uint32_t> targets) const {
  PENSTOCK_CHECK_OK(check_sequence(seq));
  std::uint64_t count = 0;
  if (__builtin_mul_overflow(sequences, seq, &count) || tokens.size() != count ||
      targets.size() != count) {
    return make_error(Errc::kArgument,
                      fmt::format("a batch of {} x {} tokens does not fit arrays of {} and {}",
                                  sequences, seq, tokens.size(), targets.size()));
  }
  return ok();
}

Status TrainingData::fill_sequence(std::uint64_t start, std::span<std::uint32_t> tokens,
                                   std::span<std::uint32_t> targets) {
  PENSTOCK_CHECK_OK(reader_->read(start, tokens));
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  return reader_->read(start + tokens.size(), targets.last(1));
}

Status TrainingData::fill_batch(std::uint64_t step, std::uint64_t micro, std::uint64_t sequences,
                                std::uint64_t seq, std::span<std::uint32_t> tokens,
                                std::span<std::uint32_t> targets) {
  PENSTOCK_CHECK_OK(check_spans(sequences, seq, tokens, targets));
  for (std::uint64_t i = 0; i < sequences; ++i) {
    PENSTOCK_CHECK_OK(fill_sequence(start_of(step, micro * sequences + i, seq),
                                    tokens.subspan(i * seq, seq), targets.subspan(i * seq, seq)));
  }
  return ok();
}

std::uint64_t TrainingData::eval_sequences(std::uint64_t seq) const {
  return seq == 0 || held_out_ == 0 ? 0 : (held_out_ - 1) / seq;
}

Status TrainingData::fill_eval(std::uint64_t first, std::uint64_t sequences, std::uint64_t seq,
                               std::span<std::uint32_t> tokens, std::span<std::uint32_t> targets) {
  PENSTOCK_CHECK_OK(check_spans(sequences, seq, tokens, targets));
  const std::uint64_t count = eval_sequences(seq);
  if (first > count || sequences > count - first) {
    return make_error(Errc::kArgument,
                      fmt::format("held-out sequences {} to {} were asked for, but there are {}",
                                  first, first + sequences, count));
  }
  for (std::uint64_t i = 0; i < sequences; ++i) {
    PENSTOCK_CHECK_OK(fill_sequence(train_tokens() + (first + i) * seq,
                                    tokens.subspan(i * seq, seq), targets.subspan(i * seq, seq)));
  }
  return ok();
}

}  // namespace penstock
