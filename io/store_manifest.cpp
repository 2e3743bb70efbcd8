// Manifests: bytes from and to commits.

#include <fmt/format.h>

#include <algorithm>

#include "io/store_bytes.hpp"
#include "io/store_format.hpp"
#include "io/store_layout.hpp"

namespace penstock {
namespace {

using format::corrupt;
using format::kHashBytes;
using format::Reader;
using format::Writer;

constexpr std::string_view kManifestMagic = "PNSTKMAN";
constexpr std::string_view kLifetimeMagic = "PNSTKLIF";
constexpr std::uint64_t kLifetimeFixedBytes = 32;
constexpr std::uint64_t kManifestFixedBytes = 192;
constexpr std::uint64_t kUsedFixedBytes = 156;  // the rest is zero
constexpr std::uint64_t kSectionFixedBytes = 12;
constexpr std::uint32_t kMaxRanks = 1U << 20;

struct Counts {
  std::uint32_t files = 0, sections = 0;
  std::uint64_t blocks = 0, spills = 0, description_bytes = 0, blob_bytes = 0;
};

std::uint64_t block_bytes(std::uint64_t sections) {
  return 16 + 8 * sections;
}
std::uint64_t entry_bytes(std::uint64_t sections) {
  return 24 + 8 * sections;
}

void write_fixed(Writer& writer, const Manifest& manifest, const StoreGeometry& geometry,
                 std::uint64_t bytes) {
  writer.text(kManifestMagic);
  writer.number(manifest.major);
  writer.number(manifest.minor);
  writer.number(manifest.compatible_bits);
  writer.number(manifest.incompatible_bits);
  writer.number(manifest.uuid.low);
  writer.number(manifest.uuid.high);
  writer.number(bytes);
  writer.number(manifest.sequence);
  writer.number(manifest.record.step);
  writer.number(manifest.record.updates);
  writer.number(geometry.layout_hash);
  writer.number(static_cast<std::uint32_t>(geometry.drives.size()));
  writer.number(static_cast<std::uint32_t>(geometry.sections.size()));
  writer.number(std::uint64_t{geometry.blocks.size()});
  writer.number(std::uint64_t{geometry.spill_bytes.size()});
  writer.number(std::uint64_t{geometry.description.size()});
  writer.number(std::uint64_t{manifest.record.blob.size()});
  writer.number(manifest.sums_uuid.low);
  writer.number(manifest.sums_uuid.high);
  writer.number(geometry.pins);
  writer.number(manifest.rank);
  writer.number(manifest.rank_count);
  constexpr std::byte kZeros[kManifestFixedBytes - kUsedFixedBytes] = {};
  writer.raw(kZeros, sizeof kZeros);
}

/// What is the same in all manifests of a store: behind the fixed part, up to the blob.
void write_geometry(Writer& writer, const StoreGeometry& geometry) {
  for (const std::uint32_t share : geometry.drives) writer.number(share);
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
}

void write_entry(Writer& writer, const SlotEntry& entry, std::uint32_t file_index,
                 std::uint32_t written, std::size_t sections) {
  writer.number(entry.slot);
  writer.number(file_index);
  writer.number(entry.version);
  writer.number(written);
  writer.number(std::uint32_t{0});
  writer.raw(entry.roots, 8 * sections);
}

Status check_lengths(const Manifest& manifest, const StoreGeometry& geometry, std::size_t entries,
                     std::uint64_t bytes) {
  if (manifest.record.blob.size() <= kMaxBlobBytes && bytes <= kMaxManifestBytes &&
      entries == geometry.blocks.size()) {
    return ok();
  }
  return make_error(Errc::kArgument,
                    fmt::format("a manifest of {} bytes with a blob of {} for {} of {} blocks is "
                                "beyond the limits ({} and {})",
                                bytes, manifest.record.blob.size(), entries, geometry.blocks.size(),
                                kMaxManifestBytes, kMaxBlobBytes));
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
    if (zero != 0 || line.file_index >= counts.files ||
        line.entry.written >> counts.sections != 0) {
      return corrupt(where, fmt::format("has a malformed table entry for block {}", i));
    }
  }
  return ok();
}

/// What follows the counts, up to the first section.
Status read_identity(Reader& reader, const Counts& counts, Manifest& manifest,
                     std::string_view where) {
  manifest.sums_uuid.low = reader.number<std::uint64_t>();
  manifest.sums_uuid.high = reader.number<std::uint64_t>();
  manifest.geometry.pins = reader.number<std::uint32_t>();
  manifest.rank = reader.number<std::uint32_t>();
  manifest.rank_count = reader.number<std::uint32_t>();
  const auto rest = reader.raw(kManifestFixedBytes - reader.used());
  const bool zero =
      std::all_of(rest.begin(), rest.end(), [](std::byte byte) { return byte == std::byte{0}; });
  if (!zero || manifest.rank_count == 0 || manifest.rank_count > kMaxRanks ||
      manifest.rank >= manifest.rank_count) {
    return corrupt(where, fmt::format("is of rank {} of {}, or has bytes of unknown meaning",
                                      manifest.rank, manifest.rank_count));
  }
  manifest.geometry.drives.clear();
  for (std::uint32_t i = 0; i < counts.files; ++i) {
    manifest.geometry.drives.push_back(reader.number<std::uint32_t>());
  }
  if (!reader.good()) return corrupt(where, "ends in the list of its data files");
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
      format::check_version(manifest.major, manifest.minor, manifest.incompatible_bits, where));
  manifest.uuid.low = reader.number<std::uint64_t>();
  manifest.uuid.high = reader.number<std::uint64_t>();
  const auto bytes = reader.number<std::uint64_t>();
  manifest.sequence = reader.number<std::uint64_t>();
  manifest.record.step = reader.number<std::uint64_t>();
  manifest.record.updates = reader.number<std::uint64_t>();
  manifest.geometry.layout_hash = reader.number<std::uint64_t>();
  Counts counts;
  counts.files = reader.number<std::uint32_t>();
  counts.sections = reader.number<std::uint32_t>();
  counts.blocks = reader.number<std::uint64_t>();
  counts.spills = reader.number<std::uint64_t>();
  counts.description_bytes = reader.number<std::uint64_t>();
  counts.blob_bytes = reader.number<std::uint64_t>();
  if (bytes != size) {
    return corrupt(where, fmt::format("says it has {} bytes, it has {}", bytes, size));
  }
  if (manifest.sequence > kLastSequence) {
    return corrupt(where, fmt::format("says it is commit {}, there are none beyond {}",
                                      manifest.sequence, kLastSequence));
  }
  if (counts.files == 0 || counts.files > kMaxDataFiles || counts.sections == 0 ||
      counts.sections > kMaxSections || counts.blocks > kMaxBlocks || counts.spills > kMaxSpills ||
      counts.description_bytes > kMaxDescriptionBytes || counts.blob_bytes > kMaxBlobBytes) {
    return corrupt(where, fmt::format("is beyond the limits: {} files, {} sections, {} blocks, {} "
                                      "spills, description {}, blob {}",
                                      counts.files, counts.sections, counts.blocks, counts.spills,
                                      counts.description_bytes, counts.blob_bytes));
  }
  PENSTOCK_CHECK_OK(read_identity(reader, counts, manifest, where));
  return counts;
}

}  // namespace

std::uint64_t manifest_block_bytes(std::uint64_t sections) {
  return block_bytes(sections) + entry_bytes(sections);
}

std::uint64_t manifest_bytes(const StoreGeometry& geometry, std::uint64_t blob_bytes) {
  const std::uint64_t sections = geometry.sections.size();
  std::uint64_t bytes = kManifestFixedBytes + kHashBytes + geometry.drives.size() * 4;
  for (const SectionSpec& section : geometry.sections) {
    bytes += kSectionFixedBytes + section.name.size() + section.codec.size();
  }
  bytes += geometry.blocks.size() * manifest_block_bytes(sections);
  return bytes + geometry.spill_bytes.size() * 8 + geometry.description.size() + blob_bytes;
}

Result<std::vector<std::byte>> encode_manifest(const Manifest& manifest) {
  const StoreGeometry& geometry = manifest.geometry;
  const std::uint64_t bytes = manifest_bytes(geometry, manifest.record.blob.size());
  PENSTOCK_CHECK_OK(check_lengths(manifest, geometry, manifest.table.size(), bytes));
  std::vector<std::byte> out(bytes);
  Writer writer(out);
  write_fixed(writer, manifest, geometry, bytes);
  write_geometry(writer, geometry);
  writer.raw(manifest.record.blob.data(), manifest.record.blob.size());
  for (const ManifestEntry& line : manifest.table) {
    write_entry(writer, line.entry, line.file_index, line.entry.written, geometry.sections.size());
  }
  writer.seal();
  return out;
}

Result<std::span<const std::byte>> ManifestEncoder::encode(
    const Manifest& head, std::span<const SlotEntry> entries,
    const std::optional<LifetimeBytes>& lifetime) {
  const std::uint64_t bytes = manifest_bytes(geometry_, head.record.blob.size());
  PENSTOCK_CHECK_OK(check_lengths(head, geometry_, entries.size(), bytes));
  bytes_.resize(bytes);
  Writer writer(bytes_);
  write_fixed(writer, head, geometry_, bytes);
  if (lasting_end_ == 0) {
    write_geometry(writer, geometry_);
    lasting_end_ = writer.used();
  }
  writer.seek(lasting_end_);
  writer.raw(head.record.blob.data(), head.record.blob.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    // Bits of empty sections carry nothing, so they are stored in one way only.
    write_entry(writer, entries[i], layout_.deal.place(entries[i].slot).file,
                entries[i].written & written_mask(geometry_.blocks[i]), geometry_.sections.size());
  }
  writer.seal();
  if (lifetime) append_lifetime(bytes_, *lifetime);
  return std::span<const std::byte>(bytes_);
}

std::span<const std::byte> manifest_in(std::span<const std::byte> file) {
  constexpr std::size_t kLengthOffset = 48;
  if (file.size() < kManifestFixedBytes) return file;
  Reader reader(file.subspan(kLengthOffset));
  const auto bytes = reader.number<std::uint64_t>();
  return bytes >= kManifestFixedBytes + kHashBytes && bytes <= file.size() ? file.first(bytes)
                                                                           : file;
}

Result<Manifest> decode_manifest(std::span<const std::byte> bytes, std::string_view where) {
  PENSTOCK_CHECK_OK(
      format::check_frame(bytes, kManifestFixedBytes + kHashBytes, kManifestMagic, where));
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

std::uint64_t lifetime_record_bytes(std::size_t data_files) {
  return kLifetimeFixedBytes + 8 * std::uint64_t{data_files} + kHashBytes;
}

void append_lifetime(std::vector<std::byte>& manifest, const LifetimeBytes& lifetime) {
  const std::size_t begin = manifest.size();
  manifest.resize(begin + lifetime_record_bytes(lifetime.written.size()));
  Writer writer{std::span(manifest).subspan(begin)};
  writer.text(kLifetimeMagic);
  writer.raw(manifest.data() + begin - kHashBytes, kHashBytes);
  writer.number(static_cast<std::uint32_t>(lifetime.written.size()));
  writer.number(static_cast<std::uint32_t>(lifetime.is_complete ? 1 : 0));
  for (const std::uint64_t bytes : lifetime.written) writer.number(bytes);
  writer.seal();
}

std::optional<LifetimeBytes> find_lifetime(std::span<const std::byte> file) {
  const auto manifest = manifest_in(file);
  const auto behind = file.subspan(manifest.size());
  if (manifest.size() < kHashBytes || behind.size() < kLifetimeFixedBytes) return std::nullopt;
  Reader head(behind);
  (void)head.raw(kLifetimeMagic.size());
  const auto owner = head.raw(kHashBytes), hash = manifest.last(kHashBytes);
  const auto files = head.number<std::uint32_t>(), flags = head.number<std::uint32_t>();
  // A spare may hold anything, the record of another manifest included.
  if (!std::equal(owner.begin(), owner.end(), hash.begin()) || files > kMaxDataFiles || flags > 1 ||
      behind.size() < lifetime_record_bytes(files) ||
      !format::check_frame(behind.first(lifetime_record_bytes(files)), kLifetimeFixedBytes,
                           kLifetimeMagic, "")) {
    return std::nullopt;
  }
  LifetimeBytes lifetime{{}, flags == 1};
  for (std::uint32_t i = 0; i < files; ++i) {
    lifetime.written.push_back(head.number<std::uint64_t>());
  }
  return lifetime;
}

}  // namespace penstock
