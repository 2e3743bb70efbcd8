#include <algorithm>

#include <fmt/format.h>

#include "measure/io_cases.hpp"
#include "measure/pipeline.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kLeastFrames = 8, kMostFrames = 64;

/// Each drive and each thread has two: one under way, one waiting.
std::uint32_t frames_for(const IoContextOptions& options) {
  const auto drives = static_cast<std::uint32_t>(options.paths.size());
  return std::clamp(2 * options.threads + 4 * drives, kLeastFrames,
                    std::max(kMostFrames, 4 * drives));
}

PipelineParts parts_of(IoContext& context) {
  const IoContextOptions& options = context.options();
  PipelineParts parts{context.storage(),
                      context.executor(),
                      options.isa,
                      {},
                      context.file_bytes(),
                      context.next_offset(kPipelineChunkBytes) / kPipelineChunkBytes,
                      context.memory().first(frames_for(options) * kPipelineFrameBytes)};
  for (const BenchFile& file : context.files()) parts.files.push_back(file.file);
  return parts;
}

RoundFigures figures_of(const PipelineResult& result) {
  RoundFigures figures;
  const auto bytes = static_cast<double>(2 * kPipelineChunkBytes * result.chunks);  // in and out
  figures.bytes_per_second = bytes / result.seconds;
  figures.read_share = 0.5;
  figures.window_seconds = result.seconds;
  figures.dropped_seconds = result.dropped_seconds;
  return figures;
}

}  // namespace

std::uint64_t pipeline_memory_bytes(const IoContextOptions& options) {
  return frames_for(options) * kPipelineFrameBytes;
}

void add_pipeline_cases(IoContext& context, std::vector<BenchCase>& cases) {
  const IoContextOptions& options = context.options();
  BenchCase pipeline;
  pipeline.row.name = kRowPipeline;
  pipeline.row.kind = "io";
  pipeline.row.block_bytes = kPipelineChunkBytes;
  pipeline.row.depth = frames_for(options) / context.drives();
  pipeline.row.threads = options.threads;
  pipeline.row.read_share = 0.5;
  pipeline.row.note =
      fmt::format("AdamW on {} between read and write; bytes in and out",
                  options.threads == 1 ? std::string("one thread")
                                       : fmt::format("{} threads", options.threads));
  pipeline.run = [&context](double seconds) -> Result<RoundFigures> {
    const PipelineParts parts = parts_of(context);
    QueueKnobs knobs;
    knobs.backend = context.options().backend;
    knobs.read_share = 0.5;  // as the engine plans it
    LoadOptions load;
    load.seconds = seconds;
    PENSTOCK_TAKE(result,
                  run_pipeline(parts, context.queue_options_of(knobs), load, context.stop()));
    context.advance_to(result.next_chunk * kPipelineChunkBytes);
    return figures_of(result);
  };
  cases.push_back(std::move(pipeline));

  BenchCase update;
  update.row.name = kRowUpdate;
  update.row.kind = "mem";
  update.row.block_bytes = kPipelineChunkBytes;
  update.row.threads = options.threads;
  update.row.note = "AdamW in memory; bytes of state in and out, to compare with the row above";
  update.run = [&context](double seconds) -> Result<RoundFigures> {
    PENSTOCK_TAKE(result, run_updates(parts_of(context), seconds, context.stop()));
    return figures_of(result);
  };
  cases.push_back(std::move(update));
}

}  // namespace penstock
