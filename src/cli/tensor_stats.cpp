#include "cli/tensor_stats.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "cli/section_cache.hpp"
#include "kernels/math/convert_bits.hpp"

namespace penstock {
namespace {

template <class T>
T load(std::span<const std::byte> bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

/// Sums over the values of one section.
class Accumulator {
 public:
  void add(double value) {
    ++count_;
    if (!std::isfinite(value)) {
      ++non_finite_;
      return;
    }
    const bool first = count_ - non_finite_ == 1;
    min_ = first ? value : std::min(min_, value);
    max_ = first ? value : std::max(max_, value);
    sum_ += value;
    squares_ += value * value;
  }

  [[nodiscard]] SectionStats result(std::string section, std::string codec) const {
    SectionStats stats;
    stats.section = std::move(section);
    stats.codec = std::move(codec);
    stats.count = count_;
    stats.non_finite = non_finite_;
    const auto finite = static_cast<double>(count_ - non_finite_);
    if (finite == 0.0) return stats;
    stats.min = min_;
    stats.max = max_;
    stats.mean = sum_ / finite;
    stats.rms = std::sqrt(squares_ / finite);
    return stats;
  }

 private:
  std::uint64_t count_ = 0, non_finite_ = 0;
  double min_ = 0.0, max_ = 0.0, sum_ = 0.0, squares_ = 0.0;
};

using Decode = double (*)(std::span<const std::byte>, std::size_t);

/// How a codec's values are read, and their width; null: not a plain number.
std::pair<Decode, std::size_t> decoder_of(const std::string& codec) {
  if (codec == "f32") {
    return {[](std::span<const std::byte> bytes, std::size_t i) -> double {
              return from_bits(load<std::uint32_t>(bytes, i));
            },
            4};
  }
  if (codec == "bf16") {
    return {[](std::span<const std::byte> bytes, std::size_t i) -> double {
              return from_bits(std::uint32_t{load<std::uint16_t>(bytes, i)} << 16);
            },
            2};
  }
  if (codec == "f16") {
    return {[](std::span<const std::byte> bytes, std::size_t i) -> double {
              return from_bits(math::f16_bits_to_f32_bits(load<std::uint16_t>(bytes, i)));
            },
            2};
  }
  if (codec == "i16") {
    return {[](std::span<const std::byte> bytes, std::size_t i) -> double {
              return load<std::int16_t>(bytes, i);
            },
            2};
  }
  return {nullptr, 0};
}

class TensorReader {
 public:
  TensorReader(StoreReader& reader, const DescribedTensor& tensor, const std::atomic<bool>& stop,
               const StatsProgress& progress)
      : reader_(reader),
        parts_(parts_of(reader.description(), tensor)),
        stop_(stop),
        progress_(progress) {}

  Status section(std::size_t index, std::vector<SectionStats>& into) {
    SectionCache cache(reader_, index);
    const auto [decode, width] = decoder_of(cache.spec().codec);
    if (decode == nullptr) return ok();
    Accumulator sums;
    for (const BlockPart& part : parts_) {
      PENSTOCK_TAKE(bytes, read(cache, part));
      const std::size_t count = bytes.size() / width;
      for (std::size_t i = 0; i < count; ++i) sums.add(decode(bytes, i));
    }
    SectionStats stats = sums.result(cache.spec().name, cache.spec().codec);
    if (stats.count != 0) into.push_back(std::move(stats));
    return ok();
  }

  /// The exact weights, from hi and lo.
  Status weights(std::size_t hi_index, std::size_t lo_index, std::vector<SectionStats>& into) {
    SectionCache hi(reader_, hi_index), lo(reader_, lo_index);
    Accumulator sums;
    for (const BlockPart& part : parts_) {
      PENSTOCK_TAKE(high, read(hi, part));
      PENSTOCK_TAKE(low, read(lo, part));
      const std::size_t count = std::min(high.size(), low.size()) / 2;
      for (std::size_t i = 0; i < count; ++i) {
        sums.add(
            from_bits(math::master_bits(load<std::uint16_t>(high, i), load<std::int16_t>(low, i))));
      }
    }
    SectionStats stats = sums.result("weight", "f32");
    if (stats.count != 0) into.push_back(std::move(stats));
    return ok();
  }

 private:
  Result<std::span<const std::byte>> read(SectionCache& cache, const BlockPart& part) {
    if (stop_.load(std::memory_order_relaxed)) {
      return make_error(Errc::kCancelled, "stopped before the statistics were complete");
    }
    auto bytes = cache.read(part);
    if (!bytes) return bytes;
    done_bytes_ += bytes.value().size();
    if (progress_) progress_(done_bytes_);
    return bytes;
  }

  StoreReader& reader_;
  std::vector<BlockPart> parts_;
  const std::atomic<bool>& stop_;
  const StatsProgress& progress_;
  std::uint64_t done_bytes_ = 0;
};

}  // namespace

Result<std::vector<SectionStats>> tensor_stats(StoreReader& reader, const DescribedTensor& tensor,
                                               const std::atomic<bool>& stop,
                                               const StatsProgress& progress) {
  const std::size_t sections = reader.store().geometry().sections.size();
  TensorReader values(reader, tensor, stop, progress);
  std::vector<SectionStats> stats;
  const auto hi = find_section(reader.store(), "hi", "bf16");
  const auto lo = find_section(reader.store(), "lo", "i16");
  if (hi && lo) PENSTOCK_CHECK_OK(values.weights(*hi, *lo, stats));
  for (std::size_t i = 0; i < sections; ++i) PENSTOCK_CHECK_OK(values.section(i, stats));
  return stats;
}

}  // namespace penstock
