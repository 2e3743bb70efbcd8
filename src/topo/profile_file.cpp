#include "topo/profile_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>

#include <fmt/format.h>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 256 << 10;
constexpr std::chrono::milliseconds kLongestTurn{5000}, kTurnPause{2};
constexpr const char* kProfileMark = "penstock.profile/";  // in the schema's name
constexpr const char* kRemedy = "run \"penstock tune\" again, which replaces it, or remove it";

std::string text_of(int error) {
  return std::generic_category().message(error);
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;  // one descriptor, one owner
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

/// A variable's value; empty where it is not set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

Error unreadable(const std::string& file, int error, const char* remedy) {
  return make_error(
      Errc::kIo, fmt::format("the profile {} cannot be read: {}; {}", file, text_of(error), remedy),
      error);
}

Result<std::string> read_text(const std::string& file) {
  // A pipe in its place is not waited for.
  const Descriptor from(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (from.number() < 0) {
    return unreadable(file, errno, "check its rights and those of the directories above it");
  }
  struct stat facts {};
  if (::fstat(from.number(), &facts) != 0) return unreadable(file, errno, kRemedy);
  if (!S_ISREG(facts.st_mode))
    return unreadable(file, S_ISDIR(facts.st_mode) ? EISDIR : EINVAL,
                      "name a file, or remove what is there");
  std::string text(kMostBytes + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = ::read(from.number(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable(file, errno, kRemedy);
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length > kMostBytes) {
    return make_error(Errc::kCorrupt,
                      fmt::format("the profile {} is longer than {} bytes, so it is none; {}", file,
                                  kMostBytes, kRemedy));
  }
  text.resize(length);
  return text;
}

Status write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(descriptor, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return make_error(Errc::kIo, text_of(done == 0 ? EIO : errno), errno);
    text.remove_prefix(static_cast<std::size_t>(done));
  }
  if (::fsync(descriptor) != 0) return make_error(Errc::kIo, text_of(errno), errno);
  return ok();
}

Error unwritable(const std::string& file, int error) {
  return make_error(
      error == ENOSPC || error == EDQUOT ? Errc::kNoSpace : Errc::kIo,
      fmt::format("the profile {} cannot be written: {}; make its directory one that you may write "
                  "to, or name another file in {}",
                  file, text_of(error), kProfileVariable),
      error);
}

/// Those who write to one directory do it one after another, so that each keeps what the others
/// wrote; the lock ends with the descriptor. Where locks do not work there is no waiting.
Status take_turn(const Descriptor& directory, const std::string& file) {
  const auto until = std::chrono::steady_clock::now() + kLongestTurn;
  while (::flock(directory.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return ok();
    if (std::chrono::steady_clock::now() >= until) {
      return make_error(Errc::kTimeout,
                        fmt::format("the profile {} is being written by another program for more "
                                    "than {} s; let it end, then tune again",
                                    file, kLongestTurn.count() / 1000));
    }
    std::this_thread::sleep_for(kTurnPause);
  }
  return ok();
}

/// The new text under the name, or the old one as it was.
Status replace(const Descriptor& directory, const std::string& file, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}.new", file, ::getpid());
  (void)::unlink(temporary.c_str());  // of a program with this number that was killed
  {
    const Descriptor to(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (to.number() < 0) return unwritable(file, errno);
    if (const Status written = write_all(to.number(), text); !written) {
      (void)::unlink(temporary.c_str());
      return unwritable(file, written.error().sys_errno);
    }
  }
  if (::rename(temporary.c_str(), file.c_str()) != 0) {
    const int error = errno;
    (void)::unlink(temporary.c_str());
    return unwritable(file, error);
  }
  (void)::fsync(directory.number());
  return ok();
}

/// What `tune` would replace must be a profile, whatever its state: never another file of the
/// user's, a device or a pipe.
Status check_is_profile(const std::string& file) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0) {
    return errno == ENOENT ? ok() : Status(unwritable(file, errno));
  }
  const auto refused = [&](const char* what) {
    return Status(make_error(
        Errc::kArgument,
        fmt::format("{} is {} and would be replaced by a profile; name another file in {}, or say "
                    "\"none\" there and --dry-run here",
                    file, what, kProfileVariable)));
  };
  if (S_ISDIR(facts.st_mode)) return unwritable(file, EISDIR);
  if (!S_ISREG(facts.st_mode)) return refused("no regular file");
  if (facts.st_size == 0) return ok();
  const auto text = read_text(file);
  if (!text && text.error().code != Errc::kCorrupt) return text.error();
  const bool is_ours = text && text.value().find(kProfileMark) != std::string::npos;
  return is_ours ? ok() : refused("not a profile of Penstock");
}

/// A name for the profile that is replaced, which nothing has.
Result<std::string> move_away(const std::string& file) {
  constexpr int kMostNames = 1000;
  for (int i = 1; i <= kMostNames; ++i) {
    const std::string moved = i == 1 ? file + ".old" : fmt::format("{}.old.{}", file, i);
    // A link does not replace what is there, on any filesystem, as a rename would.
    if (::link(file.c_str(), moved.c_str()) == 0) {
      if (::unlink(file.c_str()) != 0) return unwritable(file, errno);
      return moved;
    }
    if (errno != EEXIST) return unwritable(file, errno);
  }
  return unwritable(file, EEXIST);
}

/// Where a link leads: those who keep their settings elsewhere and link to them keep the link.
std::string target_of(const std::string& file) {
  constexpr int kMostLinks = 40;  // as the system follows
  std::error_code error;
  fs::path target = file;
  for (int i = 0; i < kMostLinks && fs::is_symlink(target, error); ++i) {
    target = target.parent_path() / fs::read_symlink(target, error);
  }
  return target.string();
}

/// Writes a page to a file that nobody sees; an errno, or 0. Rights do not tell of a full drive.
int try_write(const fs::path& directory) {
  Descriptor trial(::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  const bool is_offered = trial.number() >= 0 || (errno != EOPNOTSUPP && errno != EISDIR);
  if (!is_offered) {  // a filesystem without such files
    return ::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
  }
  if (trial.number() < 0) return errno;
  const Status written = write_all(trial.number(), std::string(4096, ' '));
  return written ? 0 : written.error().sys_errno;
}

Status no_place(const ProfilePlace& place) {
  if (place.is_refused) {
    return make_error(Errc::kArgument,
                      fmt::format("{} is none, so no profile is written or used; unset it, or name "
                                  "a file in it",
                                  kProfileVariable));
  }
  return make_error(
      Errc::kArgument,
      fmt::format("there is no place for a profile, since neither XDG_CONFIG_HOME nor HOME names "
                  "a directory; set one of them, or name a file in {}",
                  kProfileVariable));
}

}  // namespace

ProfilePlace profile_place() {
  ProfilePlace place;
  const std::string wished = variable(kProfileVariable);
  if (wished == "none") {
    place.is_refused = true;
  } else if (!wished.empty()) {
    place.file = wished;
    place.is_wished = true;
  } else if (const std::string xdg = variable("XDG_CONFIG_HOME"); xdg.starts_with('/')) {
    place.file = xdg + "/penstock/profile.toml";  // a relative one is to be ignored, says its text
  } else if (const std::string home = variable("HOME"); home.starts_with('/')) {
    place.file = home + "/.config/penstock/profile.toml";
  }
  return place;
}

Result<std::vector<DriveProfile>> read_profiles(const ProfilePlace& place) {
  if (place.file.empty()) return std::vector<DriveProfile>();
  auto text = read_text(place.file);
  if (!text) {
    const int error = text.error().sys_errno;
    if (!place.is_wished && (error == ENOENT || error == ENOTDIR)) {
      return std::vector<DriveProfile>();
    }
    return std::move(text).error();
  }
  auto profiles = parse_profiles(text.value());
  if (profiles) return profiles;
  const Error& error = profiles.error();
  return make_error(
      error.code,
      fmt::format("the profile {} {}: {}; {}", place.file,
                  error.code == Errc::kUnsupported ? "is of another version" : "is damaged",
                  error.message, kRemedy));
}

Status check_profile_place(const ProfilePlace& place) {
  if (place.file.empty()) return no_place(place);
  std::error_code error;
  fs::path directory = fs::absolute(target_of(place.file), error).parent_path();
  while (!fs::exists(directory, error) && directory.has_relative_path()) {
    directory = directory.parent_path();
  }
  if (!fs::is_directory(directory, error)) return unwritable(place.file, ENOTDIR);
  if (const int failed = try_write(directory); failed != 0) return unwritable(place.file, failed);
  return check_is_profile(place.file);
}

Result<std::string> write_profiles(const ProfilePlace& wished,
                                   const std::vector<DriveProfile>& profiles) {
  if (wished.file.empty()) return no_place(wished).error();
  ProfilePlace place = wished;
  place.file = target_of(wished.file);
  std::error_code error;
  const fs::path directory = fs::path(place.file).parent_path();
  // ~/.config is made as the XDG text asks, for its owner alone.
  fs::path above;
  for (const fs::path& part : directory) {
    above /= part;
    if (fs::exists(above, error)) continue;
    if (::mkdir(above.c_str(), 0700) != 0 && errno != EEXIST) {
      return unwritable(place.file, errno);
    }
  }
  const Descriptor turn(
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (turn.number() < 0) return unwritable(place.file, errno);
  PENSTOCK_CHECK_OK(take_turn(turn, place.file));
  PENSTOCK_CHECK_OK(check_is_profile(place.file));
  ProfilePlace known = place;
  known.is_wished = false;  // the first one is made now
  auto old = read_profiles(known);
  std::string moved;
  if (!old) {
    PENSTOCK_TAKE(name, move_away(place.file));
    moved = name;
  }
  std::vector<DriveProfile> all = profiles;
  for (const DriveProfile& other : old ? old.value() : std::vector<DriveProfile>()) {
    const DriveIdentity drive{{}, other.filesystem, 0, other.device};
    if (find_profile(profiles, drive) == nullptr) all.push_back(other);
  }
  PENSTOCK_CHECK_OK(replace(turn, place.file, format_profiles(all)));
  return moved;
}

const DriveProfile* find_profile(const std::vector<DriveProfile>& profiles,
                                 const DriveIdentity& drive) {
  for (const DriveProfile& profile : profiles) {
    if (profile.is_of(drive)) return &profile;
  }
  return nullptr;
}

}  // namespace penstock
