// What is left of a simulated drive when the power goes or the process dies, and damage on demand.

#include <cerrno>
#include <unordered_map>

#include "io/sim_storage_impl.hpp"

namespace penstock::sim {

std::unique_ptr<SimStorage> SimStorageImpl::after_power_loss(Timeline& timeline,
                                                             std::uint64_t seed) const {
  SimFaults faults;
  faults.delay_ns_max = drive_->faults.delay_ns_max;
  faults.capacity_bytes = drive_->faults.capacity_bytes;
  auto world = std::make_unique<SimStorageImpl>(timeline, faults);
  std::vector<UnfinishedWrite> unfinished;
  for (const SimQueue* queue : drive_->queues) queue->collect_unfinished(unfinished);
  Draw draw(seed);
  world->drive_->root = tree_after_power_loss(*drive_->root, unfinished, draw);
  return world;
}

std::unique_ptr<SimStorage> SimStorageImpl::after_kill(Timeline& timeline) const {
  SimFaults faults;
  faults.delay_ns_max = drive_->faults.delay_ns_max;
  faults.capacity_bytes = drive_->faults.capacity_bytes;
  auto world = std::make_unique<SimStorageImpl>(timeline, faults);
  std::unordered_map<const Node*, NodePtr> copies;
  world->drive_->root = clone_tree(*drive_->root, copies);
  world->orphans_ = std::make_unique<Orphans>(timeline);
  std::vector<UnfinishedWrite> unfinished;
  for (const SimQueue* queue : drive_->queues) queue->collect_unfinished(unfinished);
  for (const UnfinishedWrite& write : unfinished) {
    const auto copy = copies.find(write.node);
    if (copy == copies.end() || write.pages.empty()) continue;  // a file without a name is gone
    const std::uint64_t delay = timeline.random() % (faults.delay_ns_max + 1);
    world->orphans_->add(copy->second, write.node->locked_by != 0, write.first_page,
                         {write.pages.begin(), write.pages.end()}, delay);
  }
  return world;
}

Status SimStorageImpl::flip_bit(const std::string& path, std::uint64_t bit) {
  auto node = drive_->find_file(path, "flip a bit of");
  if (!node) return std::move(node).error();
  if (bit / 8 >= node.value()->content.bytes()) {
    return failure(Errc::kArgument, "flip a bit of", path, EINVAL, "the bit is behind its end");
  }
  node.value()->content.flip_bit(bit);
  return ok();
}

}  // namespace penstock::sim
