#include "capi/profile_writer.hpp"

#include "topo/profile_file.hpp"
#include "topo/sample_profile.hpp"

namespace penstock::capi_testing {

bool write_profile(const std::string& file, const std::string& directory) {
  const DriveIdentity drive = identify_drives(directory);
  DriveProfile profile = testing::sample_profile(drive.id);
  profile.filesystem = drive.filesystem;
  ProfilePlace place;
  place.file = file;
  return write_profiles(place, {profile}).ok();
}

}  // namespace penstock::capi_testing
