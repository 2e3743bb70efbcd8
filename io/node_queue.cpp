#include "io/node_queue.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "io/request_book.hpp"

namespace penstock {

namespace {

class NodeQueue final : public StorageQueue {
 public:
  NodeQueue(std::shared_ptr<PosixFileTable> files, std::vector<IoNode> nodes,
            std::vector<std::unique_ptr<StorageQueue>> queues)
      : files_(std::move(files)), nodes_(std::move(nodes)), queues_(std::move(queues)) {}

  Status submit(std::span<const IoRequest> requests) noexcept override {
    // All are looked at before any is handed on, so that a bad one refuses the batch.
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const PosixFilePtr file = files_->find(requests[i].file);
      PENSTOCK_CHECK_OK(check_request(requests[i], file.get(), i));
    }
    for (std::size_t first = 0; first < requests.size();) {
      const std::size_t node = node_of(requests[first].file);
      std::size_t end = first + 1;
      while (end < requests.size() && node_of(requests[end].file) == node) ++end;
      PENSTOCK_CHECK_OK(queues_[node]->submit(requests.subspan(first, end - first)));
      first = end;
    }
    return ok();
  }

  std::size_t drop_queued() noexcept override {
    std::size_t dropped = 0;
    for (const auto& queue : queues_) dropped += queue->drop_queued();
    return dropped;
  }

  Status drain(std::uint64_t timeout_ns) noexcept override {
    const std::uint64_t start = steady_now_ns();
    for (const auto& queue : queues_) {
      const std::uint64_t spent = steady_now_ns() - start;
      PENSTOCK_CHECK_OK(queue->drain(timeout_ns - std::min(spent, timeout_ns)));
    }
    return ok();
  }

  IoStats stats() const noexcept override {
    IoStats all;
    for (const auto& queue : queues_) {
      const IoStats one = queue->stats();
      all.reads += one.reads;
      all.writes += one.writes;
      all.read_bytes += one.read_bytes;
      all.write_bytes += one.write_bytes;
      all.retries += one.retries;
      all.short_transfers += one.short_transfers;
      all.errors += one.errors;
      all.direct_refused += one.direct_refused;
      all.in_flight_requests += one.in_flight_requests;
      all.oldest_in_flight_ns = std::max(all.oldest_in_flight_ns, one.oldest_in_flight_ns);
    }
    return all;
  }

  std::size_t drive_stats(std::span<DriveStats> into) const noexcept override {
    std::size_t count = 0;
    for (const auto& queue : queues_) {
      count += queue->drive_stats(into.subspan(std::min(count, into.size())));
    }
    return count;
  }

  std::string backend() const override { return queues_.front()->backend(); }
  std::string backend_reason() const override {
    return fmt::format("{}, {} I/O threads, one for each NUMA node with drives",
                       queues_.front()->backend_reason(), queues_.size());
  }
  std::string shortfall() const override {  // the same limits hold for all of them
    for (const auto& queue : queues_) {
      if (std::string text = queue->shortfall(); !text.empty()) return text;
    }
    return {};
  }

 private:
  [[nodiscard]] std::size_t node_of(FileId id) const {
    const PosixFilePtr file = files_->find(id);
    for (std::size_t i = 1; file && i < nodes_.size(); ++i) {
      const std::vector<std::uint64_t>& drives = nodes_[i].drives;
      if (std::find(drives.begin(), drives.end(), file->drive()) != drives.end()) return i;
    }
    return 0;
  }

  std::shared_ptr<PosixFileTable> files_;
  std::vector<IoNode> nodes_;
  std::vector<std::unique_ptr<StorageQueue>> queues_;
};

}  // namespace

std::unique_ptr<StorageQueue> join_queues(std::shared_ptr<PosixFileTable> files,
                                          std::vector<IoNode> nodes,
                                          std::vector<std::unique_ptr<StorageQueue>> queues) {
  return std::make_unique<NodeQueue>(std::move(files), std::move(nodes), std::move(queues));
}

}  // namespace penstock
