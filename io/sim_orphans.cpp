#include "io/sim_orphans.hpp"

#include <algorithm>
#include <utility>

namespace penstock::sim {
namespace {

constexpr std::uint32_t kDeadProcess = ~std::uint32_t{0};

}  // namespace

void Orphans::add(NodePtr node, bool locked, std::uint64_t first_page, std::vector<Page> pages,
                  std::uint64_t delay_ns) {
  if (locked) node->locked_by = kDeadProcess;
  writes_.push_back({std::move(node), first_page, std::move(pages)});
  ++left_;
  timeline_.after(delay_ns, Task{&Orphans::land, this, writes_.size() - 1});
}

void Orphans::land(void* self, std::uint64_t index) {
  Orphans& orphans = *static_cast<Orphans*>(self);
  Write& write = orphans.writes_[index];
  Node& node = *write.node;
  for (std::size_t i = 0; i < write.pages.size(); ++i) {
    const std::uint64_t page = write.first_page + i;
    if (page * kPageBytes < node.content.bytes()) node.content.put_page(page, write.pages[i]);
  }
  write.pages.clear();
  --orphans.left_;
  const bool last = std::none_of(
      orphans.writes_.begin(), orphans.writes_.end(),
      [&](const Write& other) { return !other.pages.empty() && other.node == write.node; });
  if (last && node.locked_by == kDeadProcess) node.locked_by = 0;
}

}  // namespace penstock::sim
