#include "io/io_thread.hpp"

#include <linux/ioprio.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace penstock {

namespace {

constexpr int value_of(int io_class, int level) {
  return io_class << IOPRIO_CLASS_SHIFT | level;
}

constexpr int kRealTime = value_of(IOPRIO_CLASS_RT, 4);
constexpr int kIdle = value_of(IOPRIO_CLASS_IDLE, 0);

/// The kernel's struct sched_attr in its first size, sched_setattr(2); glibc has it from 2.41 on.
struct SchedulingAttributes {
  std::uint32_t size, policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime_ns, deadline_ns, period_ns;
};

/// Asks for short turns: of threads with the same share of a CPU the one with the shorter turn may
/// interrupt the others when it wakes, so that a drive does not stand still while all CPUs compute.
/// It gets no more time by that. Kernels before 6.12 pass it over.
void take_short_turns() noexcept {
  constexpr std::uint64_t kTurnNs = 100'000;  // the kernel's least
  SchedulingAttributes now{};
  if (::syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) != 0 || now.policy != SCHED_OTHER) {
    return;
  }
  now.size = sizeof now;
  now.runtime_ns = kTurnNs;
  (void)::syscall(SYS_sched_setattr, 0, &now, 0);
}

}  // namespace

void settle_io_thread(const IoNode& node) noexcept {
  (void)::pthread_setname_np(::pthread_self(), "penstock-io");
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : node.cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(cpu), &cpus);
  }
  if (CPU_COUNT(&cpus) != 0) (void)::sched_setaffinity(0, sizeof cpus, &cpus);
  take_short_turns();
}

bool set_io_priority(int priority) noexcept {
  return ::syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, priority) == 0;
}

IoPriorities io_priorities() noexcept {
  const long before = ::syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
  if (before < 0) return {};
  const bool may = set_io_priority(kRealTime);
  if (may) set_io_priority(static_cast<int>(before));
  return may ? IoPriorities{kRealTime, 0, 0, 0} : IoPriorities{0, kIdle, kIdle, kIdle};
}

const char* words_of(const IoPriorities& priorities) noexcept {
  if (priorities == IoPriorities{}) return "no priorities";
  return priorities[0] != 0 ? "demands in the real-time class" : "what can wait in the idle class";
}

}  // namespace penstock
