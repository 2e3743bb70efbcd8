#pragma once

/// The file that holds the profiles of a user's drives: where it is, and reading and writing it.
///
/// PENSTOCK_PROFILE names it, or says "none"; else it is penstock/profile.toml in XDG_CONFIG_HOME,
/// or in ~/.config. It is its owner's alone (0600, a directory that is made 0700) and is replaced
/// as a whole: a reader meets the old or the new one. Those who write at once do it one after
/// another (a lock on the directory, for which 5 s are waited), so each keeps the others' drives.
/// Threads: reads the environment, so not while another thread changes it.
/// Errors:  kArgument (there is no place for it), kIo, kNoSpace, kCorrupt (damaged), kUnsupported
///          (of another version), kTimeout; messages name the file and what helps.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "topo/drive_profile.hpp"

namespace penstock {

inline constexpr const char* kProfileVariable = "PENSTOCK_PROFILE";

struct ProfilePlace {
  std::string file;         ///< empty: none is used
  bool is_wished = false;   ///< the variable names it, so it should be there
  bool is_refused = false;  ///< the variable says "none"
};

[[nodiscard]] ProfilePlace profile_place();

/// None where the file is not there, unless it was wished for.
[[nodiscard]] Result<std::vector<DriveProfile>> read_profiles(const ProfilePlace& place);

/// Whether write_profiles() can be expected to work; a page is written beside, and gone again.
[[nodiscard]] Status check_profile_place(const ProfilePlace& place);

/// Puts `profiles` into the file, each in place of the one of its device and filesystem; others
/// stay. Of a symbolic link what it leads to is replaced. A file that cannot be read as one is
/// moved to "<file>.old" first, whose name is returned.
[[nodiscard]] Result<std::string> write_profiles(const ProfilePlace& place,
                                                 const std::vector<DriveProfile>& profiles);

[[nodiscard]] const DriveProfile* find_profile(const std::vector<DriveProfile>& profiles,
                                               const DriveIdentity& drive);

}  // namespace penstock
