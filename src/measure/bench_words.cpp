#include "measure/bench_words.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.hpp"
#include "measure/io_cases.hpp"
#include "measure/mem_cases.hpp"

namespace penstock {
namespace {

constexpr double kBillion = 1e9;
constexpr double kStateBytes = 12.0;   // hi, lo, m and v of a parameter, each way
constexpr double kUpdateBytes = 26.0;  // of memory that an update moves: these, and a gradient

class Words {
 public:
  explicit Words(const BenchReport& report) : report_(report) {}

  std::vector<std::string> all() {
    drives();
    step();
    pipeline();
    latency();
    small_tensors();
    memory();
    setup();
    return std::move(lines_);
  }

 private:
  /// The median rate of a row; 0: not measured.
  [[nodiscard]] double rate(std::string_view name) const {
    const BenchRow* const row = report_.find(name);
    return row == nullptr ? 0.0 : row->bytes_per_second.median;
  }
  [[nodiscard]] double ratio(std::string_view name, std::string_view to) const {
    const BenchRow* const row = report_.find(name);
    if (row == nullptr) return 0.0;
    for (const BenchRatio& one : row->ratios) {
      if (one.to == to) return one.ratio.median;
    }
    return 0.0;
  }
  [[nodiscard]] double memory_rate() const {
    return rate(mem_row_name(kLoopUpdate, kLevelMemory, report_.threads));
  }
  [[nodiscard]] std::string drives_text() const {
    return report_.targets.size() == 1 ? std::string("The drive") : std::string("The drives");
  }
  void say(std::string line) { lines_.push_back(std::move(line)); }

  void drives() {
    const double read = rate(kRowRead), write = rate(kRowWrite), mix = rate(kRowMix);
    if (read <= 0.0 || write <= 0.0) return;
    std::string line = fmt::format("{} can read {} and write {}", drives_text(), format_rate(read),
                                   format_rate(write));
    if (mix > 0.0) {
      line += fmt::format("; doing both at once, {} in all", format_rate(mix));
      const double model = ratio(kRowMix, "reads and writes in turn");
      if (model > 0.0) {
        line += model < 1.2 ? ", so reads and writes take from each other"
                            : ", so reads and writes partly go side by side";
      }
    }
    say(line + ".");
    if (report_.first_write_bytes_per_second > 0.0) {
      const double share = report_.first_write_bytes_per_second / write;
      say(
          fmt::format("First writes to a new file ran at {} ({:.0f} % of rewriting it), so the "
                      "first steps of a new store may be slower than later ones.",
                      format_rate(report_.first_write_bytes_per_second), 100.0 * share));
    }
  }

  void step() {
    const double read = rate(kRowRead), write = rate(kRowWrite);
    if (read <= 0.0 || write <= 0.0) return;
    const double drive_seconds = kStateBytes * kBillion * (1.0 / read + 1.0 / write);
    std::string line = fmt::format(
        "A step that streams 1B parameters moves 12 GB each way: at least {:.1f} s by {}",
        drive_seconds, report_.targets.size() == 1 ? "this drive" : "these drives");
    if (const double memory = memory_rate(); memory > 0.0) {
      const double memory_seconds = kUpdateBytes * kBillion / memory;
      line +=
          fmt::format(", and {:.1f} s of memory traffic for the update ({})", memory_seconds,
                      drive_seconds > memory_seconds ? "the drive limits it" : "memory limits it");
    }
    say(line + ".");
  }

  void pipeline() {
    const double pipeline = rate(kRowPipeline), update = rate(kRowUpdate);
    const double model = ratio(kRowPipeline, "the slower of drive and update");
    if (pipeline <= 0.0 || update <= 0.0 || model <= 0.0) return;
    const double drive = harmonic_rate(0.5, rate(kRowRead), rate(kRowWrite));
    say(
        fmt::format("Reading, updating and writing together reach {:.0f} % of what the {} alone "
                    "allows; the update by itself does {}.",
                    100.0 * model, drive < update ? "drive" : "processor", format_rate(update)));
  }

  void latency() {
    const BenchRow* const idle = report_.find(kRowDemandIdle);
    const BenchRow* const load = report_.find(kRowDemandLoad);
    if (idle == nullptr || load == nullptr) return;
    say(
        fmt::format("A read that something waits for takes {:.1f} ms (p99 {:.1f} ms) alone, and "
                    "{:.1f} ms (p99 {:.1f} ms) while the queue is full of writes and reads ahead.",
                    idle->p50_ns.median * 1e-6, idle->p99_ns.median * 1e-6,
                    load->p50_ns.median * 1e-6, load->p99_ns.median * 1e-6));
  }

  void small_tensors() {
    const double packed = rate(kRowSmallRead), each = rate(kRowSmallEach);
    if (packed <= 0.0 || each <= 0.0) return;
    say(fmt::format("Small tensors are read at {} as the store packs them, and at {} one by one.",
                    format_rate(packed), format_rate(each)));
  }

  void memory() {
    const double one = rate(mem_row_name(kLoopUpdate, kLevelMemory, 1));
    const double all = memory_rate();
    if (one <= 0.0 || all <= 0.0) return;
    if (report_.threads == 1) {
      say(fmt::format("Memory moves {} in an update's pattern.", format_rate(one)));
      return;
    }
    say(fmt::format("Memory moves {} in an update's pattern with one thread and {} with {}.",
                    format_rate(one), format_rate(all), report_.threads));
  }

  void setup() {
    if (report_.buffer_bytes > report_.huge_buffer_bytes) {
      say(
          fmt::format("The buffers got 4 KiB pages instead of huge ones ({} of {} are huge): "
                      "drives then transfer more slowly and cost more processor time.",
                      format_bytes(report_.huge_buffer_bytes), format_bytes(report_.buffer_bytes)));
    }
    if (report_.queue == "threads") {
      say(fmt::format("The drive is reached with threads instead of io_uring: {}.",
                      report_.queue_reason));
    }
  }

  const BenchReport& report_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> bench_words(const BenchReport& report) {
  return Words(report).all();
}

}  // namespace penstock
