// Options of a session: from the caller's struct to checked values.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "capi/session.hpp"
#include "io/store_layout.hpp"
#include "kernels/cpu/isa.hpp"

namespace penstock::capi {
namespace {

constexpr std::uint64_t kLargestWorkspace = std::uint64_t{1} << 48;
constexpr std::uint32_t kMostSessionThreads = 4096;

Result<OpenMode> mode_of(penstock_open_mode mode) {
  switch (mode) {
    case PENSTOCK_CREATE:
      return OpenMode::kCreate;
    case PENSTOCK_RESUME:
      return OpenMode::kResume;
    case PENSTOCK_CREATE_OR_RESUME:
      return OpenMode::kCreateOrResume;
    default:
      return argument(
          fmt::format("mode is {}; it is one of PENSTOCK_CREATE, PENSTOCK_RESUME and "
                      "PENSTOCK_CREATE_OR_RESUME",
                      mode));
  }
}

Result<Isa> isa_of(const char* name) {
  if (name == nullptr) return choose_isa();
  const auto isa = isa_from_name(name);
  if (!isa) {
    return argument(
        fmt::format("isa is \"{}\"; it is scalar, avx2, avx512, or NULL for the widest", name));
  }
  if (!isa_supported(*isa)) {
    return make_error(Errc::kUnsupported,
                      fmt::format("isa {} needs a processor that has it; use NULL for the widest "
                                  "that runs here",
                                  name));
  }
  return *isa;
}

Result<QueueBackend> queue_of(const char* name) {
  const std::string_view queue = name == nullptr ? "auto" : name;
  if (queue == "auto") return QueueBackend::kAuto;
  if (queue == "io_uring") return QueueBackend::kUring;
  if (queue == "threads") return QueueBackend::kThreads;
  return argument(fmt::format("queue is \"{}\"; it is auto, io_uring or threads", queue));
}

Result<Logger> logger_of(const penstock_engine_options& options) {
  if (options.log_min_level < PENSTOCK_LOG_TRACE || options.log_min_level > PENSTOCK_LOG_ERROR) {
    return argument(
        fmt::format("log_min_level is {}; it is 0 (trace) to 4 (error)", options.log_min_level));
  }
  if (options.log == nullptr) return Logger();
  const auto call = [log = options.log, user = options.log_user](
                        LogLevel level, const char* file, int line, std::string_view message) {
    const std::string text(message);  // the callback wants its end marked
    const CallbackScope scope;
    log(user, static_cast<penstock_log_level>(level), file, line, text.c_str());
  };
  return Logger(static_cast<LogLevel>(options.log_min_level), call);
}

/// The store's directories but the first.
Result<std::vector<std::string>> further_directories(const penstock_engine_options& options) {
  std::vector<std::string> directories;
  if (options.further_count >= kMaxDataFiles ||
      (options.further_count > 0 && options.further_directories == nullptr)) {
    return argument(
        fmt::format("further_count is {}, of at most {}, and further_directories {} NULL",
                    options.further_count, kMaxDataFiles - 1,
                    options.further_directories == nullptr ? "is" : "is not"));
  }
  for (std::uint64_t i = 0; i < options.further_count; ++i) {
    const char* directory = options.further_directories[i];
    if (directory == nullptr || *directory == '\0') {
      return argument(fmt::format("further_directories[{}] names nothing", i));
    }
    directories.emplace_back(directory);
  }
  return directories;
}

Status check_description(const char* text) {
  const auto value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_object()) return ok();
  return argument("description_json is not a JSON object, such as {\"batch\": 8}");
}

}  // namespace

Result<SessionOptions> make_session_options(const penstock_engine_options& options) {
  SessionOptions out;
  if (options.level != 1 && options.level != 2) {
    return argument(fmt::format("level is {}; an engine has level 1 or 2", options.level));
  }
  if (options.directory == nullptr || *options.directory == '\0') {
    return argument("directory is not set; name the store's directory");
  }
  if (options.scratch != 0 && options.scratch != 1) {
    return argument(fmt::format("scratch is {}; it is 0 or 1", options.scratch));
  }
  if (options.device_budget_bytes != 0) {
    return make_error(
        Errc::kUnsupported,
        "device_budget_bytes is set, but this version has no device tier; set it to 0");
  }
  if (options.workspace_bytes > kLargestWorkspace) {
    return argument(fmt::format("workspace_bytes is {}; at most {} are possible",
                                options.workspace_bytes, kLargestWorkspace));
  }
  if (options.block_elements % 16384 != 0) {
    return argument(fmt::format("block_elements is {}; it is 0 or a multiple of 16384",
                                options.block_elements));
  }
  if (options.threads > kMostSessionThreads) {
    return argument(fmt::format("threads is {}; at most {}", options.threads, kMostSessionThreads));
  }
  if (options.checkpoint_room > kMaxPins) {
    return argument(
        fmt::format("checkpoint_room is {}; at most {}", options.checkpoint_room, kMaxPins));
  }
  if (options.deadline_ns == 0) return argument("deadline_ns is 0; the default is 120 s");
  if (options.reserved != 0) {
    return argument("a reserved member is set; leave them zero");
  }
  PENSTOCK_TAKE(mode, mode_of(options.mode));
  PENSTOCK_TAKE(isa, isa_of(options.isa));
  PENSTOCK_TAKE(queue, queue_of(options.queue));
  PENSTOCK_TAKE(logger, logger_of(options));
  PENSTOCK_TAKE(further, further_directories(options));
  const char* description = options.description_json;
  if (description != nullptr) PENSTOCK_CHECK_OK(check_description(description));
  out.level = options.level == 1 ? Level::kStates : Level::kWeights;
  out.threads = options.threads;
  out.logger = std::move(logger);
  out.engine.directory = options.directory;
  out.engine.further_directories = std::move(further);
  out.engine.checkpoints = options.checkpoint_room;
  out.engine.mode = mode;
  out.engine.scratch = options.scratch != 0;
  out.engine.host_bytes = options.host_budget_bytes;
  out.engine.workspace_bytes = options.workspace_bytes;
  out.engine.block_elements = options.block_elements;
  out.engine.commit_every = options.commit_every;
  out.engine.seed = options.seed;
  out.engine.isa = isa;
  out.engine.queue.backend = queue;
  out.engine.description_json = description != nullptr ? description : "{}";
  out.engine.deadline_ns = options.deadline_ns;
  return out;
}

}  // namespace penstock::capi
