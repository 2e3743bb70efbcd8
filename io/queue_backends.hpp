#pragma once

/// The queues over real files, and which of them is used.

#include <memory>
#include <string>

#include "io/posix_file.hpp"

namespace penstock {

/// A pool of threads that call pread and pwrite. `reason` is what backend_reason() says, and, where
/// they are not what was wanted, `shortfall` what that says.
Result<std::unique_ptr<StorageQueue>> make_thread_queue(std::shared_ptr<PosixFileTable> files,
                                                        CompletionSink& sink,
                                                        const QueueOptions& options,
                                                        std::string reason,
                                                        std::string shortfall = {});

/// One thread that owns one io_uring. kUnsupported, with cause and remedy, when the kernel refuses.
Result<std::unique_ptr<StorageQueue>> make_uring_queue(std::shared_ptr<PosixFileTable> files,
                                                       CompletionSink& sink,
                                                       const QueueOptions& options);

/// The one `options` ask for; kAuto: io_uring, or threads with the reason.
Result<std::unique_ptr<StorageQueue>> make_posix_queue(std::shared_ptr<PosixFileTable> files,
                                                       CompletionSink& sink,
                                                       const QueueOptions& options);

}  // namespace penstock
