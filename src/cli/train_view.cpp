#include "cli/train_view.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/json_line.hpp"
#include "cli/wear_view.hpp"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "penstock.train/1";

// JSON has no NaN and no infinity.
json number(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto all = static_cast<std::uint64_t>(std::min(seconds, 1e9));
  const std::uint64_t hours = all / 3600;
  const std::uint64_t minutes = all / 60 % 60;
  return hours != 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, all % 60)
                    : fmt::format("{}:{:02}", minutes, all % 60);
}

}  // namespace

std::string step_text(const StepLine& line) {
  std::string text = fmt::format("step {}/{}  loss {:.4f}  {:.0f} tok/s", line.step, line.steps,
                                 line.loss, line.tokens_per_second);
  for (const TierRate& rate : line.rates) {
    text += fmt::format("  {} {}", rate.tier, format_rate(rate.bytes_per_second));
  }
  if (line.percent_of_bound > 0) text += fmt::format("  {:.0f} % of bound", line.percent_of_bound);
  text += fmt::format("  eta {}", clock_text(line.seconds_left));
  return line.applied ? text : text + "  skipped: gradient not finite";
}

void TrainView::on_note(std::string_view sentence) {
  if (console_.json()) {
    console_.data(json_line({{"schema", kSchema}, {"event", "note"}, {"text", sentence}}));
  } else {
    console_.note(sentence);
  }
}

void TrainView::on_start(const RunStart& start) {
  if (console_.json()) {
    console_.data(json_line({{"schema", kSchema},
                             {"event", "start"},
                             {"model", start.model},
                             {"family", start.family},
                             {"parameters", start.parameters},
                             {"state_bytes", start.state_bytes},
                             {"ram_bytes", start.ram_bytes},
                             {"data", start.data},
                             {"data_kind", start.data_kind},
                             {"vocab", start.vocab},
                             {"train_tokens", start.train_tokens},
                             {"held_out_tokens", start.held_out_tokens},
                             {"bigram_nats", start.bigram_nats},
                             {"first_step", start.first_step},
                             {"steps", start.steps},
                             {"threads", start.threads},
                             {"scratch", start.scratch},
                             {"planned_write_bytes", start.planned_write_bytes},
                             {"queue", start.queue},
                             {"profile", start.profile},
                             {"drive_read_bytes_per_second", number(start.read_bytes_per_second)},
                             {"drive_write_bytes_per_second", number(start.write_bytes_per_second)},
                             {"isa", start.isa},
                             {"plan", start.plan}}));
    return;
  }
  console_.note(fmt::format("model  {} ({}), {} parameters, {} of state, {} of RAM", start.model,
                            start.family, start.parameters, format_bytes(start.state_bytes),
                            format_bytes(start.ram_bytes)));
  console_.note(fmt::format("data   {} ({}, vocabulary {}), {} tokens, {} of them held out",
                            start.data, start.data_kind, start.vocab,
                            start.train_tokens + start.held_out_tokens, start.held_out_tokens));
  if (start.bigram_nats > 0) {
    console_.note(fmt::format("       counting pairs of bytes would reach a loss of {:.3f}",
                              start.bigram_nats));
  }
  console_.note(
      fmt::format("run    {} threads, {} kernels, {}", start.threads, start.isa, start.queue));
  if (!start.profile.empty()) console_.note(fmt::format("tuned  by {}", start.profile));
  if (!start.plan.empty()) console_.note(fmt::format("plan   {}", start.plan));
  if (endurance_bytes_ > 0) {
    const std::uint64_t steps = start.steps - std::min(start.steps, start.first_step);
    console_.note(fmt::format("wear   {} a step by the plan, {} in {} steps{}",
                              format_drive_bytes(start.planned_write_bytes),
                              format_drive_bytes(start.planned_write_bytes * steps), steps,
                              endurance_text(start.planned_write_bytes * steps, endurance_bytes_)));
  }
  if (start.first_step > 0) {
    console_.note(fmt::format("resumed after step {} of {}", start.first_step, start.steps));
  }
  if (start.scratch) console_.warn("--scratch: nothing is committed, a crash loses the run");
}

void TrainView::on_step(const StepLine& line) {
  if (!console_.json()) {
    console_.live(step_text(line));
    return;
  }
  json rates = json::object();
  for (const TierRate& rate : line.rates) rates[rate.tier] = number(rate.bytes_per_second);
  console_.data(json_line({{"schema", kSchema},
                           {"event", "step"},
                           {"step", line.step},
                           {"steps", line.steps},
                           {"loss", number(line.loss)},
                           {"lr", number(line.lr)},
                           {"norm", number(line.norm)},
                           {"clip", number(line.clip)},
                           {"applied", line.applied},
                           {"seconds", number(line.seconds)},
                           {"tokens_per_second", number(line.tokens_per_second)},
                           {"bytes_per_second", rates},
                           {"compute_seconds", number(line.compute_seconds)},
                           {"percent_of_bound", number(line.percent_of_bound)},
                           {"percent_of_late_bound", number(line.percent_of_late_bound)},
                           {"data_index", line.data_index},
                           {"committed_step", line.committed_step}}));
}

void TrainView::on_eval(const EvalLine& line) {
  if (console_.json()) {
    console_.data(json_line({{"schema", kSchema},
                             {"event", "eval"},
                             {"step", line.step},
                             {"loss", number(line.loss)},
                             {"tokens", line.tokens}}));
  } else {
    console_.note(fmt::format("eval   step {}: held-out loss {:.4f} over {} tokens", line.step,
                              line.loss, line.tokens));
  }
}

void TrainView::on_copy(const CopyLine& line) {
  if (console_.json()) {
    console_.data(
        json_line({{"schema", kSchema},
                   {"event", "copy"},
                   {"step", line.step},
                   {"directory", line.directory},
                   {"failure", line.failure.empty() ? json(nullptr) : json(line.failure)}}));
  } else if (line.failure.empty()) {
    console_.note(fmt::format("copy   step {} in {}", line.step, line.directory));
  } else {
    console_.warn(
        fmt::format("no copy of step {} in {}: {}", line.step, line.directory, line.failure));
  }
}

void TrainView::on_end(const RunEnd& end) {
  end_ = end;
  console_.finish_live();
  const std::uint64_t written = end.written_bytes + end.first_written_bytes;
  if (console_.json()) {
    console_.data(json_line(
        {{"schema", kSchema},
         {"event", "end"},
         {"step", end.step},
         {"committed_step", end.committed_step},
         {"stopped", end.stopped},
         {"seconds", number(end.seconds)},
         {"held_out_loss", number(end.held_out_loss)},
         {"steps", end.steps},
         {"written_bytes", end.written_bytes},
         {"first_written_bytes", end.first_written_bytes},
         {"endurance_used", endurance_json(written, endurance_bytes_)},
         {"lifetime", lifetime_json(end.lifetime, end.directories, end.step, endurance_bytes_)},
         {"drives", drives_json(end.wear)},
         {"wear_notes", end.wear.notes},
         {"hash", end.hash}}));
    return;
  }
  console_.note(fmt::format("{} after step {} in {}, committed step {}",
                            end.stopped ? "stopped" : "done", end.step, clock_text(end.seconds),
                            end.committed_step));
  show_wear(end);
  if (!end.hash.empty()) console_.note(fmt::format("hash   {}", end.hash));
}

void TrainView::show_wear(const RunEnd& end) {
  const std::uint64_t written = end.written_bytes + end.first_written_bytes;
  std::string text = fmt::format("wear   {} written", format_drive_bytes(written));
  if (end.steps > 0) {
    text += fmt::format(", {} a step", format_drive_bytes(end.written_bytes / end.steps));
  }
  console_.note(text + endurance_text(written, endurance_bytes_));
  if (end.lifetime) {
    for (const std::string& line :
         lifetime_lines(*end.lifetime, end.directories, endurance_bytes_)) {
      console_.note(fmt::format("       {}", line));
    }
  }
  for (const std::string& line : wear_lines(end.wear)) {
    console_.note(fmt::format("       {}", line));
  }
}

}  // namespace penstock
