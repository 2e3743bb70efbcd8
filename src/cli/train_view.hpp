#pragma once

/// Shows a training: lines for people on standard error, or one JSON object a line on standard
/// output ("schema": "penstock.train/1", "event": note | start | step | eval | copy | end).
/// Threads: one.

#include <string>

#include "cli/console.hpp"
#include "train/run.hpp"

namespace penstock {

class TrainView final : public TrainObserver {
 public:
  /// `endurance_bytes`: what the drives are rated for, 0: not given.
  TrainView(Console& console, std::uint64_t endurance_bytes)
      : console_(console), endurance_bytes_(endurance_bytes) {}

  void on_note(std::string_view sentence) override;
  void on_start(const RunStart& start) override;
  void on_step(const StepLine& line) override;
  void on_eval(const EvalLine& line) override;
  void on_copy(const CopyLine& line) override;
  void on_end(const RunEnd& end) override;

  /// What on_end() reported; all zero before.
  [[nodiscard]] const RunEnd& end() const { return end_; }

 private:
  void show_wear(const RunEnd& end);

  Console& console_;
  std::uint64_t endurance_bytes_;
  RunEnd end_;
};

/// "step 120/1000  loss 3.2100  41200 tok/s  nvme read 1.4 GB/s  93 % of bound  eta 12:05".
[[nodiscard]] std::string step_text(const StepLine& line);

}  // namespace penstock
