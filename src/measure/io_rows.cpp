#include <algorithm>
#include <string_view>

#include "measure/io_cases.hpp"

namespace penstock {
namespace {

using Rounds = std::vector<RoundFigures>;

const Rounds* rounds_of(const std::vector<BenchCase>& cases, const RoundResults& results,
                        std::string_view name) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].row.name == name) return &results.figures[i];
  }
  return nullptr;
}

std::vector<double> rates_of(const Rounds& rounds) {
  return values_of(rounds, &RoundFigures::bytes_per_second);
}

/// What a drive that does one thing at a time would reach, by round, with the shares that were
/// moved.
std::vector<double> harmonic_model(const Rounds& mixed, const Rounds& read, const Rounds& write) {
  std::vector<double> rates;
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    rates.push_back(
        harmonic_rate(mixed[i].read_share, read[i].bytes_per_second, write[i].bytes_per_second));
  }
  return rates;
}

void add_ratio(BenchRow& row, const char* to, const Spread& ratio) {
  if (ratio.count != 0) row.ratios.push_back({to, ratio});
}

/// Of a mixed row, and of the pipeline, whose bound is the slower of drive and update.
void add_model(BenchRow& row, const Rounds& own, const Rounds* read, const Rounds* write,
               const Rounds* update) {
  if (read == nullptr || write == nullptr) return;
  std::vector<double> model = harmonic_model(own, *read, *write);
  if (row.name != kRowPipeline) {
    add_ratio(row, "reads and writes in turn", spread_of_ratios(rates_of(own), model));
    return;
  }
  if (update == nullptr) return;
  for (std::size_t i = 0; i < model.size(); ++i) {
    model[i] = std::min(model[i], (*update)[i].bytes_per_second);
  }
  add_ratio(row, "the slower of drive and update", spread_of_ratios(rates_of(own), model));
}

}  // namespace

void add_io_rows(const std::vector<BenchCase>& cases, const RoundResults& results,
                 std::vector<BenchRow>& rows) {
  const auto find = [&](std::string_view name) { return rounds_of(cases, results, name); };
  const Rounds* const read = find(kRowRead);
  const Rounds* const write = find(kRowWrite);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Rounds& own = results.figures[i];
    BenchRow row = row_of(cases[i], own);
    if (row.kind == "io") {
      if (const Rounds* fio = find("fio " + row.name)) {
        add_ratio(row, "fio", spread_of_ratios(rates_of(own), rates_of(*fio)));
      }
    }
    if (row.name == kRowMix || row.name == kRowPipeline) {
      add_model(row, own, read, write, find(kRowUpdate));
    }
    if (row.name == kRowReadBusy && read != nullptr) {
      add_ratio(row, "the same with idle cores", spread_of_ratios(rates_of(own), rates_of(*read)));
    }
    const Rounds* const packed_bound = row.name == kRowSmallRead    ? read
                                       : row.name == kRowSmallWrite ? write
                                                                    : nullptr;
    if (packed_bound != nullptr) {
      add_ratio(row, row.name == kRowSmallRead ? "large reads" : "large writes",
                spread_of_ratios(rates_of(own), rates_of(*packed_bound)));
    }
    if (row.name == kRowSmallEach) {
      if (const Rounds* packed = find(kRowSmallRead)) {
        add_ratio(row, "packed", spread_of_ratios(rates_of(own), rates_of(*packed)));
      }
    }
    if (row.name == kRowDemandLoad) {
      if (const Rounds* idle = find(kRowDemandIdle)) {
        const auto p99 = [](const Rounds& rounds) {
          std::vector<double> values;
          for (const RoundFigures& round : rounds) values.push_back(round.latency.p99_ns);
          return values;
        };
        add_ratio(row, "p99 when idle", spread_of_ratios(p99(own), p99(*idle)));
      }
    }
    rows.push_back(std::move(row));
  }
}

}  // namespace penstock
