#include "cli/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace penstock {
namespace {

Error directory_error(const char* what, const std::string& path, int error, Errc code = Errc::kIo) {
  return make_error(code,
                    fmt::format("{} {}: {}; {}", what, path, std::generic_category().message(error),
                                error == ELOOP ? "links are not followed, so name what it leads to"
                                               : "check the path and its owner"),
                    error);
}

/// A regular file of a directory, for reading. O_NONBLOCK: nothing else may be waited for.
int open_file(int directory, const std::string& name) {
  for (;;) {
    const int descriptor = ::openat(directory, name.c_str(),
                                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (descriptor >= 0 || errno != EINTR) return descriptor;
  }
}

bool is_same_file(int descriptor, ino_t inode) {
  struct stat info {};
  return ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && info.st_ino == inode;
}

}  // namespace

Result<std::unique_ptr<Directory>> Directory::open(const std::string& path) {
  std::string name = path;
  while (name.size() > 1 && name.back() == '/') name.pop_back();  // a slash would follow a link
  const int descriptor = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) {
    int error = errno;
    struct stat info {};
    if (error == ENOTDIR && ::lstat(name.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
      error = ELOOP;
    }
    return directory_error("open", name, error, Errc::kArgument);
  }
  return std::unique_ptr<Directory>(new Directory(descriptor, name));
}

Result<std::unique_ptr<Directory>> Directory::open_child(const std::string& name) const {
  const int descriptor =
      ::openat(descriptor_, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const std::string path = path_ + "/" + name;
  if (descriptor < 0) return directory_error("open", path, errno, Errc::kArgument);
  return std::unique_ptr<Directory>(new Directory(descriptor, path));
}

Directory::~Directory() {
  for (const int descriptor : locked_) ::close(descriptor);
  ::close(descriptor_);
}

std::pair<dev_t, ino_t> Directory::identity() const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) return {0, 0};
  return {info.st_dev, info.st_ino};
}

Result<std::vector<Directory::Entry>> Directory::entries() const {
  const int descriptor = ::openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const stream = descriptor < 0 ? nullptr : ::fdopendir(descriptor);
  if (stream == nullptr) {
    const int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    return directory_error("list", path_, error);
  }
  std::vector<Entry> found;
  int error = 0;
  for (;;) {
    errno = 0;
    const dirent* const next = ::readdir(stream);
    if (next == nullptr) {
      error = errno;
      break;
    }
    const std::string_view name = next->d_name;
    if (name == "." || name == "..") continue;
    struct stat info {};
    if (::fstatat(descriptor_, next->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;  // gone
    const Kind kind = S_ISREG(info.st_mode)   ? Kind::kFile
                      : S_ISDIR(info.st_mode) ? Kind::kDirectory
                                              : Kind::kOther;
    found.push_back(
        {std::string(name), kind, static_cast<std::uint64_t>(info.st_blocks) * 512, info.st_ino});
  }
  ::closedir(stream);
  if (error != 0) return directory_error("list", path_, error);
  std::sort(found.begin(), found.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return found;
}

std::optional<std::vector<std::byte>> Directory::head(const Entry& entry,
                                                      std::size_t max_bytes) const {
  const int descriptor = open_file(descriptor_, entry.name);
  if (descriptor < 0) return std::nullopt;
  std::optional<std::vector<std::byte>> bytes;
  if (is_same_file(descriptor, entry.inode)) {
    bytes.emplace(max_bytes);
    std::size_t done = 0;
    while (done < max_bytes) {
      const ssize_t count =
          ::pread(descriptor, bytes->data() + done, max_bytes - done, static_cast<off_t>(done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) bytes.reset();
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
    if (bytes) bytes->resize(done);
  }
  ::close(descriptor);
  return bytes;
}

Result<bool> Directory::lock(const Entry& entry) {
  const int descriptor = open_file(descriptor_, entry.name);
  if (descriptor < 0) return directory_error("open", path_ + "/" + entry.name, errno);
  if (!is_same_file(descriptor, entry.inode)) {
    ::close(descriptor);
    return false;  // another has its name by now: somebody works here
  }
  int error = 0;
  do {
    error = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == 0) {
    locked_.push_back(descriptor);
    return true;
  }
  ::close(descriptor);
  if (error == EWOULDBLOCK) return false;
  return directory_error("lock", path_ + "/" + entry.name, error);
}

Status Directory::remove(const Entry& entry) {
  const std::string path = path_ + "/" + entry.name;
  struct stat info {};
  if (::fstatat(descriptor_, entry.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return ok();
    return directory_error("remove", path, errno);
  }
  if (info.st_ino != entry.inode) {
    return make_error(
        Errc::kState,
        fmt::format("remove {}: it is another file by now, so it was left alone; look "
                    "again",
                    path));
  }
  const int flags = entry.kind == Kind::kDirectory ? AT_REMOVEDIR : 0;
  if (::unlinkat(descriptor_, entry.name.c_str(), flags) == 0) return ok();
  return directory_error("remove", path, errno);
}

Status Directory::sync() const {
  if (::fsync(descriptor_) == 0) return ok();
  return directory_error("sync", path_, errno);
}

}  // namespace penstock
