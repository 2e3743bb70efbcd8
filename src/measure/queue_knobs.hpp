#pragma once

/// How a storage queue is set up for a measurement: the one place where its options are made.
///
/// Threads: a pure function.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "io/storage.hpp"

namespace penstock {

/// What can be turned. 0: as the engine has it.
struct QueueKnobs {
  QueueBackend backend = QueueBackend::kAuto;
  std::uint64_t piece_bytes = 0;        ///< at most 2 MiB make sense: pieces end at page borders
  std::uint64_t read_credit_bytes = 0;  ///< in flight, for each drive
  std::uint64_t write_credit_bytes = 0;
  double read_share = 0.0;   ///< planned, of the bytes
  bool priorities = true;    ///< tell the kernel what is urgent
  bool lends_memory = true;  ///< the queue may register the memory that transfers use
};

inline constexpr std::uint64_t kMostPieceBytes = std::uint64_t{2} << 20;

/// `memory`: what the transfers use.
[[nodiscard]] inline QueueOptions queue_options(const QueueKnobs& knobs, std::uint32_t drives,
                                                std::span<std::byte> memory) {
  const auto set = [](std::uint32_t& target, std::uint64_t value) {
    if (value != 0) target = static_cast<std::uint32_t>(std::min<std::uint64_t>(value, UINT32_MAX));
  };
  QueueOptions options;
  options.backend = knobs.backend;
  options.drives = drives;
  options.read_share = knobs.read_share;
  options.priorities = knobs.priorities;
  if (knobs.lends_memory && !memory.empty()) options.memory = {memory};
  set(options.piece_bytes, knobs.piece_bytes);
  set(options.read_credit_bytes, knobs.read_credit_bytes);
  set(options.write_credit_bytes, knobs.write_credit_bytes);
  return options;
}

/// For requests of one size of which so many are kept in flight on each drive: whole pieces, and
/// credit for all of them.
[[nodiscard]] inline QueueKnobs knobs_for(QueueBackend backend, std::uint64_t block_bytes,
                                          std::uint32_t depth) {
  QueueKnobs knobs;
  knobs.backend = backend;
  knobs.piece_bytes = std::min(block_bytes, kMostPieceBytes);
  knobs.read_credit_bytes = knobs.write_credit_bytes = block_bytes * depth;
  return knobs;
}

}  // namespace penstock
