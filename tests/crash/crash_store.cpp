// The little training whose disk is taken away, and the judge of what is left.
//
// usage: crash_store run DIRECTORY CONTROL STEPS QUEUE K [FAULT|deadline=SECONDS]
//          trains on real files; before a step and after a commit it writes "mark begun N" and
//          "mark acknowledged N" to CONTROL. FAULT breaks a rule of the commit protocol. What ends
//          the run early is printed at once.
//        crash_store check DIRECTORY ACKNOWLEDGED BEGUN STEPS K [go-on]
//          ACKNOWLEDGED -1: perhaps there is no store. Prints what it found; exit 1 when that is
//          not the state of a commit between the two. go-on: trains to the end and checks again.

#include <cstdio>
#include <fstream>
#include <string>

#include "engine/simulated.hpp"

namespace penstock::testing {
namespace {

Script script_of(std::uint64_t steps) {
  Script script;
  script.steps.assign(steps, StepKind::kNormal);
  return script;
}

Setup setup_of(const std::string& queue, std::uint32_t commit_every) {
  Setup setup;
  setup.queue = queue == "uring" ? Setup::Queue::kUring : Setup::Queue::kThreads;
  setup.commit_every = commit_every;
  setup.budget_percent = commit_every > 1 ? 60 : 0;
  return setup;
}

int complain(const std::string& what) {
  std::printf("%s\n", what.c_str());
  return 1;
}

bool break_rule(const std::string& name, ProtocolFaults& faults) {
  if (name == "skip_data_flush") faults.skip_data_flush = true;
  if (name == "reuse_slot_early") faults.reuse_slot_early = true;
  if (name == "overwrite_base") faults.overwrite_base = true;
  if (name == "late_blob") faults.late_blob = true;
  if (name == "skip_directory_sync") faults.skip_directory_sync = true;
  return faults.skip_data_flush || faults.reuse_slot_early || faults.overwrite_base ||
         faults.late_blob || faults.skip_directory_sync;
}

/// From wherever the store is to the last step; `said` gets what happens.
template <class Say>
Status train(const Setup& setup, const std::string& directory, const Script& script, Say said,
             std::uint64_t deadline_ns = 0) {
  const ModelSpec model = tiny_model(setup.level);
  World world(setup);
  EngineOptions options = engine_options(setup, model, directory);
  if (deadline_ns != 0) options.deadline_ns = deadline_ns;
  PENSTOCK_TAKE(engine, make_engine(world.parts(setup), options, model));
  const TrainerWeights none;
  Runner runner(*engine, model, setup, none);
  std::uint64_t acknowledged = engine->committed_step();
  said("acknowledged", acknowledged);
  for (std::uint64_t step = engine->step() + 1; step <= script.steps.size(); ++step) {
    said("begun", step);
    if (Status done = runner.run_step(step, script); !done) {
      // Now, and not when the engine has waited for what is still in flight.
      std::printf("step %llu: %s\n", static_cast<unsigned long long>(step),
                  done.error().message.c_str());
      std::fflush(stdout);
      return done;
    }
    if (engine->committed_step() == acknowledged) continue;
    acknowledged = engine->committed_step();
    said("acknowledged", acknowledged);
  }
  PENSTOCK_CHECK_OK(engine->flush());
  said("acknowledged", engine->committed_step());
  return ok();
}

int run(const std::vector<std::string>& words) {
  Setup setup = setup_of(words[4], static_cast<std::uint32_t>(std::stoul(words[5])));
  constexpr std::string_view kDeadline = "deadline=";
  std::uint64_t deadline_ns = 0;
  if (words.size() > 6 && words[6].starts_with(kDeadline)) {
    deadline_ns = std::stoull(words[6].substr(kDeadline.size())) * 1'000'000'000;
  } else if (words.size() > 6 && !break_rule(words[6], setup.protocol_faults)) {
    return complain("no such fault: " + words[6]);
  }
  const Status trained = train(
      setup, words[1], script_of(std::stoull(words[3])),
      [&](const char* what, std::uint64_t step) {
        std::ofstream control(words[2]);
        control << "mark " << what << " " << step << std::flush;
      },
      deadline_ns);
  return trained ? 0 : complain(trained.error().message);
}

int check(const std::vector<std::string>& words) {
  const std::int64_t acknowledged = std::stoll(words[2]);
  const std::uint64_t begun = std::stoull(words[3]);
  const Script script = script_of(std::stoull(words[4]));
  const Setup setup = setup_of("threads", static_cast<std::uint32_t>(std::stoul(words[5])));
  const Reference reference(tiny_model(), script, setup.seed);
  auto storage = make_posix_storage();
  auto content = content_of(*storage, words[1]);
  if (!content) {
    const bool none = acknowledged < 0 && content.error().code == Errc::kState;
    if (!none) return complain(content.error().message);
    std::printf("no store\n");
  } else {
    const std::uint64_t step = content.value().step;
    if (static_cast<std::int64_t>(step) < acknowledged || step > begun) {
      return complain("step " + std::to_string(step) + ", acknowledged " + words[2] + ", begun " +
                      words[3]);
    }
    if (content.value().hash != expected_hash(reference, step)) {
      return complain("another hash at step " + std::to_string(step));
    }
    std::printf("step %llu\n", static_cast<unsigned long long>(step));
  }
  if (words.size() <= 6) return 0;
  const Status trained = train(setup, words[1], script, [](const char*, std::uint64_t) {});
  if (!trained) return complain("going on: " + trained.error().message);
  content = content_of(*storage, words[1]);
  if (!content) return complain("at the end: " + content.error().message);
  const bool same = content.value().step == script.steps.size() &&
                    content.value().hash == expected_hash(reference, script.steps.size());
  return same ? 0 : complain("another hash at the end");
}

}  // namespace
}  // namespace penstock::testing

int main(int count, char** texts) {
  const std::vector<std::string> words(texts + 1, texts + count);
  if (words.size() >= 6 && words[0] == "run") return penstock::testing::run(words);
  if (words.size() >= 6 && words[0] == "check") return penstock::testing::check(words);
  std::fprintf(stderr, "usage: crash_store run|check DIRECTORY ...\n");
  return 2;
}
