#include "io/sim_files.hpp"

#include <algorithm>
#include <cstring>

namespace penstock::sim {

namespace {

constexpr PageBytes kZeroPage{};

std::uint64_t pages_of(std::uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes;
}

}  // namespace

Page make_page(const std::byte* bytes) {
  auto page = std::make_shared_for_overwrite<PageBytes>();
  std::memcpy(page->data(), bytes, kPageBytes);
  return page;
}

const PageBytes* FileContent::find(std::uint64_t index) const {
  if (!cached_.empty()) {
    if (const auto it = cached_.find(index); it != cached_.end()) return it->second.newest.get();
  }
  if (index >= durable_.size() || !durable_[index]) return &kZeroPage;
  return durable_[index].get();
}

std::uint64_t FileContent::read(std::uint64_t offset_bytes, std::span<std::byte> into) const {
  if (offset_bytes >= bytes()) return 0;
  const std::uint64_t count = std::min<std::uint64_t>(into.size(), bytes() - offset_bytes);
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t at = offset_bytes + done, inside = at % kPageBytes;
    const std::uint64_t part = std::min(count - done, kPageBytes - inside);
    std::memcpy(into.data() + done, find(at / kPageBytes)->data() + inside, part);
    done += part;
  }
  return count;
}

void FileContent::write(std::uint64_t offset_bytes, std::span<const std::byte> from) {
  if (from.empty()) return;
  if (offset_bytes + from.size() > bytes()) set_length(offset_bytes + from.size());
  for (std::uint64_t done = 0; done < from.size();) {
    const std::uint64_t at = offset_bytes + done, inside = at % kPageBytes;
    const std::uint64_t part = std::min<std::uint64_t>(from.size() - done, kPageBytes - inside);
    if (part == kPageBytes) {
      put_page(at / kPageBytes, make_page(from.data() + done));
    } else {
      PageBytes merged = *find(at / kPageBytes);
      std::memcpy(merged.data() + inside, from.data() + done, part);
      put_page(at / kPageBytes, make_page(merged.data()));
    }
    done += part;
  }
}

void FileContent::put_page(std::uint64_t index, Page page) {
  Cached& cached = cached_[index];
  cached.older = cached.doomed ? nullptr : std::move(cached.newest);
  cached.newest = std::move(page);
  cached.doomed = false;
}

void FileContent::set_length(std::uint64_t bytes) {
  if (bytes != this->bytes()) lengths_.push_back(bytes);
}

void FileContent::set_durable(std::uint64_t index, Page page) {
  if (index >= durable_.size()) durable_.resize(index + 1);
  durable_[index] = std::move(page);
}

void FileContent::sync() {
  const std::uint64_t pages = pages_of(bytes());
  for (auto it = cached_.begin(); it != cached_.end();) {
    if (it->second.doomed) {
      ++it;
      continue;
    }
    if (it->first < pages) set_durable(it->first, std::move(it->second.newest));
    it = cached_.erase(it);
  }
  if (durable_.size() > pages) durable_.resize(pages);
  lengths_.assign(1, bytes());
}

void FileContent::sync_failed() {
  for (auto& [index, cached] : cached_) {
    cached.doomed = true;
    cached.older = nullptr;
  }
}

void FileContent::flip_bit(std::uint64_t bit) {
  const std::uint64_t byte = bit / 8, index = byte / kPageBytes;
  const auto flipped = [&](const PageBytes& page) {
    PageBytes copy = page;
    copy[byte % kPageBytes] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
    return make_page(copy.data());
  };
  const bool has_durable = index < durable_.size() && durable_[index];
  set_durable(index, flipped(has_durable ? *durable_[index] : kZeroPage));
  if (const auto it = cached_.find(index); it != cached_.end()) {
    it->second.newest = flipped(*it->second.newest);
    if (it->second.older) it->second.older = flipped(*it->second.older);
  }
}

FileContent FileContent::after_power_loss(Draw& draw) const {
  FileContent image;
  image.lengths_[0] = lengths_[draw.below(lengths_.size())];
  image.durable_ = durable_;
  if (!cached_.empty()) {
    const LandingMood mood(draw);
    for (const auto& [index, cached] : cached_) {
      if (cached.doomed || !mood.lands(draw)) continue;
      const bool older = cached.older && draw.below(4) == 0;
      image.land_durable(index, older ? cached.older : cached.newest);
    }
  }
  const std::uint64_t pages = pages_of(image.bytes());
  if (image.durable_.size() > pages) image.durable_.resize(pages);
  return image;
}

void FileContent::land_durable(std::uint64_t index, const Page& page) {
  if (index < pages_of(bytes())) set_durable(index, page);
}

void Node::change(DirectoryOp op) {
  if (!op.remove.empty()) current.erase(op.remove);
  if (!op.add.empty()) current[op.add] = op.node;
  log.push_back(std::move(op));
}

void Node::sync_directory() {
  durable = current;
  log.clear();
}

}  // namespace penstock::sim
