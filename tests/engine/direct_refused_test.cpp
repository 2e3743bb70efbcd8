// A drive that takes no direct I/O costs something, and the log says so, once.

#include "engine/simulated.hpp"
#include "io/forwarding_storage.hpp"

namespace penstock::testing {
namespace {

/// A queue that found out at a transfer that a file takes no direct I/O.
class RefusedQueue final : public ForwardingQueue {
 public:
  using ForwardingQueue::ForwardingQueue;
  [[nodiscard]] IoStats stats() const noexcept override {
    IoStats stats = under_->stats();
    stats.direct_refused = 1;
    return stats;
  }
};

enum class Refused { kNever, kAtOpening, kAtATransfer };

class RefusingStorage final : public ForwardingStorage {
 public:
  RefusingStorage(Storage& under, Refused when) : ForwardingStorage(under), when_(when) {}
  bool is_direct(FileId) const override { return when_ != Refused::kAtOpening; }
  Result<std::unique_ptr<StorageQueue>> make_queue(CompletionSink& sink,
                                                   const QueueOptions& options) override {
    auto queue = ForwardingStorage::make_queue(sink, options);
    if (!queue || when_ != Refused::kAtATransfer) return queue;
    return std::unique_ptr<StorageQueue>(std::make_unique<RefusedQueue>(std::move(queue).value()));
  }

 private:
  Refused when_;
};

/// How many warnings of a run of a few steps speak of it.
std::size_t warnings_of(Refused when) {
  RunSetup setup;
  setup.queue = RunSetup::Queue::kSim;
  setup.threads = 0;
  const ModelSpec model = tiny_model();
  World world(setup);
  std::size_t warnings = 0;
  world.logger =
      Logger(LogLevel::kWarning, [&](LogLevel, const char*, int, std::string_view message) {
        warnings += message.find("direct I/O") != std::string_view::npos ? 1 : 0;
      });
  RefusingStorage storage(*world.storage, when);
  const EngineParts parts = world.parts(setup);
  const EngineParts refusing{storage, parts.executor, parts.communicator, parts.now_ns,
                             parts.logger};
  auto engine = make_engine(refusing, engine_options(setup, model, kSimStore), model);
  EXPECT_TRUE(engine) << engine.error().message;
  if (!engine) return 0;
  const TrainerWeights weights;
  Runner runner(*engine.value(), model, setup, weights);
  const Script script = default_script();
  for (std::uint64_t step = 1; step <= 4; ++step) EXPECT_TRUE(runner.run_step(step, script));
  EXPECT_TRUE(engine.value()->flush());
  return warnings;
}

TEST(DirectRefusedTest, IsOneWarningInARun) {
  EXPECT_EQ(warnings_of(Refused::kNever), 0U);
  EXPECT_EQ(warnings_of(Refused::kAtOpening), 1U);
  EXPECT_EQ(warnings_of(Refused::kAtATransfer), 1U);
}

}  // namespace
}  // namespace penstock::testing
