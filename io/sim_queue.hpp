#pragma once

/// The queue of a simulated drive: completions are timeline events after random delays.
///
/// A request is read or written at the moment its event runs, in one go or, when a short transfer
/// strikes, in parts. Until then a read's memory is poisoned and a write's pages may land in a
/// power loss. Destruction finishes what is in flight at once; a request whose completion was lost
/// is given up. Threads: that of the timeline.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/class_lanes.hpp"
#include "io/sim_drive.hpp"
#include "io/transfer_rules.hpp"

namespace penstock::sim {

class SimQueue : public StorageQueue {
 public:
  SimQueue(std::shared_ptr<Drive> drive, CompletionSink& sink, const QueueOptions& options);
  ~SimQueue() override;
  SimQueue(const SimQueue&) = delete;
  SimQueue& operator=(const SimQueue&) = delete;

  Status submit(std::span<const IoRequest> requests) noexcept override;
  std::size_t drop_queued() noexcept override;
  Status drain(std::uint64_t timeout_ns) noexcept override;
  [[nodiscard]] IoStats stats() const noexcept override;
  [[nodiscard]] std::string backend() const override { return "simulated"; }
  [[nodiscard]] std::string backend_reason() const override {
    return "the storage is a simulation";
  }

  /// Appends the writes the drive has been given but not finished, in order of submission.
  void collect_unfinished(std::vector<UnfinishedWrite>& into) const;

 private:
  struct Flight {
    IoRequest request;
    NodePtr node;
    std::string path;
    Transfer transfer;
    std::vector<Page> pages;  // of a write, as they were at submission
    std::uint64_t landed_pages = 0;
    std::uint64_t submitted_ns = 0;
    std::uint64_t order = 0;
    bool started = false;  // the drive has it
    bool lost = false;     // its completion never comes
  };

  static void run_event(void* context, std::uint64_t index);
  Status check(const IoRequest& request, std::size_t position) const;
  void start_waiting();
  void start(std::uint32_t index);
  void advance(std::uint32_t index);
  std::int64_t attempt(Flight& flight);
  std::int64_t attempt_read(Flight& flight, std::uint64_t bytes);
  std::int64_t attempt_write(Flight& flight, std::uint64_t bytes);
  void complete(std::uint32_t index, Errc code, int sys_errno);
  std::uint32_t take_slot();

  // Declared in this order: the drive outlives everything that refers to it.
  std::shared_ptr<Drive> drive_;  // the storage may be destroyed before its queues
  CompletionSink& sink_;
  std::uint64_t credit_bytes_[2];  // by IoOp
  std::uint64_t started_bytes_[2] = {0, 0};
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> links_;  // of the lanes, by index of a flight
  ClassLanes lanes_[2];
  std::uint64_t next_order_ = 0;
  bool closing_ = false;
  IoStats stats_;
};

}  // namespace penstock::sim
