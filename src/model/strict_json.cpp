#include "model/strict_json.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <set>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace penstock {
namespace {

using nlohmann::json;

// Keeps a string of the file short and free of control bytes.
std::string printable(std::string_view text) {
  constexpr std::size_t kMax = 60;
  std::string out;
  for (const char c : text.substr(0, kMax)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  }
  return text.size() > kMax ? out + "..." : out;
}

/// First pass: checks what the library does not (depth, duplicate keys) and keeps its complaint.
class Checker : public json::json_sax_t {
 public:
  explicit Checker(std::uint32_t max_depth) : max_depth_(max_depth) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override { return enter(); }
  bool key(string_t& name) override {
    if (levels_.back().insert(name).second) return true;
    problem_ = fmt::format("the key \"{}\" appears twice in one object", printable(name));
    return false;
  }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_position_ = position;
    problem_ = "it is not valid JSON";
    return false;
  }

  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// Byte behind the offending token, from 1; 0 where the library does not say.
  [[nodiscard]] std::size_t error_position() const { return error_position_; }

 private:
  bool enter() {
    if (levels_.size() == max_depth_) {
      problem_ = fmt::format("it is nested deeper than {} levels", max_depth_);
      return false;
    }
    levels_.emplace_back();
    return true;
  }
  bool leave() {
    levels_.pop_back();
    return true;
  }

  std::uint32_t max_depth_;
  std::vector<std::set<std::string>> levels_;
  std::string problem_;
  std::size_t error_position_ = 0;
};

std::string place(std::string_view text, std::size_t position) {
  if (position == 0) return {};
  const std::string_view before = text.substr(0, position - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_start = before.rfind('\n');
  const std::size_t column =
      line_start == std::string_view::npos ? position : position - line_start - 1;
  return fmt::format(" at line {}, column {}", line, column);
}

}  // namespace

Status parse_strict_json(std::string_view text, std::string_view source, const JsonLimits& limits,
                         json& into) {
  if (text.size() > limits.bytes) {
    return make_error(Errc::kArgument,
                      fmt::format("{} is larger than {}, the most that is read of such a file",
                                  source, format_bytes(limits.bytes)));
  }
  const auto refuse = [&](std::string_view problem, std::size_t position) {
    return make_error(Errc::kArgument, fmt::format("{}: {}{}; correct the file", source, problem,
                                                   place(text, position)));
  };
  // The library takes a zero byte for the end of the text.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return refuse("it is not valid JSON", zero + 1);
  }
  Checker checker(limits.depth);
  if (!json::sax_parse(text.begin(), text.end(), &checker)) {
    return refuse(checker.problem(), checker.error_position());
  }
  into = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (into.is_discarded()) {
    return make_error(Errc::kInternal, fmt::format("{}: two parses of the file differ", source));
  }
  return ok();
}

std::string json_excerpt(const json& value) {
  return printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

namespace {

struct Descriptor {
  explicit Descriptor(int value) : fd(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd;
};

Error file_error(const std::string& path, int error) {
  return make_error(Errc::kArgument,
                    fmt::format("cannot read {}: {}; check the path", path,
                                std::generic_category().message(error)),
                    error);
}

}  // namespace

Result<std::string> read_small_file(const std::string& path, std::uint64_t max_bytes) {
  // O_NONBLOCK: opening a pipe must not wait for a writer before we can refuse it.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) return file_error(path, errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return file_error(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return make_error(Errc::kArgument,
                      fmt::format("cannot read {}: it is not a regular file", path));
  }
  std::string content;
  std::vector<char> piece(64 * 1024);
  while (true) {
    const ssize_t count = ::read(file.fd, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error(path, errno);
    if (count == 0) return content;
    content.append(piece.data(), static_cast<std::size_t>(count));
    if (content.size() > max_bytes) {
      return make_error(Errc::kArgument,
                        fmt::format("{} is larger than {}, the most that is read of such a file",
                                    path, format_bytes(max_bytes)));
    }
  }
}

}  // namespace penstock
