#include "io/queue_backends.hpp"

#include <algorithm>

#include "io/node_queue.hpp"

namespace penstock {

namespace {

Result<std::unique_ptr<StorageQueue>> make_one(const std::shared_ptr<PosixFileTable>& files,
                                               CompletionSink& sink, const QueueOptions& options) {
  if (options.backend == QueueBackend::kThreads) {
    return make_thread_queue(files, sink, options, "the options ask for threads");
  }
  auto queue = make_uring_queue(files, sink, options);
  if (queue || options.backend == QueueBackend::kUring) return queue;
  const std::string reason = std::move(queue).error().message;
  // The figures are those of measure/check_uring.cpp.
  return make_thread_queue(files, sink, options, reason,
                           "threads read and write instead of io_uring, for twice the CPU time in "
                           "transfers of 1 MiB: " +
                               reason);
}

}  // namespace

Result<std::unique_ptr<StorageQueue>> make_posix_queue(std::shared_ptr<PosixFileTable> files,
                                                       CompletionSink& sink,
                                                       const QueueOptions& options) {
  if (options.nodes.size() < 2) return make_one(files, sink, options);
  std::vector<std::unique_ptr<StorageQueue>> queues;
  for (const IoNode& node : options.nodes) {
    QueueOptions own = options;
    own.nodes = {node};
    own.drives = static_cast<std::uint32_t>(std::max<std::size_t>(node.drives.size(), 1));
    PENSTOCK_TAKE(queue, make_one(files, sink, own));
    queues.push_back(std::move(queue));
  }
  return join_queues(std::move(files), options.nodes, std::move(queues));
}

}  // namespace penstock
