#include "capi/status.hpp"

#include <algorithm>
#include <cstring>

namespace penstock::capi {
namespace {

struct ThreadState {
  char message[2048] = {};
  int callbacks = 0;  // nested ones
};

ThreadState& thread_state() noexcept {
  thread_local ThreadState state;  // trivially destroyed: usable until the thread is gone
  return state;
}

}  // namespace

penstock_status fail(Errc code, std::string_view message) noexcept {
  if (message.empty()) message = "failed without a message; please report it";
  char* to = thread_state().message;
  const std::size_t count = std::min(message.size(), sizeof(ThreadState::message) - 1);
  std::memcpy(to, message.data(), count);
  to[count] = '\0';
  return static_cast<penstock_status>(code);
}

void clear_message() noexcept {
  thread_state().message[0] = '\0';
}

const char* last_message() noexcept {
  return thread_state().message;
}

CallbackScope::CallbackScope() noexcept {
  ++thread_state().callbacks;
}
CallbackScope::~CallbackScope() {
  --thread_state().callbacks;
}
bool in_callback() noexcept {
  return thread_state().callbacks > 0;
}

}  // namespace penstock::capi
