#pragma once

/// What the simulated storage and its queues share: the tree, open files, faults, the observer.

#include <string>
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

struct Drive {
  Drive(Timeline& timeline_in, const SimFaults& faults_in)
      : timeline(timeline_in), faults(faults_in), root(std::make_shared<Node>()) {
    root->is_directory = true;
  }

  /// The open file of an id, or null.
  [[nodiscard]] const OpenFile* find(FileId file) const {
    return file != 0 && file <= open.size() && open[file - 1].node ? &open[file - 1] : nullptr;
  }

  /// Draws whether a fault of this probability strikes; draws nothing when it cannot.
  bool strikes(std::uint32_t probability) {
    return probability != 0 && (timeline.random() & 0xFFFFU) < probability;
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
  std::uint64_t syncs = 0;
};

}  // namespace penstock::sim
