#pragma once

/// Tells the process that made an object from a child that it forked.
///
/// A child has a copy of the object but none of its threads, and shares its open files: waiting
/// would never end, and writing would spoil what the parent writes. So objects with threads or
/// files ask this first, before any lock, which another thread may have held at the fork.
/// Threads: any.

#include <unistd.h>

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace penstock {

class HomeProcess {
 public:
  [[nodiscard]] bool is_here() const noexcept { return ::getpid() == pid_; }

  /// kState in a forked child; `what` is "the engine".
  [[nodiscard]] Status check(std::string_view what) const {
    if (is_here()) return ok();
    return make_error(Errc::kState,
                      std::string(what) + " belongs to process " + std::to_string(pid_) +
                          ", from which this one was forked; use it there, or open one here once "
                          "that process has ended");
  }

 private:
  pid_t pid_ = ::getpid();
};

}  // namespace penstock
