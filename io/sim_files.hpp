#pragma once

/// Files and directories of a simulated drive: what is durable, and what a power loss may take.
///
/// File invariants
///   1. A read sees the newest cached version of a page, else the durable one (zeros once the file
///      has been truncated), and nothing behind the length.
///   2. sync() makes the cache durable; a page whose sync failed ("doomed") stays readable but only
///      a new write can make it durable, as on Linux.
///   3. Pages are immutable and shared between worlds, so a crash image costs pointers, not bytes.
/// Directory invariants
///   4. current == durable + log, in order. A power loss keeps durable + a prefix of the log.
/// Threads: one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/section.hpp"

namespace penstock::sim {

using PageBytes = std::array<std::byte, kPageBytes>;
using Page = std::shared_ptr<const PageBytes>;  // shared by worlds and by writes in flight

/// A page holding these kPageBytes.
Page make_page(const std::byte* bytes);

/// Seeded draws of one power loss.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() noexcept;
  /// Uniform in [0, count); 0 for count 0.
  std::uint64_t below(std::uint64_t count) noexcept { return count == 0 ? 0 : next() % count; }

 private:
  std::uint64_t state_;
};

/// Whether each of a set of pages lands: none of them, all, or a random share.
class LandingMood {
 public:
  explicit LandingMood(Draw& draw);
  [[nodiscard]] bool lands(Draw& draw) const noexcept {
    return share_ == 0 ? false : share_ == 8 ? true : draw.below(8) < share_;
  }

 private:
  std::uint64_t share_;  // in eighths
};

class FileContent {
 public:
  FileContent() : lengths_(1, 0) {}

  [[nodiscard]] std::uint64_t bytes() const { return lengths_.back(); }
  /// Reads what the length allows; returns how much that is.
  std::uint64_t read(std::uint64_t offset_bytes, std::span<std::byte> into) const;
  /// Writes into the cache and extends the length where needed; any alignment.
  void write(std::uint64_t offset_bytes, std::span<const std::byte> from);
  /// A whole page into the cache; does not extend.
  void put_page(std::uint64_t index, Page page);
  void set_length(std::uint64_t bytes);

  void sync();
  void sync_failed();
  void flip_bit(std::uint64_t bit);

  /// What the drive holds of this file after a power loss.
  [[nodiscard]] FileContent after_power_loss(Draw& draw) const;
  /// A page straight into the durable bytes (a write in flight that landed); never extends.
  void land_durable(std::uint64_t index, const Page& page);

  /// Calls visit(index, version, page) for all content, in order.
  template <class Visit>
  void visit_pages(Visit&& visit) const {
    for (std::size_t i = 0; i < durable_.size(); ++i) {
      if (durable_[i]) visit(i, 0, *durable_[i]);
    }
    for (const auto& [index, cached] : cached_) {
      visit(index, 1, *cached.newest);
      if (cached.older) visit(index, 2, *cached.older);
      if (cached.doomed) visit(index, 3, *cached.newest);
    }
  }
  [[nodiscard]] const std::vector<std::uint64_t>& lengths() const { return lengths_; }

 private:
  struct Cached {
    Page newest, older;  // a drive may have written the older version and not the newest
    bool doomed = false;
  };
  [[nodiscard]] const PageBytes* find(std::uint64_t index) const;
  void set_durable(std::uint64_t index, Page page);

  std::vector<Page> durable_;  // a null page is all zero
  std::map<std::uint64_t, Cached> cached_;
  std::vector<std::uint64_t> lengths_;  // [0] durable, then each change since the last sync
};

struct Node;
using NodePtr = std::shared_ptr<Node>;  // shared by directory versions and open files

struct DirectoryOp {
  std::string remove, add;  // either may be empty; both: a rename
  NodePtr node;
};

struct Node {
  bool is_directory = false;
  FileContent content;
  std::map<std::string, NodePtr> durable, current;
  std::vector<DirectoryOp> log;
  std::uint32_t locked_by = 0;  // FileId of the holder; 0: nobody

  void change(DirectoryOp op);
  void sync_directory();
};

/// A write that the simulated drive has been given but has not finished.
struct UnfinishedWrite {
  const Node* node = nullptr;
  std::uint64_t first_page = 0;
  std::span<const Page> pages;
};

/// The tree that survives, with everything in it durable.
NodePtr tree_after_power_loss(const Node& root, std::span<const UnfinishedWrite> unfinished,
                              Draw& draw);

/// A copy of the tree as it is, caches and logs included; `copies` maps old nodes to new ones.
NodePtr clone_tree(const Node& root, std::unordered_map<const Node*, NodePtr>& copies);

/// Digest of a tree: names, lengths, durable and cached content, logs.
std::uint64_t tree_digest(const Node& root);

/// Sum of the lengths of all files reachable from `root`.
std::uint64_t tree_bytes(const Node& root);

}  // namespace penstock::sim
