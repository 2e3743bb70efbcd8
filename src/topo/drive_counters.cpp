#include "topo/drive_counters.hpp"

#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <limits>
#include <system_error>

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr std::uint64_t kSectorBytes = 512;  // in diskstats, whatever the drive's own are
constexpr std::uint64_t kDataUnitBytes = 512'000;
constexpr std::size_t kNameField = 2, kWrittenField = 9, kLeastFields = 14;
constexpr std::uint8_t kGetLogPage = 0x02, kSmartLog = 0x02;

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t at = line.find_first_not_of(' '); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    fields.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(' ', end);
  }
  return fields;
}

Error health_error(const std::string& path, int error) {
  return make_error(error == ENOTTY ? Errc::kUnsupported : Errc::kIo,
                    fmt::format("the SMART page of {} cannot be read: {}", path,
                                std::generic_category().message(error)),
                    error);
}

}  // namespace

Result<std::uint64_t> written_bytes_of(std::string_view diskstats, std::string_view device) {
  while (!diskstats.empty()) {
    const std::size_t end = std::min(diskstats.find('\n'), diskstats.size());
    const std::string_view line = diskstats.substr(0, end);
    diskstats.remove_prefix(std::min(end + 1, diskstats.size()));
    const std::vector<std::string_view> fields = fields_of(line);
    if (fields.size() <= kNameField || fields[kNameField] != device) continue;
    std::uint64_t sectors = 0, bytes = 0;
    if (fields.size() >= kLeastFields) {
      const std::string_view text = fields[kWrittenField];
      const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), sectors);
      if (error == std::errc() && last == text.data() + text.size() &&
          !__builtin_mul_overflow(sectors, kSectorBytes, &bytes)) {
        return bytes;
      }
    }
    return make_error(Errc::kCorrupt,
                      fmt::format("the system's counters of {} are not as expected: "
                                  "\"{}\"",
                                  device, line));
  }
  return make_error(Errc::kUnsupported, fmt::format("the system does not count for {}", device));
}

Result<DriveHealth> decode_smart_page(std::span<const std::byte> page) {
  if (page.size() != kSmartPageBytes) {
    return make_error(Errc::kCorrupt, fmt::format("a SMART page has {} bytes instead of {}",
                                                  page.size(), kSmartPageBytes));
  }
  DriveHealth health;
  health.percent_used = std::to_integer<std::uint32_t>(page[5]);
  constexpr std::size_t kUnits = 48, kUnitsBytes = 16;
  std::uint64_t units = 0;
  bool fits = true;
  for (std::size_t i = 0; i < kUnitsBytes; ++i) {
    const auto byte = std::to_integer<std::uint64_t>(page[kUnits + i]);
    if (i < 8) units |= byte << (8 * i);
    if (i >= 8 && byte != 0) fits = false;
  }
  fits = fits && !__builtin_mul_overflow(units, kDataUnitBytes, &health.written_bytes);
  if (!fits) health.written_bytes = std::numeric_limits<std::uint64_t>::max();
  return health;
}

Result<std::vector<std::byte>> read_smart_page(const std::string& device_path) {
  const int descriptor = ::open(device_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return health_error(device_path, errno);
  std::vector<std::byte> page(kSmartPageBytes);
  nvme_admin_cmd command{};
  command.opcode = kGetLogPage;
  command.nsid = 0xFFFF'FFFF;  // of the whole drive
  command.addr = reinterpret_cast<std::uintptr_t>(page.data());
  command.data_len = kSmartPageBytes;
  command.cdw10 = (kSmartPageBytes / 4 - 1) << 16 | kSmartLog;  // length in words, less one
  const int status = ::ioctl(descriptor, NVME_IOCTL_ADMIN_CMD, &command);
  const int error = errno;
  ::close(descriptor);
  if (status == 0) return page;
  if (status < 0) return health_error(device_path, error);
  return make_error(Errc::kIo, fmt::format("the SMART page of {} cannot be read: the drive answers "
                                           "with NVMe status {:#x}",
                                           device_path, status));
}

}  // namespace penstock
