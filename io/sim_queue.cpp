#include "io/sim_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace penstock::sim {

namespace {

constexpr int kPoison = 0xDB;

std::size_t direction(IoOp op) {
  return static_cast<std::size_t>(op);
}

}  // namespace

SimQueue::SimQueue(std::shared_ptr<Drive> drive, CompletionSink& sink, const QueueOptions& options)
    : drive_(std::move(drive)),
      sink_(sink),
      credit_bytes_{options.read_credit_bytes, options.write_credit_bytes},
      lanes_{ClassLanes(links_), ClassLanes(links_)} {
  drive_->queues.push_back(this);
}

SimQueue::~SimQueue() {
  closing_ = true;
  drive_->timeline.cancel(this);
  drop_queued();
  std::vector<std::uint32_t> unfinished;
  for (std::uint32_t i = 0; i < flights_.size(); ++i) {
    if (flights_[i] && !flights_[i]->lost) unfinished.push_back(i);
  }
  std::sort(unfinished.begin(), unfinished.end(), [this](std::uint32_t a, std::uint32_t b) {
    return flights_[a]->order < flights_[b]->order;
  });
  for (const std::uint32_t index : unfinished) {
    while (flights_[index] && !flights_[index]->lost) {
      drive_->timeline.cancel(this);  // retries are made here, not by events
      advance(index);
    }
  }
  drive_->timeline.cancel(this);
  std::erase(drive_->queues, this);
}

Status SimQueue::check(const IoRequest& request, std::size_t position) const {
  const OpenFile* file = drive_->find(request.file);
  if (file == nullptr) {
    return make_error(Errc::kArgument, fmt::format("submit: request {} names file {}, which is not "
                                                   "open in this storage; open it first",
                                                   position, request.file));
  }
  if (request.op == IoOp::kWrite && !file->write) {
    return make_error(Errc::kArgument,
                      fmt::format("submit: request {} writes to \"{}\", which is open for reading "
                                  "only; open it for writing",
                                  position, file->path));
  }
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(request.memory);
  if (request.bytes == 0 || (request.offset_bytes | request.bytes | address) % kPageBytes != 0 ||
      request.memory == nullptr || request.offset_bytes + request.bytes < request.bytes) {
    return make_error(
        Errc::kArgument,
        fmt::format(
            "submit: request {} for \"{}\" (offset {}, {} bytes, address {:#x}) is empty or "
            "not a multiple of {} bytes; align it",
            position, file->path, request.offset_bytes, request.bytes, address, kPageBytes));
  }
  return ok();
}

std::uint32_t SimQueue::take_slot() {
  if (free_.empty()) {
    flights_.emplace_back();
    // Doubling, so that a queue of a crash image costs nothing and a busy one seldom grows.
    links_.resize(flights_.capacity());
    return static_cast<std::uint32_t>(flights_.size() - 1);
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  return index;
}

Status SimQueue::submit(std::span<const IoRequest> requests) noexcept {
  if (closing_) {
    return make_error(Errc::kState, "submit: the queue is shutting down; submit to another one");
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    PENSTOCK_CHECK_OK(check(requests[i], i));
  }
  for (const IoRequest& request : requests) {
    const std::uint32_t index = take_slot();
    auto flight = std::make_unique<Flight>();
    flight->request = request;
    flight->node = drive_->find(request.file)->node;
    flight->path = drive_->find(request.file)->path;
    flight->transfer.op = request.op;
    flight->transfer.bytes = request.bytes;
    flight->submitted_ns = drive_->timeline.now_ns();
    flight->order = next_order_++;
    flights_[index] = std::move(flight);
    ++stats_.in_flight_requests;
    lanes_[direction(request.op)].push(request.io_class, index);
  }
  start_waiting();
  return ok();
}

void SimQueue::start_waiting() {
  for (std::size_t d = 0; d < 2; ++d) {
    for (;;) {
      const std::uint32_t index = lanes_[d].front();
      if (index == kNoIndex) break;
      const std::uint64_t bytes = flights_[index]->request.bytes;
      if (started_bytes_[d] != 0 && started_bytes_[d] + bytes > credit_bytes_[d]) break;
      lanes_[d].pop();
      started_bytes_[d] += bytes;
      start(index);
    }
  }
}

void SimQueue::start(std::uint32_t index) {
  Flight& flight = *flights_[index];
  const IoRequest& request = flight.request;
  flight.started = true;
  flight.lost = drive_->strikes(drive_->faults.lost_completion);
  if (request.op == IoOp::kRead) {
    std::memset(request.memory, kPoison, request.bytes);
  } else {
    flight.pages.reserve(request.bytes / kPageBytes);
    for (std::uint64_t at = 0; at < request.bytes; at += kPageBytes) {
      flight.pages.push_back(make_page(request.memory + at));
    }
  }
  if (flight.lost) return;
  const std::uint64_t delay = drive_->timeline.random() % (drive_->faults.delay_ns_max + 1);
  drive_->timeline.after(delay, Task{&SimQueue::run_event, this, index});
}

void SimQueue::run_event(void* context, std::uint64_t index) {
  static_cast<SimQueue*>(context)->advance(static_cast<std::uint32_t>(index));
}

void SimQueue::advance(std::uint32_t index) {
  Flight& flight = *flights_[index];
  const std::uint32_t shorts_before = flight.transfer.shorts;
  const Verdict verdict = judge(flight.transfer, attempt(flight), kPageBytes);
  stats_.short_transfers += flight.transfer.shorts - shorts_before;
  switch (verdict.move) {
    case NextMove::kDone:
      complete(index, Errc::kOk, 0);
      return;
    case NextMove::kFail:
      complete(index, verdict.code, verdict.sys_errno);
      return;
    case NextMove::kContinue:
    case NextMove::kRetryNow:
    case NextMove::kRetryLater:
      break;
  }
  const std::uint64_t delay = verdict.move == NextMove::kRetryLater
                                  ? retry_pause_ns(flight.transfer.stalled)
                                  : drive_->timeline.random() % (drive_->faults.delay_ns_max + 1);
  drive_->timeline.after(delay, Task{&SimQueue::run_event, this, index});
}

std::int64_t SimQueue::attempt(Flight& flight) {
  Drive& drive = *drive_;
  if (drive.strikes(drive.faults.transient))
    return (drive.timeline.random() & 1) ? -EAGAIN : -EINTR;
  std::uint64_t bytes = flight.transfer.bytes - flight.transfer.done;
  if (bytes > kPageBytes && drive.strikes(drive.faults.short_transfer)) {
    bytes = kPageBytes * (1 + drive.timeline.random() % (bytes / kPageBytes - 1));
  }
  const ChosenAttempts& chosen = drive.faults.chosen;
  const std::uint64_t number = ++drive.totals.attempts[direction(flight.request.op)];
  if (chosen.first != 0 && chosen.op == flight.request.op && number >= chosen.first &&
      number - chosen.first < chosen.count) {
    if (chosen.result <= 0) return chosen.result;
    bytes = std::min(bytes, static_cast<std::uint64_t>(chosen.result));
  }
  return flight.request.op == IoOp::kRead ? attempt_read(flight, bytes)
                                          : attempt_write(flight, bytes);
}

std::int64_t SimQueue::attempt_read(Flight& flight, std::uint64_t bytes) {
  Drive& drive = *drive_;
  if (drive.strikes(drive.faults.read_error, flight.path)) return -EIO;
  std::byte* into = flight.request.memory + flight.transfer.done;
  const std::uint64_t got = flight.node->content.read(
      flight.request.offset_bytes + flight.transfer.done, std::span(into, bytes));
  if (got != 0 && drive.strikes(drive.faults.corrupt_read, flight.path)) {
    const std::uint64_t bit = drive.timeline.random() % (got * 8);
    into[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
  }
  return static_cast<std::int64_t>(got);
}

std::int64_t SimQueue::attempt_write(Flight& flight, std::uint64_t bytes) {
  Drive& drive = *drive_;
  if (drive.strikes(drive.faults.write_error, flight.path)) return -EIO;
  if (drive.strikes(drive.faults.no_space, flight.path)) return -ENOSPC;
  if (drive.strikes(drive.faults.lost_write, flight.path)) return static_cast<std::int64_t>(bytes);
  const bool misdirected = drive.strikes(drive.faults.misdirected_write, flight.path);
  FileContent& content = flight.node->content;
  const std::uint64_t first = flight.transfer.done / kPageBytes;
  const std::uint64_t target = flight.request.offset_bytes / kPageBytes + (misdirected ? 1 : 0);
  if (!misdirected && (target + first) * kPageBytes + bytes > content.bytes()) {
    content.set_length((target + first) * kPageBytes + bytes);
  }
  for (std::uint64_t i = first; i < first + bytes / kPageBytes; ++i) {
    if ((target + i) * kPageBytes >= content.bytes()) break;
    // A caller that changes memory in flight gets the torn mix a real drive would make of it.
    const std::byte* memory = flight.request.memory + i * kPageBytes;
    const bool same = std::memcmp(memory, flight.pages[i]->data(), kPageBytes) == 0;
    content.put_page(target + i, same ? flight.pages[i] : make_page(memory));
  }
  // Booked before the observer looks: what has landed is no longer in flight.
  flight.landed_pages = first + bytes / kPageBytes;
  drive.changed();
  return static_cast<std::int64_t>(bytes);
}

void SimQueue::complete(std::uint32_t index, Errc code, int sys_errno) {
  const std::unique_ptr<Flight> flight = std::move(flights_[index]);
  const IoRequest& request = flight->request;
  free_.push_back(index);
  --stats_.in_flight_requests;
  if (flight->started) started_bytes_[direction(request.op)] -= request.bytes;
  const IoCompletion completion{request.cookie, code, sys_errno, flight->transfer.done,
                                flight->transfer.retries};
  stats_.retries += completion.retries;
  if (code == Errc::kOk) {
    (request.op == IoOp::kRead ? stats_.reads : stats_.writes) += 1;
    (request.op == IoOp::kRead ? stats_.read_bytes : stats_.write_bytes) += request.bytes;
  } else if (code != Errc::kCancelled) {
    ++stats_.errors;
  }
  sink_.io_complete(completion);
  start_waiting();
}

std::size_t SimQueue::drop_queued() noexcept {
  std::vector<std::uint32_t> dropped;
  for (ClassLanes& lanes : lanes_) {
    for (; !lanes.empty(); lanes.pop()) dropped.push_back(lanes.front());
  }
  for (const std::uint32_t index : dropped) complete(index, Errc::kCancelled, 0);
  return dropped.size();
}

Status SimQueue::drain(std::uint64_t timeout_ns) noexcept {
  Timeline& timeline = drive_->timeline;
  const std::uint64_t start_ns = timeline.now_ns();
  while (stats_.in_flight_requests != 0) {
    if (timeline.now_ns() - start_ns >= timeout_ns || !timeline.run_one()) {
      return make_error(
          Errc::kTimeout,
          fmt::format("drain: {} requests are still in flight, the oldest for {} ms; "
                      "their memory stays the drive's",
                      stats_.in_flight_requests, stats().oldest_in_flight_ns / 1'000'000));
    }
  }
  return ok();
}

IoStats SimQueue::stats() const noexcept {
  IoStats stats = stats_;
  const std::uint64_t now = drive_->timeline.now_ns();
  for (const auto& flight : flights_) {
    if (flight)
      stats.oldest_in_flight_ns = std::max(stats.oldest_in_flight_ns, now - flight->submitted_ns);
  }
  return stats;
}

void SimQueue::collect_unfinished(std::vector<UnfinishedWrite>& into) const {
  std::vector<const Flight*> writes;
  for (const auto& flight : flights_) {
    if (flight && flight->started && flight->request.op == IoOp::kWrite)
      writes.push_back(flight.get());
  }
  std::sort(writes.begin(), writes.end(),
            [](const Flight* a, const Flight* b) { return a->order < b->order; });
  for (const Flight* flight : writes) {
    const std::uint64_t done = flight->landed_pages;
    into.push_back({flight->node.get(), flight->request.offset_bytes / kPageBytes + done,
                    std::span(flight->pages).subspan(done)});
  }
}

}  // namespace penstock::sim
