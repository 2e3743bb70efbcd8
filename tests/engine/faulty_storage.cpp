#include "engine/faulty_storage.hpp"

#include <algorithm>
#include <system_error>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

namespace penstock::testing {
namespace {

constexpr std::uint64_t kTickNs = 1'000'000'000;
constexpr std::uint64_t kFallbackNs = 1'000'000;

/// What the storage and its queue share.
struct Faults {
  CallFault fault;
  std::uint64_t calls = 0;  // of the fault's kind
  bool struck = false, reported = false;
  std::uint64_t changes_after = 0;

  /// Counts a call; whether it is the chosen one.
  bool strikes(Call call, bool changes) {
    if (reported && changes) ++changes_after;
    if (call != fault.call) return false;
    ++calls;
    const bool chosen = calls >= fault.at && calls - fault.at < fault.repeats;
    struck = struck || chosen;
    return chosen;
  }

  Error report(const std::string& what) {
    reported = true;
    const bool space = fault.error == ENOSPC || fault.error == EDQUOT;
    return make_error(space ? Errc::kNoSpace : Errc::kIo,
                      fmt::format("{}: {} ({}), injected", what,
                                  std::generic_category().message(fault.error), fault.error),
                      fault.error);
  }
};

class FaultyQueue final : public StorageQueue, private CompletionSink {
 public:
  FaultyQueue(Faults& faults, Timeline& timeline, CompletionSink& sink)
      : faults_(faults), timeline_(timeline), sink_(sink) {}

  Status open(Storage& storage, const QueueOptions& options) {
    PENSTOCK_TAKE(queue, storage.make_queue(*this, options));
    inner_ = std::move(queue);
    return ok();
  }

  ~FaultyQueue() override {
    timeline_.cancel(this);
    if (faults_.fault.effect == Effect::kLate) release_requests();
    release_completion();
    inner_.reset();
    release_completion();
  }
  FaultyQueue(const FaultyQueue&) = delete;
  FaultyQueue& operator=(const FaultyQueue&) = delete;

  Status submit(std::span<const IoRequest> requests) noexcept override {
    if (faults_.strikes(Call::kSubmit, false)) {
      faults_.reported = true;
      return make_error(Errc::kInternal, "submit: the queue has failed, injected");
    }
    std::vector<IoRequest> now;
    for (const IoRequest& request : requests) {
      const bool write = request.op == IoOp::kWrite;
      const Call call = write ? Call::kQueueWrite : Call::kQueueRead;
      operations_[request.cookie] = request.op;
      if (!faults_.strikes(call, write)) {
        now.push_back(request);
      } else if (faults_.fault.effect == Effect::kAfterSuccessor) {
        now.push_back(request);
        overtaken_ = request.cookie;
        has_overtaken_ = true;
      } else {
        hold(request);
      }
    }
    return now.empty() ? ok() : inner_->submit(now);
  }

  std::size_t drop_queued() noexcept override { return inner_->drop_queued(); }

  Status drain(std::uint64_t timeout_ns) noexcept override {
    const std::uint64_t end_ns = timeline_.now_ns() + timeout_ns;
    while (stats().in_flight_requests != 0) {
      if (timeline_.now_ns() < end_ns && timeline_.run_one()) continue;
      return make_error(Errc::kTimeout, "drain: requests are still in flight");
    }
    return ok();
  }

  [[nodiscard]] IoStats stats() const noexcept override {
    IoStats stats = inner_->stats();
    stats.in_flight_requests += held_.size() + (has_completion_ ? 1 : 0);
    return stats;
  }
  [[nodiscard]] std::string backend() const override { return inner_->backend(); }
  [[nodiscard]] std::string backend_reason() const override { return inner_->backend_reason(); }

 private:
  void hold(const IoRequest& request) {
    held_.push_back(request);
    if (faults_.fault.effect == Effect::kLost) return;
    // Somebody who waits for the request sees time pass meanwhile.
    for (std::uint64_t at = kTickNs; at < faults_.fault.delay_ns; at += kTickNs) {
      timeline_.after(at, Task{[](void*, std::uint64_t) {}, this, 0});
    }
    timeline_.after(
        faults_.fault.delay_ns,
        Task{[](void* self, std::uint64_t) { static_cast<FaultyQueue*>(self)->release_requests(); },
             this, 0});
  }

  void release_requests() {
    std::vector<IoRequest> due;
    std::swap(due, held_);
    if (due.empty()) return;
    if (const Status late = inner_->submit(due); !late) {
      for (const IoRequest& request : due) {
        deliver({request.cookie, late.error().code, late.error().sys_errno, 0, 0});
      }
    }
  }

  void io_complete(const IoCompletion& completion) noexcept override {
    if (has_overtaken_ && completion.cookie == overtaken_) {
      has_overtaken_ = false;
      has_completion_ = true;
      completion_ = completion;
      timeline_.after(kFallbackNs, Task{[](void* self, std::uint64_t) {
                                          static_cast<FaultyQueue*>(self)->release_completion();
                                        },
                                        this, 0});
      return;
    }
    deliver(completion);
    release_completion();
  }

  void release_completion() {
    if (!has_completion_) return;
    has_completion_ = false;
    deliver(completion_);
  }

  void deliver(const IoCompletion& completion) {
    const auto operation = operations_.extract(completion.cookie);
    const bool write = !operation.empty() && operation.mapped() == IoOp::kWrite;
    if (write && completion.code != Errc::kOk && completion.code != Errc::kCancelled) {
      faults_.reported = true;
    }
    sink_.io_complete(completion);
  }

  Faults& faults_;
  Timeline& timeline_;
  CompletionSink& sink_;
  std::unordered_map<std::uint64_t, IoOp> operations_;  // by cookie, in flight
  std::vector<IoRequest> held_;
  std::uint64_t overtaken_ = 0;
  bool has_overtaken_ = false, has_completion_ = false;
  IoCompletion completion_;
  std::unique_ptr<StorageQueue> inner_;  // last: its completions use the above
};

class FaultyStorageImpl final : public FaultyStorage {
 public:
  FaultyStorageImpl(Storage& storage, Timeline& timeline, const CallFault& fault)
      : FaultyStorage(storage), timeline_(timeline), faults_{fault} {}

  [[nodiscard]] bool struck() const override { return faults_.struck; }
  [[nodiscard]] std::uint64_t changes_after() const override { return faults_.changes_after; }

  Result<FileId> open(const std::string& path, const OpenOptions& options) override {
    const bool creates = options.create || options.temporary;
    auto file = guard<Result<FileId>>(creates ? Call::kCreate : Call::kOpen, creates, path,
                                      [&] { return under_.open(path, options); });
    if (file) paths_[file.value()] = path;
    return file;
  }
  Result<std::uint64_t> size_bytes(FileId file) override {
    return guard<Result<std::uint64_t>>(Call::kSize, false, paths_[file],
                                        [&] { return under_.size_bytes(file); });
  }
  Status preallocate(FileId file, std::uint64_t bytes) override {
    return guard<Status>(Call::kPreallocate, true, paths_[file],
                         [&] { return under_.preallocate(file, bytes); });
  }
  Status extend(FileId file, std::uint64_t bytes) override {
    return guard<Status>(Call::kExtend, true, paths_[file],
                         [&] { return under_.extend(file, bytes); });
  }
  Status sync_data(FileId file) override {
    return guard<Status>(Call::kSync, true, paths_[file], [&] { return under_.sync_data(file); });
  }
  Status sync_all(std::span<const FileId> files) override { return Storage::sync_all(files); }
  Status lock(FileId file) override {
    return guard<Status>(Call::kLock, false, paths_[file], [&] { return under_.lock(file); });
  }
  Status read_at(FileId file, std::uint64_t offset, std::span<std::byte> into) override {
    return guard<Status>(Call::kReadAt, false, paths_[file],
                         [&] { return under_.read_at(file, offset, into); });
  }
  Status write_at(FileId file, std::uint64_t offset, std::span<const std::byte> from) override {
    const bool half = cut_short(Call::kWriteAt);
    const std::size_t bytes = half ? from.size() / 2 / kPageBytes * kPageBytes : from.size();
    return guard<Status>(Call::kWriteAt, true, paths_[file],
                         [&] { return under_.write_at(file, offset, from.first(bytes)); });
  }
  Result<std::vector<std::byte>> read_file(const std::string& path, std::uint64_t max) override {
    return guard<Result<std::vector<std::byte>>>(Call::kReadFile, false, path,
                                                 [&] { return under_.read_file(path, max); });
  }
  Status write_file(const std::string& path, std::span<const std::byte> bytes) override {
    const bool half = cut_short(Call::kWriteFile);
    return guard<Status>(Call::kWriteFile, true, path, [&] {
      return under_.write_file(path, half ? bytes.first(bytes.size() / 2) : bytes);
    });
  }
  Status overwrite_file(const std::string& path, std::span<const std::byte> bytes) override {
    const bool half = cut_short(Call::kOverwriteFile);
    return guard<Status>(Call::kOverwriteFile, true, path, [&] {
      return under_.overwrite_file(path, half ? bytes.first(bytes.size() / 2) : bytes);
    });
  }
  Status sync_file(const std::string& path) override {
    return guard<Status>(Call::kSync, true, path, [&] { return under_.sync_file(path); });
  }
  Status rename(const std::string& from, const std::string& to) override {
    return guard<Status>(Call::kRename, true, from, [&] { return under_.rename(from, to); });
  }
  Status remove(const std::string& path) override {
    return guard<Status>(Call::kRemove, true, path, [&] { return under_.remove(path); });
  }
  Status sync_directory(const std::string& path) override {
    return guard<Status>(Call::kSyncDirectory, true, path,
                         [&] { return under_.sync_directory(path); });
  }
  Status make_directory(const std::string& path) override {
    return guard<Status>(Call::kMakeDirectory, true, path,
                         [&] { return under_.make_directory(path); });
  }
  Result<bool> exists(const std::string& path) override {
    return guard<Result<bool>>(Call::kExists, false, path, [&] { return under_.exists(path); });
  }
  Result<std::vector<std::string>> list(const std::string& directory) override {
    return guard<Result<std::vector<std::string>>>(Call::kList, false, directory,
                                                   [&] { return under_.list(directory); });
  }
  Result<std::uint64_t> free_bytes(const std::string& directory) override {
    return guard<Result<std::uint64_t>>(Call::kFreeBytes, false, directory,
                                        [&] { return under_.free_bytes(directory); });
  }
  Status check_private(const std::string& directory) override {
    return guard<Status>(Call::kCheckPrivate, false, directory,
                         [&] { return under_.check_private(directory); });
  }
  Result<bool> is_named(FileId file, const std::string& path) override {
    return guard<Result<bool>>(Call::kIsNamed, false, path,
                               [&] { return under_.is_named(file, path); });
  }
  Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                   const QueueOptions& options) override {
    if (faults_.strikes(Call::kMakeQueue, false)) return faults_.report("make a queue");
    auto queue = std::make_unique<FaultyQueue>(faults_, timeline_, sink);
    PENSTOCK_CHECK_OK(queue->open(under_, options));
    return std::unique_ptr<StorageQueue>(std::move(queue));
  }

 private:
  static constexpr std::uint64_t kPageBytes = 4096;

  /// Makes the call unless the fault keeps it from happening; then reports the fault.
  template <class R, class Make>
  R guard(Call call, bool changes, const std::string& what, Make make) {
    if (!faults_.strikes(call, changes)) return make();
    if (faults_.fault.effect == Effect::kFailsDone) {
      const auto made = make();
      if (!made) return made.error();
    }
    return faults_.report(what);
  }
  /// Whether the next call of this kind is to have half its effect.
  [[nodiscard]] bool cut_short(Call call) const {
    return call == faults_.fault.call && faults_.fault.effect == Effect::kFailsDone &&
           faults_.calls + 1 >= faults_.fault.at &&
           faults_.calls + 1 - faults_.fault.at < faults_.fault.repeats;
  }

  Timeline& timeline_;
  Faults faults_;
  std::unordered_map<FileId, std::string> paths_;
};

}  // namespace

std::unique_ptr<FaultyStorage> make_faulty_storage(Storage& storage, Timeline& timeline,
                                                   const CallFault& fault) {
  return std::make_unique<FaultyStorageImpl>(storage, timeline, fault);
}

}  // namespace penstock::testing
