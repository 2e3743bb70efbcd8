#include "io/store_global.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <functional>
#include <map>
#include <random>

#include "base/random.hpp"
#include "io/store_bytes.hpp"
#include "io/store_impl.hpp"
#include "io/store_origin.hpp"

namespace penstock {
namespace {

using format::Reader;
using format::Writer;

constexpr std::string_view kGlobalMagic = "PNSTKGLB";
constexpr std::string_view kGlobalPrefix = "global.";
constexpr std::size_t kGlobalBytes = 88;
constexpr std::size_t kRecords = 3;  // the newest two, and one on its way
/// A whole page: filesystems that keep short files elsewhere would need space for another one.
using GlobalPage = std::array<std::byte, kPageBytes>;
using Sequences = std::map<std::uint64_t, std::string, std::greater<>>;

std::string global_name(std::uint64_t sequence, char copy) {
  return fmt::format("{}{}.{}", kGlobalPrefix, sequence, copy);
}

std::string global_path(const StoreDirectories& directories, std::uint64_t sequence, char copy) {
  return directory_of(directories, copy) + "/" + global_name(sequence, copy);
}

Status sync_directories(Storage& storage, const StoreDirectories& directories) {
  const std::string &first = directory_of(directories, 'a'),
                    &second = directory_of(directories, 'b');
  PENSTOCK_CHECK_OK(storage.sync_directory(first));
  return first == second ? ok() : storage.sync_directory(second);
}

/// The sequence in a name that global_name() makes.
std::optional<std::uint64_t> parse_global_name(const std::string& name) {
  std::uint64_t sequence = 0;
  if (!name.starts_with(kGlobalPrefix)) return std::nullopt;
  const char* digits = name.data() + kGlobalPrefix.size();
  const auto [end, error] = std::from_chars(digits, name.data() + name.size(), sequence);
  if (error != std::errc() || sequence > kLastSequence) return std::nullopt;
  const bool ours = name == global_name(sequence, 'a') || name == global_name(sequence, 'b');
  return ours ? std::optional(sequence) : std::nullopt;
}

GlobalPage encode_global(const GlobalRecord& record) {
  GlobalPage page{};
  Writer writer{std::span(page).first(kGlobalBytes)};
  writer.text(kGlobalMagic);
  writer.number(kFormatMajor);
  writer.number(kFormatMinor);
  writer.number(std::uint64_t{0});
  writer.number(std::uint64_t{0});
  writer.number(record.run.low);
  writer.number(record.run.high);
  writer.number(record.sequence);
  writer.number(record.step);
  writer.number(record.ranks);
  writer.seal();
  return page;
}

Result<GlobalRecord> decode_global(std::span<const std::byte> bytes, std::string_view where) {
  bytes = bytes.first(std::min(bytes.size(), kGlobalBytes));
  PENSTOCK_CHECK_OK(format::check_frame(bytes, kGlobalBytes, kGlobalMagic, where));
  Reader reader(bytes);
  (void)reader.raw(kGlobalMagic.size());
  const auto major = reader.number<std::uint32_t>();
  const auto minor = reader.number<std::uint32_t>();
  (void)reader.number<std::uint64_t>();
  const auto incompatible_bits = reader.number<std::uint64_t>();
  PENSTOCK_CHECK_OK(format::check_version(major, minor, incompatible_bits, where));
  GlobalRecord record;
  record.run.low = reader.number<std::uint64_t>();
  record.run.high = reader.number<std::uint64_t>();
  record.sequence = reader.number<std::uint64_t>();
  record.step = reader.number<std::uint64_t>();
  record.ranks = reader.number<std::uint32_t>();
  if (record.ranks == 0) return format::corrupt(where, "is not a global record");
  return record;
}

/// Sequences that have a copy, newest first, with the copies that are there.
Result<Sequences> list_globals(Storage& storage, const StoreDirectories& directories) {
  Sequences found;
  for (const char copy : {'a', 'b'}) {
    const std::string& directory = directory_of(directories, copy);
    auto there = storage.exists(directory);
    if (!there) return std::move(there).error();
    if (!there.value()) continue;
    auto names = storage.list(directory);
    if (!names) return std::move(names).error();
    for (const std::string& name : names.value()) {
      const auto sequence = parse_global_name(name);
      if (sequence && name.back() == copy) found[*sequence] += copy;
    }
  }
  return found;
}

/// Whether a record's file is ours. Where the drive does not give it back, its name says so.
Result<bool> may_take(Storage& storage, const std::string& path) {
  auto ours = is_ours(storage, path);
  return !ours && ours.error().sys_errno == EIO ? Result<bool>(true) : ours;
}

Result<GlobalRecord> load_global(Storage& storage, const StoreDirectories& directories,
                                 std::uint64_t sequence, const std::string& copies) {
  std::string reasons;
  Errc code = Errc::kCorrupt;
  for (const char copy : copies) {
    const std::string path = global_path(directories, sequence, copy);
    auto bytes = with_re_reads([&] { return storage.read_file(path, kMaxManifestBytes); });
    if (!bytes) {
      code = Errc::kIo;
      add_note(reasons, bytes.error().message);
      continue;
    }
    auto record = decode_global(bytes.value(), path);
    if (record && record.value().sequence == sequence) return record;
    if (!record && record.error().code == Errc::kUnsupported) return record;
    add_note(reasons, record ? path + " is of another commit" : record.error().message);
  }
  return make_error(code, reasons);
}

}  // namespace

StoreUuid rank_uuid(const StoreUuid& run, std::uint32_t rank) {
  return {mix64(run.low, run.high, rank * 2U), mix64(run.low, run.high, rank * 2U + 1U)};
}

StoreUuid make_uuid(std::uint64_t seed) {
  if (seed != 0) return {mix64(seed, 0, 0), mix64(seed, 0, 1)};
  std::random_device device;
  const auto word = [&] { return (std::uint64_t{device()} << 32) | device(); };
  const std::uint64_t low = word();
  return {low, word()};
}

Status GlobalRecords::reserve() {
  PENSTOCK_CHECK_OK(spares_.find(kRecords));
  PENSTOCK_TAKE(records, list_globals(storage_, directories_));
  std::size_t number = 0;
  for (const auto& [sequence, copies] : records) {
    // Whoever wrote the newest one may have been killed before this became a spare.
    if (++number >= kRecords) PENSTOCK_CHECK_OK(give(sequence, copies));
  }
  for (const char copy : {'a', 'b'}) {
    PENSTOCK_CHECK_OK(spares_.fill(copy, number >= kRecords ? 1 : kRecords - number, kPageBytes));
  }
  return sync_directories(storage_, directories_);
}

Status GlobalRecords::write(const GlobalRecord& record) {
  const auto path = [&](char copy) { return global_path(directories_, record.sequence, copy); };
  for (const char copy : {'a', 'b'}) PENSTOCK_CHECK_OK(require_ours(storage_, path(copy)));
  PENSTOCK_TAKE(older, list_globals(storage_, directories_));
  // What has a higher number is not of this run, or it would have been found and gone on from.
  std::erase_if(older, [&](const auto& other) { return other.first >= record.sequence; });
  if (faults_.overwrite_record && !older.empty()) {
    PENSTOCK_CHECK_OK(give(older.begin()->first, older.begin()->second));
  }
  const GlobalPage page = encode_global(record);
  std::vector<std::string> written;
  for (const char copy : {'a', 'b'}) {
    PENSTOCK_TAKE(file, spares_.write(copy, page));
    written.push_back(std::move(file));
  }
  for (const std::string& file : written) PENSTOCK_CHECK_OK(storage_.sync_file(file));
  PENSTOCK_CHECK_OK(storage_.rename(written[0], path('a')));
  PENSTOCK_CHECK_OK(storage_.rename(written[1], path('b')));
  PENSTOCK_CHECK_OK(sync_directories(storage_, directories_));
  // The record stands whatever happens here; a name that stays is tried again next time.
  if (!older.empty()) older.erase(older.begin());
  for (const auto& [sequence, copies] : older) (void)give(sequence, copies);
  return ok();
}

/// The files of a record that no longer counts become spares, if they are ours.
Status GlobalRecords::give(std::uint64_t sequence, const std::string& copies) {
  for (const char copy : copies) {
    const std::string path = global_path(directories_, sequence, copy);
    PENSTOCK_TAKE(ours, may_take(storage_, path));
    if (ours) PENSTOCK_CHECK_OK(spares_.give(copy, path));
  }
  return ok();
}

Result<std::optional<FoundGlobal>> read_global(Storage& storage,
                                               const StoreDirectories& directories) {
  auto found = list_globals(storage, directories);
  if (!found) return std::move(found).error();
  if (found.value().empty()) return std::optional<FoundGlobal>();
  std::string reasons;
  for (const auto& [sequence, copies] : found.value()) {
    auto record = load_global(storage, directories, sequence, copies);
    if (record) {
      return std::optional(FoundGlobal{record.value(), sequence == found.value().begin()->first});
    }
    if (record.error().code != Errc::kCorrupt) return std::move(record).error();
    add_note(reasons, record.error().message);
  }
  return make_error(Errc::kCorrupt, reasons + "; use a copy of the stores of all ranks");
}

}  // namespace penstock
