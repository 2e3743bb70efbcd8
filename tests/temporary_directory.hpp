#pragma once

/// A directory of the test's own, which goes with everything in it when the test ends.

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace penstock::testing {

class TemporaryDirectory {
 public:
  /// In `parent` where that exists, else where such directories belong.
  explicit TemporaryDirectory(const std::filesystem::path& parent = {}) {
    const bool there = !parent.empty() && std::filesystem::is_directory(parent);
    const auto where = there ? parent : std::filesystem::temp_directory_path();
    std::string name = (where / "penstock-test-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  /// Empty where none could be made: what is opened in it then fails.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Where a test that needs one store puts it.
  [[nodiscard]] std::string store() const { return path_ + "/store"; }

 private:
  std::string path_;
};

}  // namespace penstock::testing
