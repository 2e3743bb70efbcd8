// One meeting at a time, all under Group::mutex.
//   * A rank arrives by storing its call; the last to arrive does the work on everybody's buffers,
//     which their callers keep still by waiting, and opens the next meeting.
//   * calls[r].arrived  if and only if  rank r waits in the current meeting; arrivals = their
//   number.
//   * failure is set once and never cleared; then no rank waits and no buffer is touched any more.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "comm/communicator.hpp"

namespace penstock {
namespace {

enum class Operation : std::uint8_t { kSum, kOr, kBarrier, kBroadcast };

const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::kSum:
      return "all_reduce_sum_fp64";
    case Operation::kOr:
      return "all_reduce_or";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kBroadcast:
      return "broadcast";
  }
  return "unknown operation";
}

struct Call {
  Operation operation = Operation::kBarrier;
  void* data = nullptr;
  std::size_t count = 0;
  int root = 0;
  bool arrived = false;

  [[nodiscard]] bool matches(const Call& other) const {
    return operation == other.operation && count == other.count && root == other.root;
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("{} of {} elements from root {}", name_of(operation), count, root);
  }
};

class Group {
 public:
  explicit Group(int size)
      : calls_(static_cast<std::size_t>(size)), left_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] int size() const noexcept { return static_cast<int>(calls_.size()); }

  Status meet(int rank, const Call& call, std::uint64_t deadline_ns);
  void leave(int rank);

 private:
  void work();
  void reduce_sum();
  void reduce_or();
  void broadcast();
  void fail(Error error);
  [[nodiscard]] std::string missing_ranks() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;  // by rank
  std::vector<bool> left_;   // by rank
  std::size_t arrivals_ = 0;
  std::uint64_t meeting_ = 0;
  std::optional<Error> failure_;
};

std::string Group::missing_ranks() const {
  std::string text;
  for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
    if (!calls_[rank].arrived) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  }
  return text;
}

void Group::fail(Error error) {
  if (!failure_) failure_ = std::move(error);
  changed_.notify_all();
}

Status Group::meet(int rank, const Call& call, std::uint64_t deadline_ns) {
  std::unique_lock lock(mutex_);
  if (failure_) return *failure_;
  const auto gone = std::find(left_.begin(), left_.end(), true);
  if (gone != left_.end()) {
    fail(make_error(Errc::kCancelled,
                    fmt::format("{} on rank {} of {}: rank {} has left the group; restart from the "
                                "last commit",
                                name_of(call.operation), rank, size(), gone - left_.begin())));
    return *failure_;
  }
  for (std::size_t other = 0; other < calls_.size(); ++other) {
    if (calls_[other].arrived && !calls_[other].matches(call)) {
      fail(
          make_error(Errc::kState,
                     fmt::format("rank {} calls {} while rank {} calls {}; all ranks must make the "
                                 "same calls in the same order",
                                 rank, call.text(), other, calls_[other].text())));
      return *failure_;
    }
  }

  Call& mine = calls_[static_cast<std::size_t>(rank)];
  mine = call;
  mine.arrived = true;
  if (++arrivals_ == calls_.size()) {
    work();
    for (Call& each : calls_) each.arrived = false;
    arrivals_ = 0;
    ++meeting_;
    changed_.notify_all();
    return ok();
  }

  const std::uint64_t meeting = meeting_;
  const std::chrono::steady_clock::time_point deadline{std::chrono::nanoseconds(
      std::min<std::uint64_t>(deadline_ns, std::numeric_limits<std::int64_t>::max()))};
  const bool in_time = changed_.wait_until(
      lock, deadline, [&] { return meeting_ != meeting || failure_.has_value(); });
  if (meeting_ != meeting) return ok();  // a failure of a later meeting is not ours
  if (!in_time) {
    fail(
        make_error(Errc::kTimeout,
                   fmt::format("{} on rank {} of {}: rank {} has not come by the deadline; look at "
                               "its log, then restart from the last commit",
                               name_of(call.operation), rank, size(), missing_ranks())));
  }
  return *failure_;
}

void Group::work() {
  switch (calls_.front().operation) {
    case Operation::kSum:
      return reduce_sum();
    case Operation::kOr:
      return reduce_or();
    case Operation::kBroadcast:
      return broadcast();
    case Operation::kBarrier:
      return;
  }
}

void Group::reduce_sum() {
  for (std::size_t i = 0; i < calls_.front().count; ++i) {
    double sum = static_cast<const double*>(calls_.front().data)[i];
    for (std::size_t rank = 1; rank < calls_.size(); ++rank) {
      sum += static_cast<const double*>(calls_[rank].data)[i];
    }
    for (const Call& call : calls_) static_cast<double*>(call.data)[i] = sum;
  }
}

void Group::reduce_or() {
  for (std::size_t i = 0; i < calls_.front().count; ++i) {
    std::uint64_t bits = 0;
    for (const Call& call : calls_) bits |= static_cast<const std::uint64_t*>(call.data)[i];
    for (const Call& call : calls_) static_cast<std::uint64_t*>(call.data)[i] = bits;
  }
}

void Group::broadcast() {
  const Call& root = calls_[static_cast<std::size_t>(calls_.front().root)];
  if (root.count == 0) return;
  for (const Call& call : calls_) {
    if (call.data != root.data) std::memcpy(call.data, root.data, root.count);
  }
}

void Group::leave(int rank) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  if (arrivals_ == 0) return;  // nobody waits: whoever calls next is told
  fail(make_error(Errc::kCancelled,
                  fmt::format("rank {} of {} has left the group while others wait for it; restart "
                              "from the last commit",
                              rank, size())));
}

class InProcessCommunicator final : public Communicator {
 public:
  // Shared: ranks may die in any order, the group with the last of them.
  InProcessCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~InProcessCommunicator() override { group_->leave(rank_); }
  InProcessCommunicator(const InProcessCommunicator&) = delete;
  InProcessCommunicator& operator=(const InProcessCommunicator&) = delete;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return group_->size(); }

  Status all_reduce_sum_fp64(std::span<double> values, std::uint64_t deadline_ns) override {
    return group_->meet(rank_, Call{Operation::kSum, values.data(), values.size()}, deadline_ns);
  }

  Status all_reduce_or(std::span<std::uint64_t> words, std::uint64_t deadline_ns) override {
    return group_->meet(rank_, Call{Operation::kOr, words.data(), words.size()}, deadline_ns);
  }

  Status barrier(std::uint64_t deadline_ns) override {
    return group_->meet(rank_, Call{}, deadline_ns);
  }

  Status broadcast(std::span<std::byte> bytes, int root, std::uint64_t deadline_ns) override {
    if (root < 0 || root >= size()) {
      return make_error(
          Errc::kArgument,
          fmt::format("broadcast from root {}: the group has ranks 0 to {}", root, size() - 1));
    }
    return group_->meet(rank_, Call{Operation::kBroadcast, bytes.data(), bytes.size(), root},
                        deadline_ns);
  }

 private:
  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_in_process_group(int size) {
  const auto group = std::make_shared<Group>(std::max(size, 1));
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < group->size(); ++rank) {
    ranks.push_back(std::make_unique<InProcessCommunicator>(group, rank));
  }
  return ranks;
}

}  // namespace penstock
