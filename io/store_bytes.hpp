#pragma once

/// Numbers and texts to and from bytes, for the store's formats. Internal to io/.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/checksum.hpp"
#include "base/result.hpp"

namespace penstock::format {

static_assert(std::endian::native == std::endian::little, "the store format is little endian");

inline constexpr std::uint64_t kHashBytes = 16;

/// Appends to a buffer whose size is known in advance.
class Writer {
 public:
  explicit Writer(std::span<std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  void number(T value) {
    raw(&value, sizeof(T));
  }
  void text(std::string_view text) { raw(text.data(), text.size()); }
  void raw(const void* data, std::size_t bytes) {
    if (bytes != 0) std::memcpy(bytes_.data() + used_, data, bytes);
    used_ += bytes;
  }
  void seek(std::size_t offset) { used_ = offset; }
  [[nodiscard]] std::size_t used() const { return used_; }

  /// Ends the buffer with the hash of all before.
  void seal() {
    const Hash128 hash = hash128(bytes_.first(bytes_.size() - kHashBytes));
    seek(bytes_.size() - kHashBytes);
    number(hash.low);
    number(hash.high);
  }

 private:
  std::span<std::byte> bytes_;
  std::size_t used_ = 0;
};

/// Takes from a buffer. Reading past the end yields zeros and makes the reader bad for good.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    T value{};
    if (const auto from = raw(sizeof(T)); !from.empty())
      std::memcpy(&value, from.data(), sizeof(T));
    return value;
  }
  std::string text(std::size_t bytes) {
    const auto from = raw(bytes);
    return std::string(reinterpret_cast<const char*>(from.data()), from.size());
  }
  /// Empty when fewer bytes are left.
  std::span<const std::byte> raw(std::size_t bytes) {
    if (!good_ || bytes > left()) {
      good_ = false;
      return {};
    }
    const auto from = bytes_.subspan(used_, bytes);
    used_ += bytes;
    return from;
  }
  [[nodiscard]] std::size_t left() const { return bytes_.size() - used_; }
  [[nodiscard]] std::size_t used() const { return used_; }
  [[nodiscard]] bool good() const { return good_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t used_ = 0;
  bool good_ = true;
};

Error corrupt(std::string_view where, std::string_view what);
[[nodiscard]] bool starts_with(std::span<const std::byte> bytes, std::string_view magic);
/// Magic at the front and hash at the end.
Status check_frame(std::span<const std::byte> bytes, std::uint64_t minimum, std::string_view magic,
                   std::string_view where);
/// Whether this build reads a file of that version with those features.
Status check_version(std::uint32_t major, std::uint32_t minor, std::uint64_t incompatible_bits,
                     std::string_view where);

}  // namespace penstock::format
