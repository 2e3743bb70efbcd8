#pragma once

/// A new file that is written from start to end and made durable.
///
/// Mode 0600 whatever the umask; the name must not exist and may not be a link. Space is reserved
/// at once where the filesystem can. What was written is handed to the drive every 64 MiB and
/// dropped from the page cache, so that writing a large file takes no memory from others. Memory:
/// 4 MiB. Threads: one. Errors:  kState (exists), kNoSpace, kIo; messages name the path.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace penstock {

class OutputFile {
 public:
  /// `bytes`: its length, to be reserved. Locked (flock) until the object dies, so that others see
  /// that it is being written.
  static Result<OutputFile> create(const std::string& path, std::uint64_t bytes);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;  // one descriptor, one owner
  ~OutputFile();                                 ///< closes; the file stays, whole or not

  Status append(std::span<const std::byte> bytes);
  Status append(std::string_view text) { return append(std::as_bytes(std::span(text))); }
  /// Everything is on the drive, and the file is as long as what was appended.
  Status finish();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t bytes() const { return written_ + used_; }

 private:
  OutputFile(int descriptor, std::string path);
  Status flush();
  Status write_out(std::span<const std::byte> bytes);

  int descriptor_;
  std::string path_;
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;        // of the buffer
  std::uint64_t written_ = 0;   // handed to the system
  std::uint64_t on_drive_ = 0;  // of which the drive has so many for sure
};

/// Makes names in a directory durable.
Status sync_directory_of(const std::string& directory);

}  // namespace penstock
