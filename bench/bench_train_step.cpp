// What a training step costs beside its own matrix products, and what commits cost.
//
//   bench_train_step products [MODEL BATCH SEQ] [ROUNDS]   a step in RAM / its products run alone
//   bench_train_step commit   [MODEL BATCH SEQ] [ROUNDS]   a step at K = 1 / at K = 10
//
// Both sides of a ratio are taken in turn in every round, in one process, on the same buffers; the
// line printed is the median over rounds of the ratio, with both medians. Only ratios mean anything
// on a shared machine. Default: 124M 8 512, 9 rounds. The store lies in a directory of its own
// below the current one and is removed at the end. Start it with OMP_WAIT_POLICY=passive.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "measure/statistics.hpp"
#include "model/named_sizes.hpp"
#include "train/lanes.hpp"
#include "train/run_setup.hpp"
#include "train/trainer.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kVocab = 50257;

struct Arguments {
  std::string mode = "products", model = "124M";
  std::int64_t batch = 8, seq = 512;
  int rounds = 9;
};

/// A model, its engine and one batch of random tokens.
class Bench {
 public:
  Status open(const Arguments& arguments, const std::string& directory, std::uint32_t commit_every,
              bool scratch) {
    PENSTOCK_TRY(config, named_model(arguments.model, "", kVocab), "model");
    PENSTOCK_TRY(parts, make_run_parts({}), "machine");
    parts_ = std::move(parts);
    TransformerOptions options;
    options.config = config;
    options.batch = {1, arguments.batch, arguments.seq};
    options.matmul.threads = static_cast<int>(parts_.threads);
    options.isa = parts_.isa;
    PENSTOCK_TRY(model, Transformer::create(options, *parts_.executor), "model");
    model_ = std::move(model);
    EngineOptions engine_options;
    engine_options.directory = directory;
    engine_options.mode = OpenMode::kCreate;
    engine_options.scratch = scratch;
    engine_options.commit_every = commit_every;
    engine_options.isa = parts_.isa;
    RunResources resources;
    PENSTOCK_TRY(memory, split_memory(resources, *model_, engine_options, ""), "memory");
    engine_options.host_bytes = memory.ram_bytes;
    engine_options.workspace_bytes = memory.workspace_bytes;
    PENSTOCK_TRY(engine, make_engine(parts_.engine_parts({}), engine_options, model_->spec()),
                 "engine");
    engine_ = std::move(engine);
    PENSTOCK_TRY(trainer, Trainer::create(*engine_, *model_, memory.kept_layers), "trainer");
    trainer_ = std::move(trainer);
    const auto count = static_cast<std::size_t>(arguments.batch * arguments.seq);
    for (std::size_t i = 0; i <= count; ++i) {
      tokens_.push_back(static_cast<std::uint32_t>(mix64(1, 2, i) % kVocab));
    }
    return ok();
  }

  Result<double> step() {
    const std::uint64_t start = now_ns();
    const std::span<const std::uint32_t> all(tokens_);
    StepInput input;
    input.hyper.lr = 1e-5;
    input.max_norm = 1.0;
    PENSTOCK_TRY(report,
                 trainer_->step({all.first(all.size() - 1), all.last(all.size() - 1)}, input, {}),
                 "step");
    if (!report.step.applied) return make_error(Errc::kInternal, "a step was not applied");
    return static_cast<double>(now_ns() - start) * 1e-9;
  }

  Result<double> products() {
    const std::uint64_t start = now_ns();
    for (std::size_t i = 0; i < calls_.size();) {
      const MatmulCall& call = calls_[i];
      if (call.lane >= 0) {
        PENSTOCK_TRY(next, products_of_lanes(i), "products");
        i = next;
        continue;
      }
      PENSTOCK_CHECK_OK(model_->matmul().run(call.product, call.a, call.b, call.c));
      ++i;
    }
    return static_cast<double>(now_ns() - start) * 1e-9;
  }

  Status record_products() {
    model_->matmul().record(&calls_);
    const auto status = step();
    model_->matmul().record(nullptr);
    if (!status) return status.error();
    return ok();
  }

 private:
  /// The products of one attention, which its lanes ran side by side; where the next one starts.
  Result<std::size_t> products_of_lanes(std::size_t first) {
    std::size_t end = first;
    while (end < calls_.size() && calls_[end].lane >= 0) ++end;
    Matmul& matmul = model_->matmul();
    const int lanes = matmul.lanes();
    PENSTOCK_CHECK_OK(
        for_lanes(*parts_.executor, lanes, lanes, [&](int, std::int64_t lane) -> Status {
          for (std::size_t i = first; i < end; ++i) {
            const MatmulCall& call = calls_[i];
            if (call.lane != lane) continue;
            PENSTOCK_CHECK_OK(matmul.run_on(call.lane, call.product, call.a, call.b, call.c));
          }
          return ok();
        }));
    return end;
  }

  RunParts parts_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Trainer> trainer_;
  std::vector<std::uint32_t> tokens_;
  std::vector<MatmulCall> calls_;
};

void print(const char* upper, const char* lower, const std::vector<double>& a,
           const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  fmt::print("{} / {} = {:.3f}  ({:.3f} s / {:.3f} s, {} rounds)\n", upper, lower, median(ratios),
             median(a), median(b), a.size());
}

Status compare_products(const Arguments& arguments, const std::string& directory) {
  Bench bench;
  PENSTOCK_CHECK_OK(bench.open(arguments, directory, 0, /*scratch=*/true));
  for (int i = 0; i < 2; ++i) {
    if (const auto warm = bench.step(); !warm) return warm.error();
  }
  PENSTOCK_CHECK_OK(bench.record_products());
  std::vector<double> steps, products;
  for (int round = 0; round < arguments.rounds; ++round) {
    PENSTOCK_TRY(a, bench.step(), "bench");
    PENSTOCK_TRY(b, bench.products(), "bench");
    steps.push_back(a);
    products.push_back(b);
  }
  print("step", "its matrix products", steps, products);
  return ok();
}

Status compare_commits(const Arguments& arguments, const std::string& directory) {
  constexpr std::uint32_t kSteps = 10;
  Bench every, tenth;
  PENSTOCK_CHECK_OK(every.open(arguments, directory + "/every", 1, false));
  PENSTOCK_CHECK_OK(tenth.open(arguments, directory + "/tenth", kSteps, false));
  std::vector<double> a, b;
  for (int round = 0; round <= arguments.rounds; ++round) {
    double sums[2] = {0, 0};
    for (std::uint32_t i = 0; i < kSteps; ++i) {
      PENSTOCK_TRY(x, every.step(), "bench");
      PENSTOCK_TRY(y, tenth.step(), "bench");
      sums[0] += x;
      sums[1] += y;
    }
    if (round == 0) continue;  // loads what is at home in RAM
    a.push_back(sums[0]);
    b.push_back(sums[1]);
  }
  print("ten steps at K = 1", "at K = 10", a, b);
  return ok();
}

int run(const std::vector<std::string>& words) {
  Arguments arguments;
  if (!words.empty()) arguments.mode = words[0];
  if (words.size() >= 4) {
    arguments.model = words[1];
    arguments.batch = std::atoll(words[2].c_str());
    arguments.seq = std::atoll(words[3].c_str());
  }
  if (words.size() >= 5) arguments.rounds = std::max(1, std::atoi(words[4].c_str()));
  if (words.size() == 2) arguments.rounds = std::max(1, std::atoi(words[1].c_str()));
  const std::string directory = fmt::format("bench-train-step-{}", now_ns());
  std::filesystem::create_directory(directory);
  const Status status = arguments.mode == "commit" ? compare_commits(arguments, directory)
                                                   : compare_products(arguments, directory);
  std::filesystem::remove_all(directory);
  if (!status) fmt::print(stderr, "bench: {}\n", status.error().message);
  return status ? 0 : 1;
}

}  // namespace
}  // namespace penstock

int main(int count, char** words) {
  return penstock::run({words + 1, words + count});
}
