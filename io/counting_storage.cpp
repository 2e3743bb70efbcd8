#include "io/counting_storage.hpp"

#include <utility>

namespace penstock {
namespace {

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

class CountingQueue final : public ForwardingQueue {
 public:
  CountingQueue(std::unique_ptr<StorageQueue> under, WrittenBytes& written)
      : ForwardingQueue(std::move(under)), written_(written) {}

  Status submit(std::span<const IoRequest> requests) noexcept override {
    Status submitted = under_->submit(requests);
    if (!submitted) return submitted;
    for (const IoRequest& request : requests) {
      if (request.op == IoOp::kWrite) written_.add(request.file, request.bytes);
    }
    return submitted;
  }

 private:
  WrittenBytes& written_;
};

}  // namespace

void WrittenBytes::opened(FileId file, const std::string& directory) {
  const std::lock_guard lock(mutex_);
  files_[file] = &bytes_[directory];
}

void WrittenBytes::closed(FileId file) {
  const std::lock_guard lock(mutex_);
  files_.erase(file);
}

void WrittenBytes::add(FileId file, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(file);
  if (found != files_.end()) *found->second += bytes;
}

void WrittenBytes::add(const std::string& directory, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_[directory] += bytes;
}

std::uint64_t WrittenBytes::of(const std::string& directory) const {
  const std::lock_guard lock(mutex_);
  const auto found = bytes_.find(directory);
  return found == bytes_.end() ? 0 : found->second;
}

Result<FileId> CountingStorage::open(const std::string& path, const OpenOptions& options) {
  auto file = under_.open(path, options);
  if (file) written_.opened(file.value(), options.temporary ? path : directory_of(path));
  return file;
}

Status CountingStorage::close(FileId file) {
  written_.closed(file);
  return under_.close(file);
}

Status CountingStorage::write_at(FileId file, std::uint64_t offset_bytes,
                                 std::span<const std::byte> from) {
  Status done = under_.write_at(file, offset_bytes, from);
  if (done) written_.add(file, from.size());
  return done;
}

Status CountingStorage::write_file(const std::string& path, std::span<const std::byte> bytes) {
  Status done = under_.write_file(path, bytes);
  if (done) written_.add(directory_of(path), bytes.size());
  return done;
}

Status CountingStorage::overwrite_file(const std::string& path, std::span<const std::byte> bytes) {
  Status done = under_.overwrite_file(path, bytes);
  if (done) written_.add(directory_of(path), bytes.size());
  return done;
}

Result<std::unique_ptr<StorageQueue>> CountingStorage::make_queue(CompletionSink& sink,
                                                                  const QueueOptions& options) {
  PENSTOCK_TAKE(queue, under_.make_queue(sink, options));
  return std::unique_ptr<StorageQueue>(std::make_unique<CountingQueue>(std::move(queue), written_));
}

}  // namespace penstock
