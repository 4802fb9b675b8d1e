// Figures of a transfer as JSON, as a table and as a time series.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli_common.h"
#include "driver/common/fault_injector.h"

namespace metaroce::tool {
namespace {

using nlohmann::json;

json tally_report(const driver::FaultTally& tally) {
  json out;
  for (size_t i = 0; i < tally.total.size(); ++i) {
    out[driver::to_string(static_cast<driver::FaultKind>(i))] = tally.total[i];
  }
  out["seen"] = tally.seen;
  out["lost"] = tally.lost();
  out["first_drop_ns"] = tally.first_drop == kNever ? json() : json(tally.first_drop.ns);
  return out;
}

template <class Counters>
void add_all(Counters& sum, const Counters& more);

template <>
void add_all(PathCounters& sum, const PathCounters& more) {
#define X(name, unit, meaning) sum.name += more.name;
  MR_PATH_COUNTERS(X)
#undef X
}

template <>
void add_all(driver::UdpCounters& sum, const driver::UdpCounters& more) {
#define X(name, meaning) sum.name += more.name;
  MR_UDP_COUNTERS(X)
#undef X
}

json path_report(size_t worker, const api::PathStatus& path) {
  json out{{"worker", worker},
           {"id", path.id},
           {"plane", path.plane},
           {"state", engine::to_string(path.state)},
           {"source_port", path.source_port},
           {"pmtu", path.pmtu},
           {"window", path.window},
           {"srtt_us", static_cast<double>(path.srtt.ns) / 1e3},
           {"min_rtt_us", static_cast<double>(path.min_rtt.ns) / 1e3},
           {"ecn_bleached", path.ecn_bleached}};
#define X(name, unit, meaning) out[#name] = path.counters.name;
  MR_PATH_COUNTERS(X)
#undef X
  return out;
}

}  // namespace

double gigabits_per_second(uint64_t bytes, Duration time) {
  return time.ns <= 0 ? 0.0 : static_cast<double>(bytes) * 8 / static_cast<double>(time.ns);
}

json transport_report(std::vector<std::unique_ptr<EndpointTransport>>& transports) {
  PathCounters sum;
  driver::UdpCounters udp;
  json report;
  json& paths = report["paths"] = json::array();
  json& warnings = report["warnings"] = json::array();
  std::vector<uint64_t> drops;
  uint64_t in = 0;
  uint64_t out = 0;
  for (size_t i = 0; i < transports.size(); ++i) {
    EndpointTransport& transport = *transports[i];
    for (const api::PathStatus& path : transport.figures().paths) {
      paths.push_back(path_report(i, path));
      add_all(sum, path.counters);
    }
    add_all(udp, transport.endpoint().udp_counters());
    in += transport.endpoint().packets_in();
    out += transport.endpoint().packets_out();
    const auto dropped = transport.endpoint().drops();
    drops.resize(std::max(drops.size(), dropped.size()));
    for (size_t d = 0; d < dropped.size(); ++d) drops[d] += dropped[d];
    report["faults"].push_back({{"rx", tally_report(transport.endpoint().rx_tally())},
                                {"tx", tally_report(transport.endpoint().tx_tally())}});
    if (!transport.endpoint().buffer_warning().empty()) {
      warnings.push_back(transport.endpoint().buffer_warning());
    }
  }
  const uint64_t data = sum.tx_new + sum.tx_repair + sum.tx_copies;
  report["packets"] = {{"sent", data},
                       {"useful", sum.tx_new},
                       {"sent_per_useful", sum.tx_new == 0 ? json()
                                                           : json(static_cast<double>(data) /
                                                                  static_cast<double>(sum.tx_new))},
                       {"sequenced", sum.tx_packets},
                       {"repairs", sum.tx_repair},
                       {"copies", sum.tx_copies},
                       {"probes", sum.tx_probes},
                       {"acks", sum.tx_acks},
                       {"lost", sum.lost},
                       {"spurious", sum.spurious}};
#define X(name, meaning) report["udp"][#name] = udp.name;
  MR_UDP_COUNTERS(X)
#undef X
  report["engine"] = {{"packets_in", in}, {"packets_out", out}};
  report["drops_by_reason"] = drops;
  return report;
}

std::string path_table(std::vector<std::unique_ptr<EndpointTransport>>& transports) {
  std::string out = fmt::format("{:>6} {:>4} {:>5} {:>6} {:>10} {:>9} {:>9} {:>8} {:>9}  {}\n",
                                "worker", "path", "plane", "port", "packets", "repairs", "lost",
                                "probes", "srtt us", "state");
  for (size_t i = 0; i < transports.size(); ++i) {
    for (const api::PathStatus& p : transports[i]->figures().paths) {
      out += fmt::format("{:>6} {:>4} {:>5} {:>6} {:>10} {:>9} {:>9} {:>8} {:>9.1f}  {}\n", i, p.id,
                         p.plane, p.source_port, p.counters.tx_packets, p.counters.tx_repair,
                         p.counters.lost, p.counters.tx_probes,
                         static_cast<double>(p.srtt.ns) / 1e3, engine::to_string(p.state));
    }
  }
  if (!out.empty()) out.pop_back();
  return out;
}

namespace {

bool write_text(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  bool good = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  if (file != nullptr && std::fclose(file) != 0) good = false;
  if (!good) say("metaroce: cannot write " + path + ": " + std::strerror(error));
  return good;
}

}  // namespace

bool write_json(const std::string& path, const json& report) {
  // Names may be any bytes; what is not UTF-8 is replaced in the report.
  return write_text(path, report.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

bool write_series(const std::string& path,
                  const std::vector<std::unique_ptr<EndpointTransport>>& transports) {
  std::string text = "worker\ttime_ns\tbytes\tinjected_lost\n";
  for (size_t i = 0; i < transports.size(); ++i) {
    for (const Sample& sample : transports[i]->samples()) {
      text += fmt::format("{}\t{}\t{}\t{}\n", i, sample.when.ns, sample.bytes, sample.lost);
    }
  }
  return write_text(path, text);
}

}  // namespace metaroce::tool
