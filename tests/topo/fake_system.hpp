#pragma once

/// A directory that looks like /sys, /proc and /dev of some machine.

#include <filesystem>
#include <fstream>
#include <string>

#include "temporary_directory.hpp"
#include "topo/block_devices.hpp"

namespace penstock::testing {

class FakeSystem {
 public:
  FakeSystem() {
    for (const char* directory : {"sys/dev/block", "sys/class/block", "proc/self", "dev"}) {
      std::filesystem::create_directories(root_ / directory);
    }
  }

  [[nodiscard]] SystemFiles files() const { return {root_ / "sys", root_ / "proc", root_ / "dev"}; }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void link(const std::string& path, const std::string& to) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::filesystem::create_symlink(root_ / to, root_ / path);
  }

  /// A block device at sys/devices/`place`, found by name and by `number` ("8:1").
  void add_device(const std::string& number, const std::string& place) const {
    const std::string name = std::filesystem::path(place).filename().string();
    std::filesystem::create_directories(root_ / "sys/devices" / place / "slaves");
    link("sys/dev/block/" + number, "sys/devices/" + place);
    link("sys/class/block/" + name, "sys/devices/" + place);
    write("dev/" + name, "");
  }
  void add_partition(const std::string& number, const std::string& place) const {
    add_device(number, place);
    write("sys/devices/" + place + "/partition", "1\n");
  }
  /// `upper` lies on `lower`, both places.
  void put_over(const std::string& upper, const std::string& lower) const {
    link("sys/devices/" + upper + "/slaves/" + std::filesystem::path(lower).filename().string(),
         "sys/devices/" + lower);
  }

 private:
  TemporaryDirectory temporary_;
  std::filesystem::path root_ = temporary_.path();
};

}  // namespace penstock::testing
