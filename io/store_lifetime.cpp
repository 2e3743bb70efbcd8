#include "io/store_lifetime.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {

std::uint64_t LifetimeBytes::total() const {
  return std::accumulate(written.begin(), written.end(), std::uint64_t{0});
}

LifetimeCounter::LifetimeCounter(const Storage& storage, const StoreDirectories& directories)
    : storage_(&storage), directories_(directories.all()) {
  for (const std::string& directory : directories_) {
    start_.push_back(storage.counted_bytes(directory));
  }
}

void LifetimeCounter::begin_life() {
  const bool counted = std::all_of(start_.begin(), start_.end(),
                                   [](const auto& bytes) { return bytes.has_value(); });
  if (!counted) return;
  known_ = LifetimeBytes{std::vector<std::uint64_t>(directories_.size(), 0), true};
}

void LifetimeCounter::know(const LifetimeBytes& record) {
  if (!known_) {
    known_ = record;
    return;
  }
  if (known_->written.size() != record.written.size()) return;
  for (std::size_t i = 0; i < record.written.size(); ++i) {
    known_->written[i] = std::max(known_->written[i], record.written[i]);
  }
  known_->is_complete = known_->is_complete && record.is_complete;
}

std::optional<LifetimeBytes> LifetimeCounter::read() const {
  std::optional<LifetimeBytes> now = known_;
  if (now && has_gap_) now->is_complete = false;
  if (storage_ == nullptr) return now;
  for (std::size_t i = 0; i < directories_.size(); ++i) {
    const auto counted = storage_->counted_bytes(directories_[i]);
    if (!counted || !start_[i]) {
      if (now) now->is_complete = false;
      continue;
    }
    if (!now) now = LifetimeBytes{std::vector<std::uint64_t>(directories_.size(), 0), false};
    now->written[i] += *counted - *start_[i];
  }
  return now;
}

}  // namespace penstock
