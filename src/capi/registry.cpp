// Invariants
//   * objects holds exactly the handles that were published and not yet taken.
//   * Numbers grow and are never used again in one process or its children.
//   * The table is never destroyed: threads may still call while the process exits, and a forked
//     child must not run destructors that wait for its parent's threads.

#include "capi/registry.hpp"

#include <pthread.h>
#include <unistd.h>

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "capi/status.hpp"

namespace penstock::capi {
namespace {

constexpr std::uint64_t kKindBits = 4;

struct Entry {
  std::shared_ptr<Object> object;
  pid_t process = 0;
};

struct Registry {
  std::mutex mutex;
  std::map<std::uint64_t, Entry> objects;
  std::uint64_t next = 1;
};

union Immortal {
  Immortal() : registry() {}
  ~Immortal() {}
  Immortal(const Immortal&) = delete;
  Immortal& operator=(const Immortal&) = delete;
  Registry registry;
};

Registry& unlocked_registry() {
  static Immortal immortal;
  return immortal.registry;
}

Registry& registry() {
  // A fork while another thread is in the table must not leave the child's copy locked for ever.
  static const int registered = ::pthread_atfork([] { unlocked_registry().mutex.lock(); },
                                                 [] { unlocked_registry().mutex.unlock(); },
                                                 [] { unlocked_registry().mutex.unlock(); });
  (void)registered;
  return unlocked_registry();
}

const char* name_of(HandleKind kind) {
  return kind == HandleKind::kEngine ? "engine" : "pool";
}

Result<std::map<std::uint64_t, Entry>::iterator> look_up(Registry& table, const void* handle,
                                                         HandleKind kind) {
  const char* name = name_of(kind);
  if (in_callback()) {
    return wrong_state(
        fmt::format("the {} was used inside a callback; return from the callback first", name));
  }
  if (handle == nullptr) {
    return argument(fmt::format("the handle is NULL; create the {} first", name));
  }
  const std::uint64_t number = reinterpret_cast<std::uintptr_t>(handle);
  const auto found = table.objects.find(number);
  if (found == table.objects.end()) {
    return wrong_state(fmt::format(
        "the handle is not that of a live {}; was it destroyed, or is it something else?", name));
  }
  const std::uint64_t kind_here = number & ((1U << kKindBits) - 1);
  if (kind_here != static_cast<std::uint64_t>(kind)) {
    return argument(fmt::format("the handle is that of a{} {}, not of a{} {}",
                                kind == HandleKind::kEngine ? "" : "n",
                                kind == HandleKind::kEngine ? "pool" : "engine",
                                kind == HandleKind::kEngine ? "n" : "", name));
  }
  if (found->second.process != ::getpid()) {
    return wrong_state(
        fmt::format("the {} belongs to process {}, from which this one was forked; "
                    "create one here",
                    name, found->second.process));
  }
  return found;
}

}  // namespace

std::uint64_t new_handle(HandleKind kind) {
  Registry& table = registry();
  const std::lock_guard lock(table.mutex);
  return table.next++ << kKindBits | static_cast<std::uint64_t>(kind);
}

void publish(std::uint64_t handle, std::shared_ptr<Object> object) {
  Registry& table = registry();
  const std::lock_guard lock(table.mutex);
  table.objects[handle] = {std::move(object), ::getpid()};
}

Result<std::shared_ptr<Object>> find_object(const void* handle, HandleKind kind) {
  Registry& table = registry();
  const std::lock_guard lock(table.mutex);
  auto found = look_up(table, handle, kind);
  if (!found) return std::move(found).error();
  return found.value()->second.object;
}

Result<std::shared_ptr<Object>> take_object(const void* handle, HandleKind kind) {
  Registry& table = registry();
  const std::lock_guard lock(table.mutex);
  auto found = look_up(table, handle, kind);
  if (!found) return std::move(found).error();
  std::shared_ptr<Object> object = std::move(found.value()->second.object);
  table.objects.erase(found.value());
  return object;
}

}  // namespace penstock::capi
