// Power loss and digests of a simulated drive's tree.

#include <unordered_set>

#include <xxhash.h>

#include "io/sim_files.hpp"

namespace penstock::sim {

std::uint64_t Draw::next() noexcept {  // SplitMix64
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

LandingMood::LandingMood(Draw& draw) {
  // Nothing and everything are as likely as a tear: both find bugs that the middle hides.
  const std::uint64_t kind = draw.below(4);
  share_ = kind == 0 ? 0 : kind == 1 ? 8 : 1 + draw.below(7);
}

namespace {

class Survivors {
 public:
  Survivors(std::span<const UnfinishedWrite> unfinished, Draw& draw)
      : unfinished_(unfinished), draw_(draw) {}

  NodePtr copy(const Node& node) {
    if (const auto it = copies_.find(&node); it != copies_.end()) return it->second;
    auto image = std::make_shared<Node>();
    copies_.emplace(&node, image);
    image->is_directory = node.is_directory;
    if (node.is_directory) {
      copy_directory(node, *image);
    } else {
      copy_file(node, *image);
    }
    return image;
  }

 private:
  void copy_file(const Node& node, Node& image) {
    image.content = node.content.after_power_loss(draw_);
    for (const UnfinishedWrite& write : unfinished_) {
      if (write.node != &node) continue;
      const LandingMood mood(draw_);
      for (std::size_t i = 0; i < write.pages.size(); ++i) {
        if (mood.lands(draw_)) image.content.land_durable(write.first_page + i, write.pages[i]);
      }
    }
  }

  void copy_directory(const Node& node, Node& image) {
    std::map<std::string, NodePtr> names = node.durable;
    const std::uint64_t kept = draw_.below(node.log.size() + 1);
    for (std::uint64_t i = 0; i < kept; ++i) {
      const DirectoryOp& op = node.log[i];
      if (!op.remove.empty()) names.erase(op.remove);
      if (!op.add.empty()) names[op.add] = op.node;
    }
    for (const auto& [name, child] : names) image.durable.emplace(name, copy(*child));
    image.current = image.durable;
  }

  std::span<const UnfinishedWrite> unfinished_;
  Draw& draw_;
  std::unordered_map<const Node*, NodePtr> copies_;  // a node may have two names after a rename
};

class TreeHash {
 public:
  void add(const void* bytes, std::size_t count) {
    digest_ = XXH3_64bits_withSeed(bytes, count, digest_);
  }
  void add(std::uint64_t number) { add(&number, sizeof number); }
  void add(const std::string& text) {
    add(text.size());
    add(text.data(), text.size());
  }

  void node(const Node& node) {
    if (!node.is_directory) {
      for (const std::uint64_t length : node.content.lengths()) add(length);
      node.content.visit_pages([this](std::uint64_t index, int version, const PageBytes& page) {
        add(index);
        add(static_cast<std::uint64_t>(version));
        add(page.data(), page.size());
      });
      return;
    }
    names(node.durable);
    names(node.current);
    for (const DirectoryOp& op : node.log) {
      add(op.remove);
      add(op.add);
    }
  }

  [[nodiscard]] std::uint64_t digest() const { return digest_; }

 private:
  void names(const std::map<std::string, NodePtr>& entries) {
    add(entries.size());
    for (const auto& [name, child] : entries) {
      add(name);
      node(*child);
    }
  }
  std::uint64_t digest_ = 0;
};

std::uint64_t add_bytes(const Node& node, std::unordered_set<const Node*>& seen) {
  if (!seen.insert(&node).second) return 0;
  if (!node.is_directory) return node.content.bytes();
  std::uint64_t sum = 0;
  for (const auto& [name, child] : node.current) sum += add_bytes(*child, seen);
  return sum;
}

}  // namespace

NodePtr tree_after_power_loss(const Node& root, std::span<const UnfinishedWrite> unfinished,
                              Draw& draw) {
  return Survivors(unfinished, draw).copy(root);
}

NodePtr clone_tree(const Node& root, std::unordered_map<const Node*, NodePtr>& copies) {
  if (const auto it = copies.find(&root); it != copies.end()) return it->second;
  auto copy = std::make_shared<Node>();
  copies.emplace(&root, copy);
  copy->is_directory = root.is_directory;
  copy->content = root.content;
  for (const auto& [name, child] : root.durable) {
    copy->durable.emplace(name, clone_tree(*child, copies));
  }
  for (const auto& [name, child] : root.current) {
    copy->current.emplace(name, clone_tree(*child, copies));
  }
  for (const DirectoryOp& op : root.log) {
    copy->log.push_back({op.remove, op.add, op.node ? clone_tree(*op.node, copies) : nullptr});
  }
  return copy;
}

std::uint64_t tree_digest(const Node& root) {
  TreeHash hash;
  hash.node(root);
  return hash.digest();
}

std::uint64_t tree_bytes(const Node& root) {
  std::unordered_set<const Node*> seen;
  return add_bytes(root, seen);
}

}  // namespace penstock::sim
