#include "measure/bench_json.hpp"

#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{16} << 20;

json spread_json(const Spread& spread, double scale) {
  if (spread.count == 0) return nullptr;
  return {{"p10", spread.p10 * scale},
          {"median", spread.median * scale},
          {"p90", spread.p90 * scale},
          {"rounds", spread.count}};
}

Spread spread_from(const json& value, double scale) {
  if (value.is_null()) return {};
  return {value.at("p10").get<double>() / scale, value.at("median").get<double>() / scale,
          value.at("p90").get<double>() / scale, value.at("rounds").get<std::size_t>()};
}

constexpr double kGb = 1e-9, kMicroseconds = 1e-3;

json row_json(const BenchRow& row) {
  json drives = json::array();
  for (const double rate : row.drive_bytes_per_second) drives.push_back(rate * kGb);
  json ratios = json::array();
  for (const BenchRatio& ratio : row.ratios) {
    ratios.push_back({{"to", ratio.to}, {"ratio", spread_json(ratio.ratio, 1.0)}});
  }
  const bool has_latency = row.p50_ns.count != 0;
  const bool has_limit = row.limit_bytes_per_second > 0.0;
  const auto or_null = [](double value) { return value > 0.0 ? json(value) : json(); };
  return {{"name", row.name},
          {"kind", row.kind},
          {"block_bytes", row.block_bytes},
          {"depth", row.depth},
          {"threads", row.threads},
          {"read_share", row.read_share},
          {"gb_per_second", spread_json(row.bytes_per_second, kGb)},
          {"cpu_seconds_per_gb", spread_json(row.cpu_seconds_per_gb, 1.0)},
          {"latency_us", has_latency ? json{{"p50", spread_json(row.p50_ns, kMicroseconds)},
                                            {"p99", spread_json(row.p99_ns, kMicroseconds)},
                                            {"p99_9", spread_json(row.p999_ns, kMicroseconds)},
                                            {"max", row.max_ns * kMicroseconds}}
                                     : json()},
          {"mean_depth", or_null(row.mean_depth)},
          {"window_seconds", row.window_seconds},
          {"dropped_seconds", row.dropped_seconds},
          {"drive_gb_per_second", drives},
          {"limit", has_limit
                        ? json{{"gb_per_second", row.limit_bytes_per_second * kGb},
                               {"of", row.limit_of},
                               {"share", row.bytes_per_second.median / row.limit_bytes_per_second}}
                        : json()},
          {"ratios", ratios},
          {"note", row.note}};
}

BenchRow row_from(const json& value) {
  BenchRow row;
  row.name = value.at("name").get<std::string>();
  row.kind = value.at("kind").get<std::string>();
  row.block_bytes = value.at("block_bytes").get<std::uint64_t>();
  row.depth = value.at("depth").get<std::uint32_t>();
  row.threads = value.at("threads").get<std::uint32_t>();
  row.read_share = value.at("read_share").get<double>();
  row.bytes_per_second = spread_from(value.at("gb_per_second"), kGb);
  row.cpu_seconds_per_gb = spread_from(value.at("cpu_seconds_per_gb"), 1.0);
  if (const json& latency = value.at("latency_us"); !latency.is_null()) {
    row.p50_ns = spread_from(latency.at("p50"), kMicroseconds);
    row.p99_ns = spread_from(latency.at("p99"), kMicroseconds);
    row.p999_ns = spread_from(latency.at("p99_9"), kMicroseconds);
    row.max_ns = latency.at("max").get<double>() / kMicroseconds;
  }
  for (const json& ratio : value.at("ratios")) {
    row.ratios.push_back({ratio.at("to").get<std::string>(), spread_from(ratio.at("ratio"), 1.0)});
  }
  return row;
}

json target_json(const BenchTarget& target) {
  return {{"path", target.path},
          {"device", target.device},
          {"device_id", target.device_id},
          {"filesystem", target.filesystem},
          {"file_bytes", target.file_bytes},
          {"direct", target.direct}};
}

BenchTarget target_from(const json& value) {
  return {value.at("path").get<std::string>(),         value.at("device").get<std::string>(),
          value.at("filesystem").get<std::string>(),   value.at("device_id").get<std::string>(),
          value.at("file_bytes").get<std::uint64_t>(), value.at("direct").get<bool>()};
}

BenchReport report_from(const json& value) {
  BenchReport report;
  report.what = value.at("what").get<std::string>();
  report.version = value.at("version").get<std::string>();
  const json& machine = value.at("machine");
  report.processor = machine.at("processor").get<std::string>();
  report.kernel = machine.at("kernel").get<std::string>();
  report.threads = machine.at("threads").get<std::uint32_t>();
  report.numa_nodes = machine.at("numa_nodes").get<std::uint32_t>();
  report.memory_bytes = machine.at("memory_bytes").get<std::uint64_t>();
  report.unix_seconds = value.at("unix_seconds").get<std::uint64_t>();
  report.rounds = value.at("rounds").get<std::size_t>();
  report.queue = value.at("queue").get<std::string>();
  for (const json& target : value.at("targets")) report.targets.push_back(target_from(target));
  for (const json& row : value.at("rows")) report.rows.push_back(row_from(row));
  return report;
}

}  // namespace

json to_json(const BenchReport& report) {
  json targets = json::array(), rows = json::array();
  for (const BenchTarget& target : report.targets) targets.push_back(target_json(target));
  for (const BenchRow& row : report.rows) rows.push_back(row_json(row));
  const bool first_write = report.first_write_bytes_per_second > 0.0;
  return {{"schema", kBenchSchema},
          {"what", report.what},
          {"version", report.version},
          {"unix_seconds", report.unix_seconds},
          {"machine",
           {{"processor", report.processor},
            {"kernel", report.kernel},
            {"threads", report.threads},
            {"numa_nodes", report.numa_nodes},
            {"memory_bytes", report.memory_bytes}}},
          {"seconds", report.seconds},
          {"seed", report.seed},
          {"rounds", report.rounds},
          {"wanted_rounds", report.wanted_rounds},
          {"slice_seconds", report.slice_seconds},
          {"queue", report.queue},
          {"queue_reason", report.queue_reason},
          {"buffer_bytes", report.buffer_bytes},
          {"huge_buffer_bytes", report.huge_buffer_bytes},
          {"first_write_gb_per_second",
           first_write ? json(report.first_write_bytes_per_second * kGb) : json()},
          {"targets", targets},
          {"rows", rows},
          {"notes", report.notes}};
}

Result<BenchReport> parse_bench_report(std::string_view text, const std::string& what) {
  const auto refuse = [&](const std::string& why) {
    return make_error(
        Errc::kArgument,
        fmt::format("\"{}\": {}; name a file that \"penstock bench --json\" wrote", what, why));
  };
  const json value = json::parse(text, nullptr, false);
  if (!value.is_object()) return refuse("it is not one JSON object");
  const json schema = value.value("schema", json());
  if (schema != kBenchSchema) {
    return refuse(fmt::format("its schema is {}, not \"{}\"", schema.dump(), kBenchSchema));
  }
  try {
    return report_from(value);
  } catch (const json::exception& error) {
    return refuse(fmt::format("it is not whole ({})", error.what()));
  }
}

Result<BenchReport> read_bench_report(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  if (text.empty()) {
    const int error = errno;
    return make_error(
        Errc::kArgument,
        fmt::format("\"{}\": {}; name a file that \"penstock bench --json\" wrote", path,
                    error == 0 ? "it is empty" : std::generic_category().message(error)),
        error);
  }
  if (text.size() > kMostBytes) {
    return make_error(Errc::kArgument,
                      fmt::format("\"{}\": it is larger than any report; name a file that "
                                  "\"penstock bench --json\" wrote",
                                  path));
  }
  return parse_bench_report(text, path);
}

}  // namespace penstock
