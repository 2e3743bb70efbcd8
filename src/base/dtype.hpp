#pragma once

/// Element types of tensors and token streams, with the names used in files and messages.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock {

/// The numbers are stored in files: never reused for another meaning.
enum class DType : std::uint8_t {
  kF32 = 0,
  kF16 = 1,
  kBf16 = 2,
  kU16 = 3,  ///< tokens of vocabularies up to 65,536
  kU32 = 4,  ///< tokens of larger vocabularies
};

inline constexpr std::array kAllDTypes = {DType::kF32, DType::kF16, DType::kBf16, DType::kU16,
                                          DType::kU32};

[[nodiscard]] constexpr std::size_t size_bytes(DType type) noexcept {
  switch (type) {
    case DType::kF32:
    case DType::kU32:
      return 4;
    case DType::kF16:
    case DType::kBf16:
    case DType::kU16:
      return 2;
  }
  return 0;
}

[[nodiscard]] constexpr std::string_view name_of(DType type) noexcept {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBf16:
      return "bf16";
    case DType::kU16:
      return "u16";
    case DType::kU32:
      return "u32";
  }
  return "unknown";
}

[[nodiscard]] constexpr bool is_float(DType type) noexcept {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBf16;
}

/// The type of that name, exactly as name_of() spells it.
[[nodiscard]] constexpr std::optional<DType> dtype_named(std::string_view name) noexcept {
  for (const DType type : kAllDTypes) {
    if (name_of(type) == name) return type;
  }
  return std::nullopt;
}

}  // namespace penstock
