#include "io/store_global.hpp"

#include <fmt/format.h>

#include <array>
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
using GlobalBytes = std::array<std::byte, kGlobalBytes>;

std::string global_name(std::uint64_t sequence, char copy) {
  return fmt::format("{}{}.{}", kGlobalPrefix, sequence, copy);
}

/// The sequence in a name that global_name() makes.
std::optional<std::uint64_t> parse_global_name(const std::string& name) {
  std::uint64_t sequence = 0;
  if (!name.starts_with(kGlobalPrefix)) return std::nullopt;
  const char* digits = name.data() + kGlobalPrefix.size();
  const auto [end, error] = std::from_chars(digits, name.data() + name.size(), sequence);
  if (error != std::errc()) return std::nullopt;
  const bool ours = name == global_name(sequence, 'a') || name == global_name(sequence, 'b');
  return ours ? std::optional(sequence) : std::nullopt;
}

GlobalBytes encode_global(const GlobalRecord& record) {
  GlobalBytes bytes{};
  Writer writer(bytes);
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
  return bytes;
}

Result<GlobalRecord> decode_global(std::span<const std::byte> bytes, std::string_view where) {
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
  if (record.ranks == 0 || bytes.size() != kGlobalBytes) {
    return format::corrupt(where, "is not a global record");
  }
  return record;
}

/// Sequences that have a copy, newest first, with the copies that are there.
Result<std::map<std::uint64_t, std::string, std::greater<>>> list_globals(
    Storage& storage, const StoreDirectories& directories) {
  std::map<std::uint64_t, std::string, std::greater<>> found;
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

Result<GlobalRecord> load_global(Storage& storage, const StoreDirectories& directories,
                                 std::uint64_t sequence, const std::string& copies) {
  std::string reasons;
  Errc code = Errc::kCorrupt;
  for (const char copy : copies) {
    const std::string path = directory_of(directories, copy) + "/" + global_name(sequence, copy);
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

Status write_global(Storage& storage, const StoreDirectories& directories,
                    const GlobalRecord& record) {
  const GlobalBytes bytes = encode_global(record);
  const auto path = [&](char copy) {
    return directory_of(directories, copy) + "/" + global_name(record.sequence, copy);
  };
  auto older = list_globals(storage, directories);
  if (!older) return std::move(older).error();
  for (const char copy : {'a', 'b'}) {
    const std::string temporary = path(copy) + ".tmp";
    PENSTOCK_CHECK_OK(write_temporary(storage, temporary, bytes));
    PENSTOCK_CHECK_OK(storage.sync_file(temporary));
    PENSTOCK_CHECK_OK(storage.rename(temporary, path(copy)));
  }
  for (const char copy : {'a', 'b'}) {
    PENSTOCK_CHECK_OK(storage.sync_directory(directory_of(directories, copy)));
  }
  // The record stands whatever happens here; a name that stays is tried again next time.
  older.value().erase(record.sequence);
  if (!older.value().empty()) older.value().erase(older.value().begin());
  for (const auto& [sequence, copies] : older.value()) {
    for (const char copy : copies) {
      (void)storage.remove(directory_of(directories, copy) + "/" + global_name(sequence, copy));
    }
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
