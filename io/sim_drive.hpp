#pragma once

/// What the simulated storage and its queues share: the tree, open files, faults, the observer.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "io/sim_files.hpp"
#include "io/sim_storage.hpp"

namespace penstock::sim {

class SimQueue;

struct OpenFile {
  NodePtr node;  // null once closed
  std::string path;
  bool write = false;
};

/// A name in a directory, whether or not it exists.
struct Place {
  NodePtr directory, node;  // node is null when there is nothing of that name
  std::string name;
};

/// The Error of a failed call on a path: "<what> \"<path>\" (simulated): <errno text>; <advice>".
Error failure(Errc code, std::string_view what, std::string_view path, int error,
              std::string_view advice);

struct Drive {
  Drive(Timeline& timeline_in, const SimFaults& faults_in)
      : timeline(timeline_in), faults(faults_in), root(std::make_shared<Node>()) {
    root->is_directory = true;
  }

  /// The open file of an id, or null.
  [[nodiscard]] const OpenFile* find(FileId file) const {
    return file != 0 && file <= open.size() && open[file - 1].node ? &open[file - 1] : nullptr;
  }

  // Paths begin at the root, whether or not they start with a slash.
  [[nodiscard]] NodePtr find_node(const std::string& path) const;  // null when there is none
  [[nodiscard]] Result<Place> place(const std::string& path, std::string_view what) const;
  [[nodiscard]] Result<NodePtr> find_file(const std::string& path, std::string_view what) const;
  [[nodiscard]] Result<NodePtr> find_directory(const std::string& path,
                                               std::string_view what) const;

  /// Draws whether a fault of this probability strikes; draws nothing when it cannot.
  bool strikes(std::uint32_t probability) {
    return probability != 0 && (timeline.random() & 0xFFFFU) < probability;
  }

  /// The same for a fault of a certain file.
  bool strikes(std::uint32_t probability, std::string_view path) {
    return path.starts_with(faults.only_in) && strikes(probability);
  }

  /// Tells the observer that the drive has changed.
  void changed() {
    ++operations;
    if (observer) observer(operations);
  }

  Timeline& timeline;
  SimFaults faults;
  NodePtr root;
  std::vector<OpenFile> open;  // FileId - 1
  std::vector<SimQueue*> queues;
  SimStorage::Observer observer;
  std::uint64_t operations = 0;
  SimStorage::Totals totals;
};

}  // namespace penstock::sim
