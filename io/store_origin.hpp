#pragma once

/// Which files in a store's directories are Penstock's, by what they hold: before one of them is
/// written over, renamed or removed. Internal to io/.
///
/// A name alone proves nothing: a user may have files called spare.3.a or owner.json.tmp. Ours are,
/// by their first page
///   - files of nothing, or of zeros: ones that were made and not yet written to, or that a power
///     loss took the contents of;
///   - what begins with the magic of a store's formats, or with the mark of owner.json;
///   - the beginning of one of these and nothing more, where the writing was cut short.
/// Threads: any. Errors: the storage's; kState with the file and what to do from require_ours().

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "io/storage.hpp"

namespace penstock {

/// All binary files of a store begin with this.
inline constexpr std::string_view kStoreMagic = "PNSTK";
/// owner.json begins with this.
inline constexpr std::string_view kOwnerBegin = "{\n  \"penstock\": \"store owner\"";

/// By a file's first page, or all of a shorter one.
[[nodiscard]] bool holds_ours(std::span<const std::byte> first_page);
Result<bool> is_ours(Storage& storage, const std::string& path);
/// kState where there is a file of that path and it is not ours.
Status require_ours(Storage& storage, const std::string& path);

/// A file of that path, in place of what a process left there that was killed.
Status write_temporary(Storage& storage, const std::string& path, std::span<const std::byte> bytes);

}  // namespace penstock
