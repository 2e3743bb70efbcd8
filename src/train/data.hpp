#pragma once

/// The training data: which tokens a step sees, and those it never sees.
///
/// Held-out: the last 5 % of the tokens, at most 1 Mi; no training sequence touches them, its
///   targets included. Evaluation walks through them in order.
/// Order: a training sequence starts where a counter-based random number of (seed, step, index in
///   the batch) says. So the position in the data is one integer, the step; how a batch is cut into
///   micro-batches changes nothing; and any step can be repeated.
/// Units: tokens. Errors: those of TokenReader; kArgument where the data is too short, with the
///   length that would do.
/// Memory: the reader's one buffer. Threads: one at a time.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "train/token_reader.hpp"

namespace penstock {

class TrainingData {
 public:
  static constexpr std::uint64_t kMaxHeldOut = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kHeldOutShare = 20;  ///< one in twenty

  /// `seed` decides the order, not the content of random tokens.
  static Result<TrainingData> open(const DataOptions& options, std::uint64_t seed);

  TrainingData(std::unique_ptr<TokenReader> reader, std::uint64_t seed);

  [[nodiscard]] const TokenReader& reader() const { return *reader_; }
  /// TokenReader::content().
  Result<std::uint64_t> content() { return reader_->content(); }
  [[nodiscard]] std::uint32_t vocab() const { return reader_->vocab(); }
  [[nodiscard]] std::uint64_t train_tokens() const { return reader_->tokens() - held_out_; }
  [[nodiscard]] std::uint64_t held_out_tokens() const { return held_out_; }

  /// Whether sequences of `seq` tokens (and the target behind the last) fit in both parts.
  [[nodiscard]] Status check_sequence(std::uint64_t seq) const;

  /// Where sequence `index` of the whole batch of `step` starts.
  [[nodiscard]] std::uint64_t start_of(std::uint64_t step, std::uint64_t index,
                                       std::uint64_t seq) const;

  /// Micro-batch `micro` of `step`: sequences micro*sequences .. +sequences of the batch.
  /// tokens, targets: [sequences, seq]; targets[i] is the token behind tokens[i].
  Status fill_batch(std::uint64_t step, std::uint64_t micro, std::uint64_t sequences,
                    std::uint64_t seq, std::span<std::uint32_t> tokens,
                    std::span<std::uint32_t> targets);

  /// How many whole sequences, one behind the other, the held-out part has.
  [[nodiscard]] std::uint64_t eval_sequences(std::uint64_t seq) const;
  /// Held-out sequences first .. first+sequences, in the same layout.
  Status fill_eval(std::uint64_t first, std::uint64_t sequences, std::uint64_t seq,
                   std::span<std::uint32_t> tokens, std::span<std::uint32_t> targets);

 private:
  Status fill_sequence(std::uint64_t start, std::span<std::uint32_t> tokens,
                       std::span<std::uint32_t> targets);
  [[nodiscard]] Status check_spans(std::uint64_t sequences, std::uint64_t seq,
                                   std::span<const std::uint32_t> tokens,
                                   std::span<const std::uint32_t> targets) const;

  std::unique_ptr<TokenReader> reader_;
  std::uint64_t seed_;
  std::uint64_t held_out_;
};

}  // namespace penstock
