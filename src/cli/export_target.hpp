#pragma once

/// Where an export goes: nothing is seen under its name before it is whole and durable.
///
/// A directory is made as NAME.penstock-export beside its place and renamed once all its files are
/// durable. While it is being made, the file penstock-export.json in it, which is locked, names the
/// files that are Penstock's; what a killed export leaves behind `penstock clean` can so recognise.
/// A single file is written as NAME.penstock-export and renamed.
/// Existing files are never written over: a directory must be missing or empty.
/// Threads: one.
/// Errors:  kArgument (the place), kState (something is there), kNoSpace, kIo.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cli/output_file.hpp"

namespace penstock {

inline constexpr std::string_view kExportSuffix = ".penstock-export";
inline constexpr std::string_view kExportMark = "penstock-export.json";

struct ExportFile {
  std::string name;  ///< in the directory; of a single file: ignored
  std::uint64_t bytes = 0;
};

class ExportTarget {
 public:
  /// Makes the temporary directory, or nothing yet for a single file. `files`: all that there will
  /// be; their space is asked for first.
  static Result<std::unique_ptr<ExportTarget>> begin(const std::string& place, bool single_file,
                                                     const std::vector<ExportFile>& files);
  ExportTarget(const ExportTarget&) = delete;  // one temporary, one owner
  ExportTarget& operator=(const ExportTarget&) = delete;
  ~ExportTarget();  ///< removes what is not published

  Result<OutputFile> create(const ExportFile& file);
  /// All files are finished: puts them in their place.
  Status publish();

 private:
  ExportTarget(std::string place, bool single_file);
  Status make_directory(const std::vector<ExportFile>& files);

  std::string place_, temporary_;
  bool single_file_;
  bool made_ = false;  // the temporary is ours to remove
  bool published_ = false;
  std::vector<std::string> created_;
  std::optional<OutputFile> mark_;
};

}  // namespace penstock
