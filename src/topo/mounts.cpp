#include "topo/mounts.hpp"

#include <fstream>
#include <sstream>

namespace penstock {
namespace {

/// mountinfo writes spaces, tabs, line ends and backslashes as \040 and the like.
std::string unescaped(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && digit(i + 1) && digit(i + 2) && digit(i + 3)) {
      result.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                         (text[i + 3] - '0')));
      i += 3;
    } else {
      result.push_back(text[i]);
    }
  }
  return result;
}

}  // namespace

std::optional<Mount> find_mount(std::uint64_t id, DeviceNumber device, const SystemFiles& files) {
  std::ifstream file(files.proc / "self/mountinfo");
  std::string line;
  std::optional<Mount> found;
  while (std::getline(file, line)) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::uint64_t line_id = 0, parent = 0;
    char colon = 0;
    std::string root;
    Mount mount;
    if (!(before >> line_id >> parent >> mount.device.major >> colon >> mount.device.minor >>
          root >> mount.point) ||
        !(after >> mount.type >> mount.source)) {
      continue;
    }
    const bool is_it =
        id != 0 ? line_id == id
                : mount.device.major == device.major && mount.device.minor == device.minor;
    if (!is_it) continue;
    mount.point = unescaped(mount.point);
    mount.source = unescaped(mount.source);
    found = std::move(mount);  // the last one covers those before it
  }
  return found;
}

}  // namespace penstock
