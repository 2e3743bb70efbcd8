#include "io/store_spares.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "io/store_impl.hpp"
#include "io/store_origin.hpp"

namespace penstock {
namespace {

std::string spare_name(std::string_view kind, std::uint64_t number, char copy) {
  return fmt::format("{}{}.{}", kind, number, copy);
}

/// The number in a spare's name.
std::optional<std::uint64_t> number_of(std::string_view kind, std::string_view name) {
  if (!name.starts_with(kind)) return std::nullopt;
  std::uint64_t number = 0;
  const char* begin = name.data() + kind.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), number);
  if (error != std::errc() || number > kLastSequence) return std::nullopt;
  return name == spare_name(kind, number, name.back()) ? std::optional(number) : std::nullopt;
}

constexpr std::size_t kRoomNameBytes = 240;

std::string room_name(std::uint64_t number) {
  std::string name = fmt::format("room.{}.", number);
  name.resize(kRoomNameBytes, 'x');
  return name;
}

}  // namespace

bool is_room_name(std::string_view name) {
  constexpr std::uint64_t kMost = 16;
  for (std::uint64_t i = 0; i < kMost; ++i) {
    if (name == room_name(i)) return true;
  }
  return false;
}

std::optional<char> parse_spare_name(std::string_view name, std::string_view kind) {
  if (!name.ends_with(".a") && !name.ends_with(".b")) return std::nullopt;
  return number_of(kind, name) ? std::optional(name.back()) : std::nullopt;
}

Status SpareFiles::find(std::size_t most_per_copy) {
  most_ = most_per_copy;
  for (const char copy : {'a', 'b'}) {
    const std::string& directory = directory_of(directories_, copy);
    PENSTOCK_TAKE(names, storage_.list(directory));
    for (const std::string& name : names) {
      const auto parsed = parse_spare_name(name, kind_);
      if (!parsed) continue;
      const std::uint64_t number = *number_of(kind_, name);
      std::string path = directory + "/" + name;
      PENSTOCK_CHECK_OK(check_numbers_left(path, number));
      next_ = std::max(next_, number + 1);
      if (*parsed != copy) continue;
      auto ours = is_ours(storage_, path);
      if (!ours && ours.error().sys_errno == EIO) return std::move(ours).error();
      // Links, pipes and the like are not ours either.
      if (ours && ours.value()) of(copy).push_back(std::move(path));
    }
  }
  return ok();
}

std::string SpareFiles::new_path(char copy) {
  return directory_of(directories_, copy) + "/" + spare_name(kind_, next_++, copy);
}

Status SpareFiles::fill(char copy, std::size_t wanted, std::uint64_t bytes) {
  const std::vector<std::byte> zeros(of(copy).size() < wanted ? bytes : 0);
  while (of(copy).size() < wanted) {
    std::string path = new_path(copy);
    PENSTOCK_CHECK_OK(storage_.write_file(path, zeros));
    PENSTOCK_CHECK_OK(storage_.sync_file(path));
    of(copy).push_back(std::move(path));
  }
  return ok();
}

Status SpareFiles::hold_names(char copy) {
  const std::string& directory = directory_of(directories_, copy);
  const std::uint64_t wanted = storage_.names_room_bytes(directory);
  for (std::uint64_t i = 0; i * kRoomNameBytes < wanted; ++i) {
    const std::string path = directory + "/" + room_name(i);
    PENSTOCK_TAKE(exists, storage_.exists(path));
    if (!exists) PENSTOCK_CHECK_OK(storage_.write_file(path, {}));
  }
  return ok();
}

Result<std::string> SpareFiles::write(char copy, std::span<const std::byte> bytes) {
  const bool is_new = of(copy).empty();
  std::string path = is_new ? new_path(copy) : of(copy).back();
  if (!is_new) of(copy).pop_back();
  PENSTOCK_CHECK_OK(is_new ? storage_.write_file(path, bytes)
                           : storage_.overwrite_file(path, bytes));
  storage_.begin_writeback(path);
  return path;
}

Status SpareFiles::give(char copy, const std::string& path) {
  if (of(copy).size() >= most_) return storage_.remove(path);
  std::string spare = new_path(copy);
  PENSTOCK_CHECK_OK(storage_.rename(path, spare));
  of(copy).push_back(std::move(spare));
  return ok();
}

}  // namespace penstock
