// lint: long because encoder and decoder of one format are read side by side

#include "io/store_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checksum.hpp"
#include "io/store_layout.hpp"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "the store format is little endian");

constexpr std::string_view kDataMagic = "PNSTKDAT";
constexpr std::string_view kManifestMagic = "PNSTKMAN";
constexpr std::uint64_t kHashBytes = 16;
constexpr std::uint64_t kManifestFixedBytes = 128;
constexpr std::uint64_t kSectionFixedBytes = 12;
constexpr std::uint64_t kKnownIncompatibleBits = 0;
constexpr std::uint32_t kMaxDataFiles = 4096;

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

Error corrupt(std::string_view where, std::string_view what) {
  return make_error(Errc::kCorrupt, fmt::format("{} {}", where, what));
}

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

/// Magic at the front and hash at the end.
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
  if (const std::uint64_t unknown = incompatible_bits & ~kKnownIncompatibleBits; unknown != 0) {
    return make_error(Errc::kUnsupported,
                      fmt::format("{} uses features {:#x} that this build does not know; use the "
                                  "Penstock version that wrote it, or a newer one",
                                  where, unknown));
  }
  return ok();
}

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
  return starts_with(bytes, kDataMagic);
}

Result<DataHeader> decode_header(std::span<const std::byte> page, std::string_view where) {
  page = page.first(std::min<std::size_t>(page.size(), kHeaderBytes));
  PENSTOCK_CHECK_OK(check_frame(page, kHeaderBytes, kDataMagic, where));
  Reader reader(page);
  (void)reader.raw(kDataMagic.size());
  DataHeader header;
  header.major = reader.number<std::uint32_t>();
  header.minor = reader.number<std::uint32_t>();
  header.compatible_bits = reader.number<std::uint64_t>();
  header.incompatible_bits = reader.number<std::uint64_t>();
  PENSTOCK_CHECK_OK(check_version(header.major, header.minor, header.incompatible_bits, where));
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

namespace {

struct Counts {
  std::uint32_t sections = 0;
  std::uint64_t blocks = 0, spills = 0, description_bytes = 0, blob_bytes = 0;
};

std::uint64_t block_bytes(std::uint64_t sections) {
  return 16 + 8 * sections;
}
std::uint64_t entry_bytes(std::uint64_t sections) {
  return 24 + 8 * sections;
}

std::uint64_t manifest_bytes(const Manifest& manifest) {
  const std::uint64_t sections = manifest.geometry.sections.size();
  std::uint64_t bytes = kManifestFixedBytes + kHashBytes;
  for (const SectionSpec& section : manifest.geometry.sections) {
    bytes += kSectionFixedBytes + section.name.size() + section.codec.size();
  }
  bytes += manifest.geometry.blocks.size() * block_bytes(sections);
  bytes += manifest.geometry.spill_bytes.size() * 8;
  bytes += manifest.geometry.description.size() + manifest.record.blob.size();
  return bytes + manifest.table.size() * entry_bytes(sections);
}

void write_fixed(Writer& writer, const Manifest& manifest, std::uint64_t bytes) {
  const StoreGeometry& geometry = manifest.geometry;
  writer.text(kManifestMagic);
  writer.number(manifest.major);
  writer.number(manifest.minor);
  writer.number(manifest.compatible_bits);
  writer.number(manifest.incompatible_bits);
  writer.number(manifest.uuid.low);
  writer.number(manifest.uuid.high);
  writer.number(bytes);
  writer.number(manifest.record.step);
  writer.number(manifest.record.updates);
  writer.number(geometry.layout_hash);
  writer.number(manifest.file_count);
  writer.number(static_cast<std::uint32_t>(geometry.sections.size()));
  writer.number(std::uint64_t{geometry.blocks.size()});
  writer.number(std::uint64_t{geometry.spill_bytes.size()});
  writer.number(std::uint64_t{geometry.description.size()});
  writer.number(std::uint64_t{manifest.record.blob.size()});
  writer.number(std::uint64_t{0});
}

Status read_sections(Reader& reader, const Counts& counts, Manifest& manifest,
                     std::string_view where) {
  for (std::uint32_t i = 0; i < counts.sections; ++i) {
    const auto name_bytes = reader.number<std::uint16_t>();
    const auto codec_bytes = reader.number<std::uint16_t>();
    SectionSpec section;
    section.tile_bytes = reader.number<std::uint32_t>();
    const auto flags = reader.number<std::uint32_t>();
    section.is_mutable = (flags & 1) != 0;
    if (!reader.good() || flags > 1 || name_bytes > kMaxSectionNameBytes ||
        codec_bytes > kMaxSectionNameBytes) {
      return corrupt(where, fmt::format("has a malformed section {}", i));
    }
    section.name = reader.text(name_bytes);
    section.codec = reader.text(codec_bytes);
    manifest.geometry.sections.push_back(std::move(section));
  }
  return ok();
}

/// Checks that what follows the sections has exactly the length its counts say.
Status check_rest(const Reader& reader, const Counts& counts, std::string_view where) {
  // Every factor is below a limit of store_layout.hpp, so nothing here can wrap.
  const std::uint64_t needed =
      counts.blocks * (block_bytes(counts.sections) + entry_bytes(counts.sections)) +
      counts.spills * 8 + counts.description_bytes + counts.blob_bytes;
  if (reader.good() && needed == reader.left()) return ok();
  return corrupt(where, fmt::format("has {} bytes after its sections at offset {}, its counts need "
                                    "{}",
                                    reader.left(), reader.used(), needed));
}

Status read_blocks(Reader& reader, const Counts& counts, Manifest& manifest,
                   std::string_view where) {
  manifest.geometry.blocks.resize(counts.blocks);
  for (std::size_t i = 0; i < counts.blocks; ++i) {
    BlockGeometry& block = manifest.geometry.blocks[i];
    block.key = reader.number<std::uint64_t>();
    const auto flags = reader.number<std::uint32_t>();
    const auto zero = reader.number<std::uint32_t>();
    if (flags > 1 || zero != 0) {
      return corrupt(where, fmt::format("has unknown flags {:#x} in block {}", flags, i));
    }
    block.frozen = (flags & 1) != 0;
    block.lengths.resize(counts.sections);
    for (std::uint64_t& length : block.lengths) length = reader.number<std::uint64_t>();
  }
  return ok();
}

Status read_table(Reader& reader, const Counts& counts, Manifest& manifest,
                  std::string_view where) {
  manifest.table.resize(counts.blocks);
  for (std::size_t i = 0; i < counts.blocks; ++i) {
    ManifestEntry& line = manifest.table[i];
    line.entry.slot = reader.number<std::uint32_t>();
    line.file_index = reader.number<std::uint32_t>();
    line.entry.version = reader.number<std::uint64_t>();
    line.entry.written = reader.number<std::uint32_t>();
    const auto zero = reader.number<std::uint32_t>();
    for (std::uint32_t s = 0; s < counts.sections; ++s) {
      line.entry.roots[s] = reader.number<std::uint64_t>();
    }
    if (zero != 0 || line.file_index >= manifest.file_count ||
        line.entry.written >> counts.sections != 0) {
      return corrupt(where, fmt::format("has a malformed table entry for block {}", i));
    }
  }
  return ok();
}

Result<Counts> read_fixed(Reader& reader, std::uint64_t size, Manifest& manifest,
                          std::string_view where) {
  (void)reader.raw(kManifestMagic.size());
  manifest.major = reader.number<std::uint32_t>();
  manifest.minor = reader.number<std::uint32_t>();
  manifest.compatible_bits = reader.number<std::uint64_t>();
  manifest.incompatible_bits = reader.number<std::uint64_t>();
  PENSTOCK_CHECK_OK(
      check_version(manifest.major, manifest.minor, manifest.incompatible_bits, where));
  manifest.uuid.low = reader.number<std::uint64_t>();
  manifest.uuid.high = reader.number<std::uint64_t>();
  const auto bytes = reader.number<std::uint64_t>();
  manifest.record.step = reader.number<std::uint64_t>();
  manifest.record.updates = reader.number<std::uint64_t>();
  manifest.geometry.layout_hash = reader.number<std::uint64_t>();
  manifest.file_count = reader.number<std::uint32_t>();
  Counts counts;
  counts.sections = reader.number<std::uint32_t>();
  counts.blocks = reader.number<std::uint64_t>();
  counts.spills = reader.number<std::uint64_t>();
  counts.description_bytes = reader.number<std::uint64_t>();
  counts.blob_bytes = reader.number<std::uint64_t>();
  const auto zero = reader.number<std::uint64_t>();
  if (bytes != size || zero != 0) {
    return corrupt(where, fmt::format("says it has {} bytes, it has {}", bytes, size));
  }
  if (manifest.file_count == 0 || manifest.file_count > kMaxDataFiles || counts.sections == 0 ||
      counts.sections > kMaxSections || counts.blocks > kMaxBlocks || counts.spills > kMaxSpills ||
      counts.description_bytes > kMaxDescriptionBytes || counts.blob_bytes > kMaxBlobBytes) {
    return corrupt(where, fmt::format("is beyond the limits: {} files, {} sections, {} blocks, {} "
                                      "spills, description {}, blob {}",
                                      manifest.file_count, counts.sections, counts.blocks,
                                      counts.spills, counts.description_bytes, counts.blob_bytes));
  }
  return counts;
}

}  // namespace

Result<std::vector<std::byte>> encode_manifest(const Manifest& manifest) {
  const StoreGeometry& geometry = manifest.geometry;
  const std::uint64_t bytes = manifest_bytes(manifest);
  if (manifest.record.blob.size() > kMaxBlobBytes || bytes > kMaxManifestBytes ||
      manifest.table.size() != geometry.blocks.size()) {
    return make_error(Errc::kArgument,
                      fmt::format("a manifest of {} bytes with a blob of {} for {} of {} blocks is "
                                  "beyond the limits ({} and {})",
                                  bytes, manifest.record.blob.size(), manifest.table.size(),
                                  geometry.blocks.size(), kMaxManifestBytes, kMaxBlobBytes));
  }
  std::vector<std::byte> out(bytes);
  Writer writer(out);
  write_fixed(writer, manifest, bytes);
  for (const SectionSpec& section : geometry.sections) {
    writer.number(static_cast<std::uint16_t>(section.name.size()));
    writer.number(static_cast<std::uint16_t>(section.codec.size()));
    writer.number(section.tile_bytes);
    writer.number(static_cast<std::uint32_t>(section.is_mutable ? 1 : 0));
    writer.text(section.name);
    writer.text(section.codec);
  }
  for (const BlockGeometry& block : geometry.blocks) {
    writer.number(block.key);
    writer.number(static_cast<std::uint32_t>(block.frozen ? 1 : 0));
    writer.number(std::uint32_t{0});
    for (const std::uint64_t length : block.lengths) writer.number(length);
  }
  for (const std::uint64_t length : geometry.spill_bytes) writer.number(length);
  writer.text(geometry.description);
  writer.raw(manifest.record.blob.data(), manifest.record.blob.size());
  for (const ManifestEntry& line : manifest.table) {
    writer.number(line.entry.slot);
    writer.number(line.file_index);
    writer.number(line.entry.version);
    writer.number(line.entry.written);
    writer.number(std::uint32_t{0});
    for (std::size_t s = 0; s < geometry.sections.size(); ++s) writer.number(line.entry.roots[s]);
  }
  writer.seal();
  return out;
}

Result<Manifest> decode_manifest(std::span<const std::byte> bytes, std::string_view where) {
  PENSTOCK_CHECK_OK(check_frame(bytes, kManifestFixedBytes + kHashBytes, kManifestMagic, where));
  Reader reader(bytes.first(bytes.size() - kHashBytes));
  Manifest manifest;
  auto fixed = read_fixed(reader, bytes.size(), manifest, where);
  if (!fixed) return std::move(fixed).error();
  const Counts& counts = fixed.value();
  PENSTOCK_CHECK_OK(read_sections(reader, counts, manifest, where));
  PENSTOCK_CHECK_OK(check_rest(reader, counts, where));
  PENSTOCK_CHECK_OK(read_blocks(reader, counts, manifest, where));
  manifest.geometry.spill_bytes.resize(counts.spills);
  for (std::uint64_t& length : manifest.geometry.spill_bytes) {
    length = reader.number<std::uint64_t>();
  }
  manifest.geometry.description = reader.text(counts.description_bytes);
  const auto blob = reader.raw(counts.blob_bytes);
  manifest.record.blob.assign(blob.begin(), blob.end());
  PENSTOCK_CHECK_OK(read_table(reader, counts, manifest, where));
  return manifest;
}

std::uint64_t sum_seed(const StoreUuid& uuid, std::uint64_t block_key, std::uint64_t version,
                       std::size_t section, std::uint32_t tile) {
  const std::uint64_t words[] = {uuid.low, uuid.high, block_key, version,
                                 (static_cast<std::uint64_t>(section) << 32) | tile};
  return hash64(0, std::as_bytes(std::span(words)));
}

}  // namespace penstock
