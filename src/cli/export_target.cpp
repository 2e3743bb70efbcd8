#include "cli/export_target.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace penstock {
namespace {

Error refuse(const std::string& place, int error, std::string_view advice,
             Errc code = Errc::kArgument) {
  return make_error(
      code, fmt::format("--out {}: {}; {}", place, std::generic_category().message(error), advice),
      error);
}

std::string parent_of(const std::string& place) {
  const std::string parent = std::filesystem::path(place).parent_path().string();
  return parent.empty() ? "." : parent;
}

/// Whether something is there already that must not be touched.
Status check_place(const std::string& place, bool single_file) {
  struct stat info {};
  if (::lstat(place.c_str(), &info) != 0) {
    if (errno == ENOENT) return ok();
    return refuse(place, errno, "choose another place");
  }
  if (single_file) return refuse(place, EEXIST, "choose another name, or remove it", Errc::kState);
  if (!S_ISDIR(info.st_mode)) return refuse(place, ENOTDIR, "name a directory");
  std::error_code error;
  const bool empty = std::filesystem::is_empty(place, error);
  if (error) return refuse(place, error.value(), "choose another place");
  if (empty) return ok();
  return refuse(place, ENOTEMPTY, "nothing is written over, so choose another directory",
                Errc::kState);
}

Status check_parent(const std::string& place, const std::vector<ExportFile>& files) {
  const std::string parent = parent_of(place);
  struct statvfs room {};
  if (::statvfs(parent.c_str(), &room) != 0) {
    const int error = errno;
    return refuse(place, error,
                  error == ENOENT ? fmt::format("create {} first", parent)
                                  : std::string("choose another place"));
  }
  std::uint64_t needed = 0;
  for (const ExportFile& file : files) needed += file.bytes;
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  if (needed <= free) return ok();
  return make_error(
      Errc::kNoSpace,
      fmt::format("--out {}: it needs {} and its drive has {} free; free {} or "
                  "choose another drive",
                  place, format_bytes(needed), format_bytes(free), format_bytes(needed - free)));
}

}  // namespace

ExportTarget::ExportTarget(std::string place, bool single_file)
    : place_(std::move(place)),
      temporary_(place_ + std::string(kExportSuffix)),
      single_file_(single_file) {}

Result<std::unique_ptr<ExportTarget>> ExportTarget::begin(const std::string& place,
                                                          bool single_file,
                                                          const std::vector<ExportFile>& files) {
  std::string clean = place;
  while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
  PENSTOCK_CHECK_OK(check_place(clean, single_file));
  PENSTOCK_CHECK_OK(check_parent(clean, files));
  std::unique_ptr<ExportTarget> target(new ExportTarget(clean, single_file));
  struct stat info {};
  if (::lstat(target->temporary_.c_str(), &info) == 0) {
    return make_error(
        Errc::kState,
        fmt::format("--out {}: {} is there, of an export that is under way or was "
                    "killed; wait for it, or remove it with \"penstock clean {} --yes\"",
                    place, target->temporary_, parent_of(clean)));
  }
  if (!single_file) PENSTOCK_CHECK_OK(target->make_directory(files));
  return target;
}

Status ExportTarget::make_directory(const std::vector<ExportFile>& files) {
  if (::mkdir(temporary_.c_str(), 0700) != 0) {
    return refuse(place_, errno, "choose a place that you may write to");
  }
  made_ = true;
  if (::chmod(temporary_.c_str(), 0700) != 0) {  // the umask may have taken the owner's rights
    return refuse(place_, errno, "choose a place that you may write to");
  }
  nlohmann::json names = nlohmann::json::array();
  for (const ExportFile& file : files) names.push_back(file.name);
  const nlohmann::json mark = {{"penstock", "export"}, {"files", names}};
  PENSTOCK_TAKE(created, OutputFile::create(temporary_ + "/" + std::string(kExportMark), 0));
  created_.push_back(created.path());
  mark_.emplace(std::move(created));
  PENSTOCK_CHECK_OK(mark_->append(mark.dump()));
  PENSTOCK_CHECK_OK(mark_->finish());
  return sync_directory_of(temporary_);
}

ExportTarget::~ExportTarget() {
  if (published_) return;
  // Nobody could be told of a failure; `penstock clean` finds what stays.
  for (const std::string& path : created_) static_cast<void>(::unlink(path.c_str()));
  if (made_) static_cast<void>(::rmdir(temporary_.c_str()));
}

Result<OutputFile> ExportTarget::create(const ExportFile& file) {
  auto created =
      OutputFile::create(single_file_ ? temporary_ : temporary_ + "/" + file.name, file.bytes);
  if (created) created_.push_back(created.value().path());
  return created;
}

Status ExportTarget::publish() {
  struct stat info {};
  if (!single_file_ && ::lstat(place_.c_str(), &info) == 0 &&
      ::chmod(temporary_.c_str(), info.st_mode & 07777) != 0) {  // the user's own directory
    return refuse(place_, errno, "choose another place", Errc::kIo);
  }
  if (!single_file_) PENSTOCK_CHECK_OK(sync_directory_of(temporary_));
  // A directory takes the place of an empty one; one that is not empty is refused by the rename.
  const unsigned int flags = single_file_ ? RENAME_NOREPLACE : 0;
  int result = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, place_.c_str(), flags);
  if (result != 0 && single_file_ && (errno == EINVAL || errno == ENOSYS)) {
    PENSTOCK_CHECK_OK(check_place(place_, single_file_));
    result = ::rename(temporary_.c_str(), place_.c_str());
  }
  if (result != 0) {
    const bool there = errno == EEXIST || errno == ENOTEMPTY;
    return refuse(place_, errno, "choose another place", there ? Errc::kState : Errc::kIo);
  }
  published_ = true;
  PENSTOCK_CHECK_OK(sync_directory_of(parent_of(place_)));
  if (!mark_) return ok();
  // The mark says what may be removed; in its place nothing may.
  mark_.reset();
  const std::string mark = place_ + "/" + std::string(kExportMark);
  if (::unlink(mark.c_str()) != 0) return refuse(mark, errno, "remove it by hand", Errc::kIo);
  return sync_directory_of(place_);
}

}  // namespace penstock
