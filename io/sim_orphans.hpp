#pragma once

/// Writes of a killed process, which the simulated drive still carries out.
///
/// Invariant: a file that was locked stays locked, by nobody who could unlock it, while a write to
/// it is outstanding. Threads: that of the timeline.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/timeline.hpp"
#include "io/sim_files.hpp"

namespace penstock::sim {

class Orphans {
 public:
  explicit Orphans(Timeline& timeline) : timeline_(timeline) {}
  ~Orphans() { timeline_.cancel(this); }
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  /// `locked`: the dead process held the file's lock.
  void add(NodePtr node, bool locked, std::uint64_t first_page, std::vector<Page> pages,
           std::uint64_t delay_ns);
  [[nodiscard]] std::size_t left() const { return left_; }

 private:
  struct Write {
    NodePtr node;
    std::uint64_t first_page = 0;
    std::vector<Page> pages;
  };
  static void land(void* self, std::uint64_t index);

  Timeline& timeline_;
  std::vector<Write> writes_;
  std::size_t left_ = 0;
};

}  // namespace penstock::sim
