#include "cli/command.hpp"

namespace penstock {

std::vector<std::unique_ptr<Command>> make_commands() {
  std::vector<std::unique_ptr<Command>> commands;
#ifdef PENSTOCK_HAVE_TRAINER
  commands.push_back(make_train_command());
  commands.push_back(make_generate_command());
#endif
  commands.push_back(make_inspect_command());
  commands.push_back(make_scrub_command());
  commands.push_back(make_export_command());
  commands.push_back(make_checkpoint_command());
  commands.push_back(make_clean_command());
  commands.push_back(make_doctor_command());
  commands.push_back(make_bench_command());
  commands.push_back(make_tune_command());
  commands.push_back(make_version_command());
  return commands;
}

}  // namespace penstock
