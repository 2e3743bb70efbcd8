#include "io/store_owner.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "io/store_origin.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kMaxOwnerBytes = 4096;
constexpr const char* kMarkKey = "penstock";
constexpr const char* kMark = "store owner";
constexpr std::uint64_t kExitingFlag = 4;  // PF_EXITING of the kernel's task flags

std::string owner_path(const std::string& directory) {
  return directory + "/owner.json";
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return text;
}

struct ProcessFacts {
  char state = '?';
  std::uint64_t flags = 0;
  std::uint64_t start_time = 0;
};

/// Fields 3, 9 and 22 of /proc/<pid>/stat. Field 2, the program's name in parentheses, may hold
/// spaces and parentheses, so fields are counted from the last ')'.
ProcessFacts process_facts(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  ProcessFacts facts;
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos) return facts;
  std::istringstream fields(line.substr(end + 1));
  std::string skipped;
  fields >> facts.state;
  for (int field = 4; field < 9; ++field) fields >> skipped;
  fields >> facts.flags;
  for (int field = 10; field < 22; ++field) fields >> skipped;
  fields >> facts.start_time;
  return facts;
}

/// Whether SIGKILL was sent and not yet acted on, by the signal masks of /proc/<pid>/status.
bool is_killed(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("SigPnd:") && !line.starts_with("ShdPnd:")) continue;
    const std::uint64_t pending = std::strtoull(line.c_str() + 7, nullptr, 16);
    if ((pending >> (SIGKILL - 1) & 1) != 0) return true;
  }
  return false;
}

}  // namespace

StoreOwner this_process() {
  const auto pid = static_cast<std::int64_t>(getpid());
  return StoreOwner{pid, host_name(), boot_id(), process_facts(pid).start_time};
}

std::string describe(const StoreOwner& owner) {
  std::string text = fmt::format("pid {} on {}", owner.pid, owner.host);
  if (owner.since_s == 0) return text;
  const auto seconds = static_cast<std::time_t>(owner.since_s);
  std::tm parts{};
  std::array<char, 64> date{};
  if (::gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(date.data(), date.size(), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0) {
    return text;
  }
  return text + ", since " + date.data();
}

bool is_running(const StoreOwner& owner) {
  if (owner.pid <= 0 || owner.host != host_name() || owner.boot_id != boot_id()) return false;
  if (kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno == ESRCH) return false;
  const ProcessFacts facts = process_facts(owner.pid);
  // Dead, though its last I/O may go on.
  if (facts.state == 'Z' || facts.state == 'X') return false;
  if ((facts.flags & kExitingFlag) != 0 || is_killed(owner.pid)) return false;
  return owner.start_time == 0 || facts.start_time == 0 || owner.start_time == facts.start_time;
}

Status write_owner(Storage& storage, const std::string& directory, const StoreOwner& owner) {
  const nlohmann::ordered_json json = {
      {kMarkKey, kMark},  // first: what was cut short is known by it
      {"pid", owner.pid},
      {"host", owner.host},
      {"boot_id", owner.boot_id},
      {"start_time", owner.start_time},
      {"since", owner.since_s != 0 ? owner.since_s : storage.unix_seconds()}};
  // A host name need not be UTF-8; replacing bad bytes keeps dump() from throwing.
  const std::string text =
      json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  PENSTOCK_CHECK_OK(require_ours(storage, owner_path(directory)));
  const std::string temporary = owner_path(directory) + ".tmp";
  PENSTOCK_CHECK_OK(write_temporary(storage, temporary, std::as_bytes(std::span(text))));
  PENSTOCK_CHECK_OK(storage.sync_file(temporary));
  return storage.rename(temporary, owner_path(directory));
}

Result<StoreOwner> read_owner(Storage& storage, const std::string& directory) {
  const std::string path = owner_path(directory);
  auto there = storage.exists(path);
  if (!there) return std::move(there).error();
  if (!there.value()) return make_error(Errc::kState, fmt::format("{} does not exist", path));
  auto bytes = storage.read_file(path, kMaxOwnerBytes);
  if (!bytes) return std::move(bytes).error();
  const auto* text = reinterpret_cast<const char*>(bytes.value().data());
  const nlohmann::json json =
      nlohmann::json::parse(text, text + bytes.value().size(), nullptr, /*allow_exceptions=*/false);
  const auto text_of = [&](const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  if (!json.is_object() || text_of(kMarkKey) != kMark) {
    return make_error(Errc::kCorrupt, fmt::format("{} was not written by Penstock", path));
  }
  StoreOwner owner;
  owner.host = text_of("host");
  owner.boot_id = text_of("boot_id");
  if (const auto pid = json.find("pid"); pid != json.end() && pid->is_number_integer()) {
    owner.pid = pid->get<std::int64_t>();
  }
  const auto number_of = [&](const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_number_unsigned() ? it->get<std::uint64_t>() : 0;
  };
  owner.start_time = number_of("start_time");
  owner.since_s = number_of("since");
  return owner;
}

}  // namespace penstock
