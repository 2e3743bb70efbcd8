#include "io/store_origin.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/page_buffer.hpp"
#include "io/store_impl.hpp"

namespace penstock {
namespace {

constexpr std::string_view kOwnerMark = "\"penstock\": \"store owner\"";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<bool> look(Storage& storage, const std::string& path) {
  OpenOptions how;
  how.write = false;
  how.direct = false;
  PENSTOCK_TAKE(id, storage.open(path, how));
  const OpenFile file(storage, id);
  PENSTOCK_TAKE(bytes, storage.size_bytes(file.id()));
  if (bytes < kPageBytes) {  // what is read with alignment has whole pages
    PENSTOCK_TAKE(all, storage.read_file(path, kPageBytes));
    return holds_ours(all);
  }
  PageBuffer page(kPageBytes);
  if (page.empty()) return make_error(Errc::kNoMemory, "no memory for a page");
  PENSTOCK_CHECK_OK(storage.read_at(file.id(), 0, page.span()));
  return holds_ours(page.span());
}

}  // namespace

bool holds_ours(std::span<const std::byte> first_page) {
  const std::string_view text = text_of(first_page.first(std::min(first_page.size(), kPageBytes)));
  const auto begins = [&](std::string_view mark) {
    return text.starts_with(mark) || mark.starts_with(text);
  };
  const bool zero = std::all_of(text.begin(), text.end(), [](char c) { return c == '\0'; });
  // Earlier builds wrote the mark of owner.json further behind.
  const bool marked = text.starts_with('{') && text.find(kOwnerMark) != std::string_view::npos;
  return zero || marked || begins(kStoreMagic) || begins(kOwnerBegin);
}

Result<bool> is_ours(Storage& storage, const std::string& path) {
  return with_re_reads([&] { return look(storage, path); });
}

Status require_ours(Storage& storage, const std::string& path) {
  PENSTOCK_TAKE(exists, storage.exists(path));
  if (!exists) return ok();
  PENSTOCK_TAKE(ours, is_ours(storage, path));
  if (ours) return ok();
  return make_error(Errc::kState,
                    fmt::format("{} was not made by Penstock and has the name of a file that is to "
                                "be written; move it away",
                                path));
}

Status write_temporary(Storage& storage, const std::string& path,
                       std::span<const std::byte> bytes) {
  PENSTOCK_CHECK_OK(require_ours(storage, path));
  PENSTOCK_TAKE(exists, storage.exists(path));
  if (exists) PENSTOCK_CHECK_OK(storage.remove(path));
  return storage.write_file(path, bytes);
}

}  // namespace penstock
