#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "measure/io_cases.hpp"
#include "measure/small_tensors.hpp"

namespace penstock {
namespace {

std::uint64_t bytes_of(const std::vector<Extent>& extents) {
  std::uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.bytes;
  return bytes;
}

/// The rate is that of the tensors' own bytes: padding is moved, but nobody has asked for it.
BenchCase small_case(IoContext& context, const std::shared_ptr<const SmallTensors>& tensors,
                     const char* name, LaneOps ops, bool packed) {
  const IoContextOptions& options = context.options();
  BenchCase made;
  BenchRow& row = made.row;
  row.name = name;
  row.kind = "io";
  row.block_bytes = packed ? kSmallSectionBytes : kLargestSmallTensorBytes;
  row.depth = packed ? kSmallPackedDepth : options.depth;
  row.read_share = ops == LaneOps::kRead ? 1.0 : 0.0;
  row.note = fmt::format("{} tensors of 4 to 256 KiB, {}", tensors->tensors,
                         packed ? "adjacent in sections" : "one request each");
  // The layout is shared with the other cases of small tensors.
  made.run = [&context, tensors, ops, packed,
              depth = row.depth](double seconds) -> Result<RoundFigures> {
    const std::vector<Extent>& extents = packed ? tensors->packed : tensors->each;
    Lane lane = context.lane(ops, LaneOrder::kExtents,
                             packed ? kSmallSectionBytes : kLargestSmallTensorBytes, depth);
    lane.extents = extents;
    const QueueKnobs knobs =
        packed ? QueueKnobs{context.options().backend}
               : knobs_for(context.options().backend, kLargestSmallTensorBytes, depth);
    PENSTOCK_TAKE(figures, context.run({&lane, 1}, knobs, seconds));
    const double own =
        static_cast<double>(tensors->tensor_bytes) / static_cast<double>(bytes_of(extents));
    figures.bytes_per_second *= own;
    for (double& rate : figures.drive_bytes_per_second) rate *= own;
    figures.cpu_seconds_per_gb /= own;
    return figures;
  };
  return made;
}

}  // namespace

std::uint64_t small_memory_bytes(const IoContextOptions& options) {
  const std::uint64_t packed = kSmallPackedDepth * kSmallSectionBytes;
  const std::uint64_t each = options.depth * kLargestSmallTensorBytes;
  return std::max(packed, each) * options.paths.size();
}

void add_small_cases(IoContext& context, std::vector<BenchCase>& cases) {
  const auto tensors = std::make_shared<const SmallTensors>(
      arrange_small_tensors(kSmallTensors, context.file_bytes(), context.options().seed));
  cases.push_back(small_case(context, tensors, kRowSmallWrite, LaneOps::kWrite, true));
  cases.push_back(small_case(context, tensors, kRowSmallRead, LaneOps::kRead, true));
  cases.push_back(small_case(context, tensors, kRowSmallEach, LaneOps::kRead, false));
}

}  // namespace penstock
