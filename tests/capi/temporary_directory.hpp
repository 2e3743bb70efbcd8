#pragma once

/// A directory that disappears with the test.

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>

namespace penstock::capi_testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    static std::atomic<int> counter{0};
    path_ = (std::filesystem::temp_directory_path() /
             ("penstock-capi-" + std::to_string(::getpid()) + "-" + std::to_string(counter++)))
                .string();
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] std::string store() const { return path_ + "/store"; }

 private:
  std::string path_;
};

}  // namespace penstock::capi_testing
