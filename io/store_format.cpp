// Headers of data files, and what all formats share. Manifests are in store_manifest.cpp.

#include "io/store_format.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/store_bytes.hpp"
#include "io/store_layout.hpp"

namespace penstock {
namespace format {
namespace {

constexpr std::uint64_t kKnownIncompatibleBits = 0;

}  // namespace

Error corrupt(std::string_view where, std::string_view what) {
  return make_error(Errc::kCorrupt, fmt::format("{} {}", where, what));
}

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

Status check_frame(std::span<const std::byte> bytes, std::uint64_t minimum, std::string_view magic,
                   std::string_view where) {
  if (bytes.size() < minimum) {
    return corrupt(where, fmt::format("is cut short: {} bytes, at least {} are needed",
                                      bytes.size(), minimum));
  }
  if (!starts_with(bytes, magic)) {
    return corrupt(where, fmt::format("does not begin with \"{}\"", magic));
  }
  const auto body = bytes.first(bytes.size() - kHashBytes);
  Reader tail(bytes.last(kHashBytes));
  Hash128 stored;
  stored.low = tail.number<std::uint64_t>();
  stored.high = tail.number<std::uint64_t>();
  if (hash128(body) != stored) {
    return corrupt(where, fmt::format("fails its checksum over {} bytes", body.size()));
  }
  return ok();
}

Status check_version(std::uint32_t major, std::uint32_t minor, std::uint64_t incompatible_bits,
                     std::string_view where) {
  if (major > kFormatMajor) {
    return make_error(Errc::kUnsupported,
                      fmt::format("{} has format {}.{}, this build reads up to {}.x; use a newer "
                                  "Penstock",
                                  where, major, minor, kFormatMajor));
  }
  if (major == 0) return corrupt(where, "has format 0, which never existed");
  if (major < kFormatMajor) {
    return make_error(Errc::kUnsupported,
                      fmt::format("{} has format {}.{} of a development version, this build reads "
                                  "{}.x; create the store again",
                                  where, major, minor, kFormatMajor));
  }
  if (const std::uint64_t unknown = incompatible_bits & ~kKnownIncompatibleBits; unknown != 0) {
    return make_error(Errc::kUnsupported,
                      fmt::format("{} uses features {:#x} that this build does not know; use the "
                                  "Penstock version that wrote it, or a newer one",
                                  where, unknown));
  }
  return ok();
}

}  // namespace format

namespace {

using format::corrupt;
using format::Reader;
using format::Writer;

constexpr std::string_view kDataMagic = "PNSTKDAT";

}  // namespace

void encode_header(const DataHeader& header, std::span<std::byte> page) {
  std::fill(page.begin(), page.end(), std::byte{0});
  Writer writer(page.first(kHeaderBytes));
  writer.text(kDataMagic);
  writer.number(header.major);
  writer.number(header.minor);
  writer.number(header.compatible_bits);
  writer.number(header.incompatible_bits);
  writer.number(header.uuid.low);
  writer.number(header.uuid.high);
  writer.number(header.file_index);
  writer.number(header.file_count);
  writer.number(header.slot_bytes);
  writer.number(header.slot_count);
  writer.number(header.slots_offset_bytes);
  writer.number(header.spill_offset_bytes);
  writer.number(header.spill_bytes);
  writer.number(header.file_bytes);
  writer.number(header.layout_hash);
  writer.seal();
}

bool has_data_magic(std::span<const std::byte> bytes) {
  return format::starts_with(bytes, kDataMagic);
}

Result<DataHeader> decode_header(std::span<const std::byte> page, std::string_view where) {
  page = page.first(std::min<std::size_t>(page.size(), kHeaderBytes));
  PENSTOCK_CHECK_OK(format::check_frame(page, kHeaderBytes, kDataMagic, where));
  Reader reader(page);
  (void)reader.raw(kDataMagic.size());
  DataHeader header;
  header.major = reader.number<std::uint32_t>();
  header.minor = reader.number<std::uint32_t>();
  header.compatible_bits = reader.number<std::uint64_t>();
  header.incompatible_bits = reader.number<std::uint64_t>();
  PENSTOCK_CHECK_OK(
      format::check_version(header.major, header.minor, header.incompatible_bits, where));
  header.uuid.low = reader.number<std::uint64_t>();
  header.uuid.high = reader.number<std::uint64_t>();
  header.file_index = reader.number<std::uint32_t>();
  header.file_count = reader.number<std::uint32_t>();
  header.slot_bytes = reader.number<std::uint64_t>();
  header.slot_count = reader.number<std::uint64_t>();
  header.slots_offset_bytes = reader.number<std::uint64_t>();
  header.spill_offset_bytes = reader.number<std::uint64_t>();
  header.spill_bytes = reader.number<std::uint64_t>();
  header.file_bytes = reader.number<std::uint64_t>();
  header.layout_hash = reader.number<std::uint64_t>();
  if (header.file_count == 0 || header.file_count > kMaxDataFiles ||
      header.file_index >= header.file_count) {
    return corrupt(where,
                   fmt::format("calls itself file {} of {}", header.file_index, header.file_count));
  }
  return header;
}

std::uint64_t sum_seed(const StoreUuid& uuid, std::uint64_t block_key, std::uint64_t version,
                       std::size_t section, std::uint32_t tile) {
  const std::uint64_t words[] = {uuid.low, uuid.high, block_key, version,
                                 (static_cast<std::uint64_t>(section) << 32) | tile};
  return hash64(0, std::as_bytes(std::span(words)));
}

}  // namespace penstock
