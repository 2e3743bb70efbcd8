#include "train/token_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/checksum.hpp"
#include "base/random.hpp"
#include "base/units.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kHeaderBytes = 1024;
constexpr std::uint32_t kMagicU16 = 20240520;
constexpr std::uint32_t kMagicU32 = 20240801;
constexpr std::uint64_t kMaxVocab = std::uint64_t{1} << 24;
constexpr std::string_view kRandomPrefix = "random:";

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are read as they lie");

std::uint32_t u32_at(const std::byte* bytes) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

/// Random access to a regular file, with its length at opening.
class File {
 public:
  static Result<File> open(const std::string& path) {
    // O_NONBLOCK: opening a pipe must not wait for a writer before we can refuse it.
    File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), path);
    struct stat info {};
    if (file.fd_ < 0 || ::fstat(file.fd_, &info) != 0) {
      const int error = errno;
      return make_error(
          Errc::kArgument,
          fmt::format("cannot read the data {}: {}; {}", path, errno_text(error),
                      error == EMFILE ? "raise the limit (ulimit -n)" : "check --data"),
          error);
    }
    if (!S_ISREG(info.st_mode)) {
      return make_error(Errc::kArgument,
                        fmt::format("cannot read the data {}: it is not a regular file; write it "
                                    "to one first",
                                    path));
    }
    if (info.st_size == 0) {
      return make_error(Errc::kArgument,
                        fmt::format("the data {} is empty; give --data a longer file", path));
    }
    file.bytes_ = static_cast<std::uint64_t>(info.st_size);
    return file;
  }

  File(File&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), bytes_(other.bytes_) {}
  File& operator=(File&&) = delete;  // one descriptor, one owner, for its whole life
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }

  /// All of `into` from there; kIo when the file has become shorter.
  Status read(std::uint64_t offset_bytes, std::span<std::byte> into) const {
    std::size_t done = 0;
    while (done < into.size()) {
      const ssize_t count = ::pread(fd_, into.data() + done, into.size() - done,
                                    static_cast<off_t>(offset_bytes + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        const int error = errno;
        return make_error(Errc::kIo,
                          fmt::format("read the data {} at byte {}: {}; check the drive", path_,
                                      offset_bytes + done, errno_text(error)),
                          error);
      }
      if (count == 0) {
        return make_error(Errc::kIo,
                          fmt::format("the data {} ended at byte {}, but had {} bytes when it was "
                                      "opened; restore the file and go on with --resume",
                                      path_, offset_bytes + done, bytes_));
      }
      done += static_cast<std::size_t>(count);
    }
    return ok();
  }

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_;
  std::string path_;
  std::uint64_t bytes_ = 0;
};

/// How the bytes of a file are tokens.
struct Layout {
  std::uint64_t first_byte = 0;
  std::uint32_t token_bytes = 1;
  std::uint32_t vocab = 256;
  std::uint64_t tokens = 0;
};

class FileTokens final : public TokenReader {
 public:
  FileTokens(File file, const Layout& layout, std::uint64_t sum_limit_bytes)
      : file_(std::move(file)),
        layout_(layout),
        sum_limit_bytes_(sum_limit_bytes),
        buffer_(std::min<std::uint64_t>(kBufferBytes, file_.bytes())) {}

  [[nodiscard]] std::uint64_t tokens() const override { return layout_.tokens; }
  [[nodiscard]] std::uint32_t vocab() const override { return layout_.vocab; }
  [[nodiscard]] const std::string& path() const override { return file_.path(); }
  [[nodiscard]] bool scanned() const override { return scanned_; }
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::uint64_t bytes() const override { return file_.bytes(); }
  [[nodiscard]] std::string kind() const override {
    return layout_.token_bytes == 1 ? "bytes"
                                    : fmt::format("{}-bit tokens", 8 * layout_.token_bytes);
  }

  Status read(std::uint64_t first, std::span<std::uint32_t> into) override {
    const std::size_t room = buffer_.size() / layout_.token_bytes;
    for (std::size_t done = 0; done < into.size();) {
      const std::size_t count = std::min(room, into.size() - done);
      PENSTOCK_CHECK_OK(read_piece(first + done, into.subspan(done, count), Errc::kCorrupt));
      done += count;
    }
    return ok();
  }

  Result<std::uint64_t> content() override {
    TileHasher hasher;
    if (file_.bytes() <= sum_limit_bytes_) {
      PENSTOCK_CHECK_OK(add_to(hasher, 0, file_.bytes()));
      return hasher.digest();
    }
    const std::uint64_t piece = std::min(kSumPieceBytes, file_.bytes());
    const std::uint64_t last = file_.bytes() - piece;
    for (std::uint64_t i = 0; i < kSumPieces; ++i) {
      const std::uint64_t whole = last / (kSumPieces - 1), rest = last % (kSumPieces - 1);
      PENSTOCK_CHECK_OK(add_to(hasher, i * whole + i * rest / (kSumPieces - 1), piece));
    }
    return hasher.digest();
  }

  Status prepare(std::uint64_t scan_limit_bytes) {
    PENSTOCK_CHECK_OK(take_fingerprint());
    scanned_ = layout_.token_bytes == 1 && layout_.vocab >= 256;
    if (scanned_ || file_.bytes() > scan_limit_bytes) return ok();
    std::vector<std::uint32_t> piece(buffer_.size() / layout_.token_bytes);
    for (std::uint64_t first = 0; first < layout_.tokens; first += piece.size()) {
      const std::size_t count =
          static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), layout_.tokens - first));
      PENSTOCK_CHECK_OK(read_piece(first, std::span(piece).first(count), Errc::kArgument));
    }
    scanned_ = true;
    return ok();
  }

 private:
  Status add_to(TileHasher& hasher, std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t done = 0; done < count;) {
      const std::span<std::byte> piece(
          buffer_.data(),
          static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size(), count - done)));
      PENSTOCK_CHECK_OK(file_.read(first + done, piece));
      hasher.update(piece.data(), piece.size());
      done += piece.size();
    }
    return ok();
  }

  Status read_piece(std::uint64_t first, std::span<std::uint32_t> into, Errc code) {
    const std::size_t width = layout_.token_bytes;
    const std::span<std::byte> bytes(buffer_.data(), into.size() * width);
    PENSTOCK_CHECK_OK(file_.read(layout_.first_byte + first * width, bytes));
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < into.size(); ++i) {
      std::uint32_t token = 0;
      std::memcpy(&token, bytes.data() + i * width, width);
      into[i] = token;
      largest = std::max(largest, token);
    }
    return largest < layout_.vocab ? ok() : Status(bad_token(first, into, code));
  }

  [[nodiscard]] Error bad_token(std::uint64_t first, std::span<const std::uint32_t> read,
                                Errc code) const {
    const auto found = std::find_if(read.begin(), read.end(),
                                    [this](std::uint32_t token) { return token >= layout_.vocab; });
    const std::uint64_t index = first + static_cast<std::uint64_t>(found - read.begin());
    return make_error(
        code, fmt::format("the data {}: token {} at byte {} (token number {}, read as {}) is not "
                          "below the vocabulary of {}; pass the --vocab and --data-type that the "
                          "file was made with",
                          path(), *found, layout_.first_byte + index * layout_.token_bytes, index,
                          kind(), layout_.vocab));
  }

  Status take_fingerprint() {
    constexpr std::uint64_t kEndBytes = 64 * 1024;
    const std::uint64_t count = std::min(kEndBytes, file_.bytes());
    const std::uint64_t facts[] = {file_.bytes(), layout_.first_byte, layout_.token_bytes,
                                   layout_.vocab};
    const std::span<std::byte> end(buffer_.data(), static_cast<std::size_t>(count));
    TileHasher hasher;
    hasher.update(facts, sizeof facts);
    PENSTOCK_CHECK_OK(file_.read(0, end));
    hasher.update(end.data(), end.size());
    PENSTOCK_CHECK_OK(file_.read(file_.bytes() - count, end));
    hasher.update(end.data(), end.size());
    fingerprint_ = hasher.digest();
    return ok();
  }

  File file_;
  Layout layout_;
  std::uint64_t sum_limit_bytes_;
  std::vector<std::byte> buffer_;
  std::uint64_t fingerprint_ = 0;
  bool scanned_ = false;
};

/// Tokens that are a function of their position only: nothing is read, nothing kept.
class RandomTokens final : public TokenReader {
 public:
  RandomTokens(std::string name, std::uint32_t vocab) : name_(std::move(name)), vocab_(vocab) {}

  [[nodiscard]] std::uint64_t tokens() const override { return std::uint64_t{1} << 40; }
  [[nodiscard]] std::uint32_t vocab() const override { return vocab_; }
  [[nodiscard]] std::string kind() const override { return "random tokens"; }
  [[nodiscard]] const std::string& path() const override { return name_; }
  [[nodiscard]] bool scanned() const override { return true; }
  [[nodiscard]] std::uint64_t fingerprint() const override { return hash_name(name_); }
  [[nodiscard]] std::uint64_t bytes() const override { return 0; }
  Result<std::uint64_t> content() override { return hash_name(name_); }

  Status read(std::uint64_t first, std::span<std::uint32_t> into) override {
    static const std::uint64_t stream = hash_name("penstock random data");
    for (std::size_t i = 0; i < into.size(); ++i) {
      const std::uint64_t bits = mix64(vocab_, stream, first + i) >> 32;
      into[i] = static_cast<std::uint32_t>((bits * vocab_) >> 32);
    }
    return ok();
  }

 private:
  std::string name_;
  std::uint32_t vocab_;
};

Result<std::unique_ptr<TokenReader>> open_random(const DataOptions& options) {
  const std::string_view digits = std::string_view(options.path).substr(kRandomPrefix.size());
  std::uint64_t vocab = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), vocab);
  if (error != std::errc() || end != digits.data() + digits.size() || vocab < 2 ||
      vocab > kMaxVocab) {
    return make_error(Errc::kArgument,
                      fmt::format("the data \"{}\": behind \"random:\" goes a vocabulary from 2 to "
                                  "{}, for example random:50257",
                                  options.path, kMaxVocab));
  }
  if (options.vocab != 0 && options.vocab != vocab) {
    return make_error(Errc::kArgument, fmt::format("--vocab {} contradicts --data {}; drop --vocab",
                                                   options.vocab, options.path));
  }
  return std::unique_ptr<TokenReader>(
      std::make_unique<RandomTokens>(options.path, static_cast<std::uint32_t>(vocab)));
}

/// The llm.c header in front of the tokens, if there is one.
struct Header {
  std::uint32_t token_bytes = 0;  ///< 0: no header
  std::uint32_t version = 0;
  std::uint32_t tokens = 0;
};

Result<Header> read_header(const File& file) {
  Header header;
  if (file.bytes() < kHeaderBytes) return header;
  std::byte bytes[12];
  PENSTOCK_CHECK_OK(file.read(0, bytes));
  const std::uint32_t magic = u32_at(bytes);
  if (magic == kMagicU16) header.token_bytes = 2;
  if (magic == kMagicU32) header.token_bytes = 4;
  header.version = u32_at(bytes + 4);
  header.tokens = u32_at(bytes + 8);
  return header;
}

Status check_header(const File& file, const Header& header) {
  const std::uint32_t expected = header.token_bytes == 2 ? 1 : 7;
  if (header.version != expected) {
    return make_error(Errc::kArgument,
                      fmt::format("the data {} has a token header of version {}, but only version "
                                  "{} is known for {}-bit tokens; write the file anew",
                                  file.path(), header.version, expected, 8 * header.token_bytes));
  }
  const std::uint64_t bytes = kHeaderBytes + std::uint64_t{header.tokens} * header.token_bytes;
  if (bytes == file.bytes()) return ok();
  return make_error(Errc::kArgument,
                    fmt::format("the data {} has {} bytes, but its header announces {} tokens, "
                                "which makes {}; the file is cut or not finished: write it anew",
                                file.path(), file.bytes(), header.tokens, bytes));
}

std::uint32_t bytes_of(DataType type) {
  return type == DataType::kU32 ? 4 : type == DataType::kU16 ? 2 : 1;
}

Result<Layout> decide_layout(const File& file, const DataOptions& options) {
  Layout layout;
  DataType type = options.type;
  PENSTOCK_TAKE(header, read_header(file));
  if (type == DataType::kAuto && options.vocab == 0 && header.token_bytes != 0) {
    return make_error(
        Errc::kArgument,
        fmt::format("the data {} is a file of {}-bit tokens; pass its vocabulary with "
                    "--vocab (50257 for GPT-2), or --data-type bytes to train on its "
                    "bytes",
                    file.path(), 8 * header.token_bytes));
  }
  if (type == DataType::kAuto) {
    type = options.vocab == 0 ? DataType::kBytes
           : header.token_bytes == 4 || (header.token_bytes == 0 && options.vocab > 65536)
               ? DataType::kU32
               : DataType::kU16;
  }
  layout.token_bytes = bytes_of(type);
  if (type != DataType::kBytes && options.vocab == 0) {
    return make_error(Errc::kArgument,
                      fmt::format("the data {} is to be read as tokens; pass its vocabulary with "
                                  "--vocab (50257 for GPT-2)",
                                  file.path()));
  }
  if (options.vocab != 0) layout.vocab = static_cast<std::uint32_t>(options.vocab);
  if (type != DataType::kBytes && header.token_bytes != 0) {
    if (header.token_bytes != layout.token_bytes) {
      return make_error(Errc::kArgument,
                        fmt::format("the data {} has a header of {}-bit tokens, which contradicts "
                                    "--data-type; drop it",
                                    file.path(), 8 * header.token_bytes));
    }
    PENSTOCK_CHECK_OK(check_header(file, header));
    layout.first_byte = kHeaderBytes;
  }
  const std::uint64_t bytes = file.bytes() - layout.first_byte;
  if (bytes % layout.token_bytes != 0) {
    return make_error(Errc::kArgument,
                      fmt::format("the data {} has {} bytes, which is not a whole number of {}-bit "
                                  "tokens; it is cut, or --data-type or --vocab is wrong",
                                  file.path(), file.bytes(), 8 * layout.token_bytes));
  }
  if (bytes == 0) {
    return make_error(Errc::kArgument,
                      fmt::format("the data {} has a header and no token behind it; give --data a "
                                  "longer file",
                                  file.path()));
  }
  layout.tokens = bytes / layout.token_bytes;
  return layout;
}

}  // namespace

Result<std::unique_ptr<TokenReader>> open_tokens(const DataOptions& options) {
  if (options.vocab > kMaxVocab) {
    return make_error(Errc::kArgument, fmt::format("--vocab {} is more than {}, the largest "
                                                   "vocabulary that is supported",
                                                   options.vocab, kMaxVocab));
  }
  if (options.path.empty()) {
    return make_error(Errc::kArgument,
                      "--data is missing; name any file (its bytes are the tokens), a token file "
                      "with --vocab, or random:50257");
  }
  if (options.path.starts_with(kRandomPrefix)) return open_random(options);
  auto file = File::open(options.path);
  if (!file) return std::move(file).error();
  auto layout = decide_layout(file.value(), options);
  if (!layout) return std::move(layout).error();
  auto reader = std::make_unique<FileTokens>(std::move(file).value(), layout.value(),
                                             options.sum_limit_bytes);
  PENSTOCK_CHECK_OK(reader->prepare(options.scan_limit_bytes));
  return std::unique_ptr<TokenReader>(std::move(reader));
}

}  // namespace penstock
