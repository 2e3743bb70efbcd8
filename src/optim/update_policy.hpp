#pragma once

/// What an update rule is to the engine: the sections it keeps, the grain it works in, one tile's
/// update. The engine moves bytes and knows no formula.
///
/// Threads: update() from several tasks at once, on different ranges; on_step() between updates.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/section.hpp"
#include "kernels/cpu/update.hpp"

namespace penstock {

/// What a rule needs at once: an element (any range), a row, or a whole matrix.
enum class Grain : std::uint8_t { kElement, kRow, kMatrix };

/// What a step fixed: everything an update depends on besides the state and the gradient.
struct Record {
  std::uint64_t step = 0;     ///< attempts
  std::uint64_t updates = 0;  ///< t
  AdamW hyper;
  double gradient_factor = 1.0;  ///< clip factor times gradient scale, fp64
};

/// A range of one tensor inside one tile, all sections at the same elements.
struct TileRange {
  std::uint16_t* hi = nullptr;
  std::uint16_t* lo = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  const std::uint16_t* gradient = nullptr;  ///< bf16
  std::size_t elements = 0;
  bool decay = true;
};

class UpdatePolicy {
 public:
  virtual ~UpdatePolicy() = default;
  [[nodiscard]] virtual std::vector<SectionSpec> sections() const = 0;
  [[nodiscard]] virtual Grain grain() const = 0;
  virtual void on_step(const Record& record) = 0;
  virtual void update(const TileRange& range) const = 0;
};

}  // namespace penstock
