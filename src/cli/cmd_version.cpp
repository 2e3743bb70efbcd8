#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/compiler.hpp"
#include "cli/command.hpp"
#include "kernels/cpu/isa.hpp"

namespace penstock {
namespace {

class VersionCommand final : public Command {
 public:
  [[nodiscard]] std::string name() const override { return "version"; }
  [[nodiscard]] std::string summary() const override { return "The program, its build, this CPU"; }
  void declare(Flags&) override {}

  Result<ExitCode> run(Console& console) override {
    const Result<Isa> isa = choose_isa();
    if (!isa) return isa.error();
    if (console.json()) {
      const nlohmann::json value = {{"schema", "penstock.version/1"},
                                    {"version", PENSTOCK_VERSION_TEXT},
                                    {"compiler", kCompiler},
                                    {"build_type", PENSTOCK_BUILD_TYPE_TEXT},
                                    {"sanitizers", PENSTOCK_SANITIZERS_TEXT},
                                    {"cuda", PENSTOCK_CUDA_TEXT},
                                    {"isa", isa_name(isa.value())}};
      console.data(value.dump());
      return ExitCode::kOk;
    }
    console.data(fmt::format("penstock {}", PENSTOCK_VERSION_TEXT));
    console.data(fmt::format("  compiler    {}", kCompiler));
    console.data(fmt::format("  build       {}, sanitizers: {}", PENSTOCK_BUILD_TYPE_TEXT,
                             PENSTOCK_SANITIZERS_TEXT));
    console.data(fmt::format("  cuda        {}", PENSTOCK_CUDA_TEXT));
    console.data(fmt::format("  kernels     {}", isa_name(isa.value())));
    return ExitCode::kOk;
  }
};

}  // namespace

std::unique_ptr<Command> make_version_command() {
  return std::make_unique<VersionCommand>();
}

}  // namespace penstock
