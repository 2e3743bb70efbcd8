#pragma once

/// State streams from the drive through the optimizer and back, as in a training step.
///
/// A chunk holds hi, lo, m and v of kPipelineElements elements, adjacent as in a block, 12 bytes an
/// element. A frame reads a chunk, is updated by a task of the executor, writes the chunk back and
/// goes on with the next; so many frames are under way at once.
///
/// Ownership: files, memory and executor are the caller's and outlive the call.
/// Threads:   blocks its caller; updates run on the executor, completions on the queue's threads.
/// Errors:    as of run_load().

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/executor.hpp"
#include "base/result.hpp"
#include "io/storage.hpp"
#include "kernels/cpu/update.hpp"
#include "measure/io_load.hpp"

namespace penstock {

inline constexpr std::uint64_t kPipelineElements = std::uint64_t{1} << 18;
inline constexpr std::uint64_t kPipelineChunkBytes = 12 * kPipelineElements;  // hi, lo, m, v
/// A chunk and its bf16 gradient, in whole huge pages.
inline constexpr std::uint64_t kPipelineFrameBytes = std::uint64_t{4} << 20;

struct PipelineParts {
  Storage& storage;
  Executor& executor;
  Isa isa;
  std::vector<FileId> files;
  std::uint64_t file_bytes = 0, first_chunk = 0;
  std::span<std::byte> memory;  ///< a multiple of kPipelineFrameBytes: that many frames
};

struct PipelineResult {
  double seconds = 0.0;  ///< of the steady window
  double dropped_seconds = 0.0;
  std::uint64_t chunks = 0;  ///< written in the window
  std::uint64_t next_chunk = 0;
};

Result<PipelineResult> run_pipeline(const PipelineParts& parts, const QueueOptions& queue,
                                    const LoadOptions& options, const std::atomic<bool>& stop);

/// The updates alone, on the frames as they lie in memory, on all threads of the executor.
Result<PipelineResult> run_updates(const PipelineParts& parts, double seconds,
                                   const std::atomic<bool>& stop);

}  // namespace penstock
