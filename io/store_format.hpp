#pragma once

/// The bytes of a store on disk. All numbers are little endian; lengths are in bytes.
///
/// Data-file header: one page at 0 of data.<i>, a second copy at 4096.
///   offset size
///        0    8  magic "PNSTKDAT"
///        8    4  major version; a reader refuses a larger one
///       12    4  minor version; for information
///       16    8  compatible feature bits; unknown ones are ignored
///       24    8  incompatible feature bits; a reader refuses unknown ones
///       32   16  store uuid (low half, high half)
///       48    4  index i of this file        52  4  number n of data files
///       56    8  bytes of a slot             64  8  slots in this file
///       72    8  offset of the first slot
///       80    8  offset of the spill area    88  8  bytes of the spill area
///       96    8  length of this file
///      104    8  layout hash
///      112 3968  zero
///     4080   16  XXH3-128 of bytes 0..4079 (low half, high half)
///
/// Manifest: manifest.<sequence>.a and .b, equal bytes; a checkpoint's copies are pin.<name>.a, .b.
/// Their files may be longer: they are written over spare.<number>.a and .b, whose bytes mean
/// nothing.
///   offset size
///        0    8  magic "PNSTKMAN"
///        8    4  major     12  4  minor
///       16    8  compatible bits     24  8  incompatible bits
///       32   16  store uuid
///       48    8  length of the manifest, hash included
///       56    8  sequence: the number of this commit, the largest wins
///       64    8  step (attempts)     72  8  t (applied updates)
///       80    8  layout hash
///       88    4  number of data files (F)    92  4  number of sections (S)
///       96    8  number of blocks (B)       104  8  number of spill extents (P)
///      112    8  length of the description  120  8  length of the trainer's blob
///      128   16  uuid that seeds the sums: another one than the store's in a copy of a store
///      144    4  checkpoints there is room for
///      148    4  rank     152  4  number of ranks
///      156   36  zero
///      192       F data files: { u32 share }
///                S sections: { u16 name length, u16 codec length, u32 tile bytes,
///                              u32 flags (bit 0: mutable), name, codec }
///                B blocks:   { u64 key, u32 flags (bit 0: frozen), u32 zero, u64 length[S] }
///                P spills:   { u64 length }
///                description, blob
///                B entries:  { u32 slot, u32 file index, u64 version, u32 written mask, u32 zero,
///                              u64 root[S] }
///      end-16    16  XXH3-128 of all bytes before
///
/// Behind a manifest, in its file, may lie a record of what was written to the store's directories
/// in its life; builds that do not know it end at the manifest's hash. One that is damaged counts
/// as missing: the count is worth no store.
///   offset size
///        0    8  magic "PNSTKLIF"
///        8   16  the hash at the manifest's end: whose record this is
///       24    4  number of data files (F)
///       28    4  flags (bit 0: all that was written since the store was made was counted)
///       32       F: { u64 bytes written to the directory of data.<i> until this manifest }
///      end-16    16  XXH3-128 of all bytes before
///
/// Magic, versions, feature bits and the place of the hash are the same in every version, so damage
/// is told from novelty.
/// Decoders are safe on hostile bytes: bounds and limits are checked before anything is allocated,
/// and memory is proportional to the bytes given. They check form; plan_layout() checks meaning.
/// Errors: kCorrupt (what is wrong and where), kUnsupported (newer major or unknown incompatible
/// bit). `where` names the source in messages. Threads: pure functions.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "io/store.hpp"
#include "io/store_layout.hpp"

namespace penstock {

inline constexpr std::uint64_t kHeaderBytes = kPageBytes;
inline constexpr std::uint64_t kHeaderCopies = 2;
inline constexpr std::uint32_t kFormatMajor = 2;  // 1 was never released
inline constexpr std::uint32_t kFormatMinor = 0;
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{4} << 30;
/// No store gets so far, with a commit each millisecond not in 285,000 years; and whatever reads
/// JSON keeps such numbers exact. A file with a larger number in its name is not Penstock's.
inline constexpr std::uint64_t kLastSequence = std::uint64_t{1} << 53;

struct DataHeader {
  std::uint32_t major = kFormatMajor;
  std::uint32_t minor = kFormatMinor;
  std::uint64_t compatible_bits = 0;
  std::uint64_t incompatible_bits = 0;
  StoreUuid uuid;
  std::uint32_t file_index = 0;
  std::uint32_t file_count = 1;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slot_count = 0;
  std::uint64_t slots_offset_bytes = 0;
  std::uint64_t spill_offset_bytes = 0;
  std::uint64_t spill_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t layout_hash = 0;
  friend bool operator==(const DataHeader&, const DataHeader&) = default;
};

struct ManifestEntry {
  SlotEntry entry;
  std::uint32_t file_index = 0;  ///< of the data file that holds the slot
};

struct Manifest {
  std::uint32_t major = kFormatMajor;
  std::uint32_t minor = kFormatMinor;
  std::uint64_t compatible_bits = 0;
  std::uint64_t incompatible_bits = 0;
  StoreUuid uuid;
  StoreUuid sums_uuid;
  std::uint64_t sequence = 0;
  std::uint32_t rank = 0;
  std::uint32_t rank_count = 1;
  CommitRecord record;
  StoreGeometry geometry;
  std::vector<ManifestEntry> table;  ///< one per block, in the geometry's order
};

/// Fills one page.
void encode_header(const DataHeader& header, std::span<std::byte> page);
Result<DataHeader> decode_header(std::span<const std::byte> page, std::string_view where);
/// Whether these bytes begin with the magic of a data file, whatever follows.
[[nodiscard]] bool has_data_magic(std::span<const std::byte> bytes);

/// Same geometry in, so the caller has checked it with plan_layout() and `table` has one entry per
/// block; kArgument when the blob or the whole is too long.
Result<std::vector<std::byte>> encode_manifest(const Manifest& manifest);
/// Length of a manifest with a blob of `blob_bytes`.
[[nodiscard]] std::uint64_t manifest_bytes(const StoreGeometry& geometry, std::uint64_t blob_bytes);

/// How much of it each block takes.
[[nodiscard]] std::uint64_t manifest_block_bytes(std::uint64_t sections);

/// Encodes the manifests of one store, one after the other, in memory that it keeps, for it is much
/// (10 MB for 1e5 blocks): what is the same in all of them is written once. The engine's plan
/// counts it (engine/layout.cpp).
class ManifestEncoder {
 public:
  /// Both outlive it and stay as they are.
  ManifestEncoder(const StoreGeometry& geometry, const StoreLayout& layout)
      : geometry_(geometry), layout_(layout) {}

  /// A manifest and the record behind it. `head` without geometry and table; one entry per block.
  /// The bytes stay as they are until the next call. Errors as encode_manifest().
  Result<std::span<const std::byte>> encode(const Manifest& head,
                                            std::span<const SlotEntry> entries,
                                            const std::optional<LifetimeBytes>& lifetime);

 private:
  const StoreGeometry& geometry_;
  const StoreLayout& layout_;
  std::vector<std::byte> bytes_;
  std::uint64_t lasting_end_ = 0;  // of what is the same in all; 0: not yet written
};
/// The manifest at the beginning of a file; the file may be longer. All of it where that is
/// unclear.
std::span<const std::byte> manifest_in(std::span<const std::byte> file);
Result<Manifest> decode_manifest(std::span<const std::byte> bytes, std::string_view where);

/// Length of the record behind a manifest.
[[nodiscard]] std::uint64_t lifetime_record_bytes(std::size_t data_files);
/// Appends the record to a manifest.
void append_lifetime(std::vector<std::byte>& manifest, const LifetimeBytes& lifetime);
/// The record behind the manifest at the beginning of a file; nothing where there is none.
[[nodiscard]] std::optional<LifetimeBytes> find_lifetime(std::span<const std::byte> file);

/// The seed of one tile's sum; `tile` == kRootTile gives the seed of the section's root.
inline constexpr std::uint32_t kRootTile = ~std::uint32_t{0};
[[nodiscard]] std::uint64_t sum_seed(const StoreUuid& uuid, std::uint64_t block_key,
                                     std::uint64_t version, std::size_t section,
                                     std::uint32_t tile);

}  // namespace penstock
