#pragma once

/// The plain C path of the xxHash header, compiled into the tests: the reference for the vector
/// paths that the library picks at run time.

#include <cstddef>
#include <cstdint>
#include <utility>

namespace penstock::testing {

[[nodiscard]] std::uint64_t scalar_xxh3_64(const void* data, std::size_t bytes, std::uint64_t seed);

/// {low, high}
[[nodiscard]] std::pair<std::uint64_t, std::uint64_t> scalar_xxh3_128(const void* data,
                                                                      std::size_t bytes);

}  // namespace penstock::testing
