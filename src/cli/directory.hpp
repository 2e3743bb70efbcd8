#pragma once

/// A directory held open, so that what is looked at is what is removed.
///
/// Every name is taken relative to the open directory and no symbolic link is followed, not even
/// the directory's own name. Threads: one. Errors: kArgument (cannot be opened), kIo.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace penstock {

class Directory {
 public:
  enum class Kind : std::uint8_t { kFile, kDirectory, kOther };
  struct Entry {
    std::string name;
    Kind kind = Kind::kOther;
    std::uint64_t bytes = 0;  ///< it takes on the drive
    ino_t inode = 0;          ///< what was looked at
  };

  static Result<std::unique_ptr<Directory>> open(const std::string& path);
  /// A directory in this one; kArgument where it is none, or a link.
  Result<std::unique_ptr<Directory>> open_child(const std::string& name) const;
  Directory(const Directory&) = delete;  // one descriptor, one owner
  Directory& operator=(const Directory&) = delete;
  ~Directory();

  [[nodiscard]] const std::string& path() const { return path_; }
  /// The same for two openings of one directory.
  [[nodiscard]] std::pair<dev_t, ino_t> identity() const;
  /// By name; without "." and "..".
  Result<std::vector<Entry>> entries() const;
  /// The first bytes of a regular file, at most so many; nothing where it cannot be read.
  [[nodiscard]] std::optional<std::vector<std::byte>> head(const Entry& entry,
                                                           std::size_t max_bytes) const;
  /// Takes the file's lock (flock) until the directory object dies; false when another has it.
  Result<bool> lock(const Entry& entry);
  /// Removes a file, or an empty directory, unless another has its name by now.
  Status remove(const Entry& entry);
  Status sync() const;

 private:
  Directory(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}

  int descriptor_;
  std::string path_;
  std::vector<int> locked_;
};

/// What Directory::head() gave, as text.
inline std::string_view text_in(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace penstock
