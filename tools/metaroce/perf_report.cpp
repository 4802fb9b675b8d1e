#include "perf_report.h"

#include <fmt/format.h>

namespace metaroce::tool {
namespace {

using nlohmann::json;

double us(int64_t ns) { return static_cast<double>(ns) / 1e3; }
double per_second(uint64_t count, int64_t ns) {
  return ns <= 0 ? 0.0 : static_cast<double>(count) * 1e9 / static_cast<double>(ns);
}
double gbps(uint64_t bytes, int64_t ns) { return gigabits_per_second(bytes, Duration{ns}); }

struct PacketSum {
  uint64_t sequenced = 0;
  uint64_t data = 0;
  uint64_t repairs = 0;
  uint64_t lost = 0;
  uint64_t spurious = 0;
  uint64_t marks = 0;  ///< seen by this end as a receiver
};

PacketSum sum_of(const PerfReport& report) {
  PacketSum sum;
  for (const PerfPath& p : report.paths) {
    sum.sequenced += p.packets;
    sum.data += p.data;
    sum.repairs += p.repairs;
    sum.lost += p.lost;
    sum.spurious += p.spurious;
    sum.marks += p.marks;
  }
  return sum;
}

/// A direction with both of its ends.
struct Direction {
  const char* name;
  const PerfReport& from;
  const PerfReport& to;
};

std::vector<Direction> directions(const PerfResult& r) {
  std::vector<Direction> out;
  if ((r.plan.direction & kForward) != 0) out.push_back({"client to server", r.client, r.server});
  if ((r.plan.direction & kReverse) != 0) out.push_back({"server to client", r.server, r.client});
  return out;
}

/// Payload that crossed the wire while figures were taken: an answered ping-pong goes both ways.
uint64_t payload_bytes(const PerfResult& r) {
  const uint64_t bytes = r.client.sent.bytes + r.server.sent.bytes;
  return r.plan.ping_pong && takes_receives(r.plan.op) ? 2 * bytes : bytes;
}

double cpu_per_gb(const PerfReport& report, uint64_t bytes) {
  return bytes == 0 ? 0.0 : static_cast<double>(report.cpu_ns) / static_cast<double>(bytes);
}

const char* latency_name(const PerfPlan& plan) {
  return plan.ping_pong && takes_receives(plan.op) ? "round trip" : "completion";
}

std::string path_lines(const char* end, const PerfReport& report) {
  std::string out;
  for (const PerfPath& p : report.paths) {
    out += fmt::format(
        "  {:<6} {:>4} {:>5} {:>6} {:<10} {:>9} {:>9.1f} {:>10} {:>8} {:>7} {:>8} "
        "{:>7}\n",
        end, p.id, p.plane, p.port, engine::to_string(static_cast<engine::PathState>(p.state)),
        p.window, us(p.srtt_ns), p.packets, p.repairs, p.lost, p.spurious, p.marks);
  }
  return out;
}

std::string direction_lines(const Direction& d, const PerfPlan& plan) {
  const PerfSent& s = d.from.sent;
  const PacketSum p = sum_of(d.from);
  const PacketSum at_receiver = sum_of(d.to);
  std::string out = fmt::format(
      "{}\n  transferred  {} ({} bytes) in {:.3f} s, {} messages\n"
      "  goodput      {:.3f} Gbit/s, {:.0f} messages/s, {:.0f} packets/s\n",
      d.name, human_bytes(s.bytes), s.bytes, static_cast<double>(s.ns) / 1e9, s.messages,
      gbps(s.bytes, s.ns), per_second(s.messages, s.ns), per_second(p.data, s.ns));
  out += fmt::format(
      "  packets      {} data, {} sent again ({:.3f} %), {} lost, {} spurious, "
      "{} marked\n",
      p.data, p.repairs,
      p.data == 0 ? 0.0 : 100.0 * static_cast<double>(p.repairs) / static_cast<double>(p.data),
      p.lost, p.spurious, at_receiver.marks);
  const Percentiles& l = s.latency;
  out += fmt::format(
      "  {:<12} min {:.1f}  mean {:.1f}  p50 {:.1f}  p90 {:.1f}  p99 {:.1f}  "
      "p99.9 {:.1f}  max {:.1f} us\n"
      "  gap          {:.1f} us at most without a completion\n",
      latency_name(plan), us(l.min), us(l.mean), us(l.p50), us(l.p90), us(l.p99), us(l.p999),
      us(l.max), us(s.gap_ns));
  if (plan.verify) {
    const PerfReport& checker = fetches(plan.op) ? d.from : d.to;
    out += fmt::format("  verified     {} of {} as they should be\n",
                       checker.verified - checker.verify_errors, checker.verified);
  }
  return out;
}

json path_json(const PerfPath& p) {
  return {{"id", p.id},
          {"plane", p.plane},
          {"state", engine::to_string(static_cast<engine::PathState>(p.state))},
          {"source_port", p.port},
          {"pmtu", p.pmtu},
          {"window", p.window},
          {"srtt_us", us(p.srtt_ns)},
          {"packets", p.packets},
          {"data", p.data},
          {"repairs", p.repairs},
          {"copies", p.copies},
          {"probes", p.probes},
          {"acked", p.acked},
          {"lost", p.lost},
          {"spurious", p.spurious},
          {"marks", p.marks},
          {"in_flight", p.in_flight}};
}

json end_json(const PerfReport& r, uint64_t bytes) {
  json out{{"cpu_seconds", static_cast<double>(r.cpu_ns) / 1e9},
           {"cpu_span_seconds", static_cast<double>(r.cpu_span_ns) / 1e9},
           {"cpu_seconds_per_gb", cpu_per_gb(r, bytes)},
           {"cpu_shared", r.cpu_shared},
           {"packets_received", r.packets_received},
           {"duplicates", r.duplicates},
           {"messages_received", r.messages_received},
           {"verified", r.verified},
           {"verify_errors", r.verify_errors}};
  out["paths"] = json::array();
  for (const PerfPath& p : r.paths) out["paths"].push_back(path_json(p));
  return out;
}

json direction_json(const Direction& d) {
  const PerfSent& s = d.from.sent;
  const PacketSum p = sum_of(d.from);
  const Percentiles& l = s.latency;
  return {{"direction", d.name},
          {"messages", s.messages},
          {"bytes", s.bytes},
          {"seconds", static_cast<double>(s.ns) / 1e9},
          {"goodput_gbps", gbps(s.bytes, s.ns)},
          {"messages_per_second", per_second(s.messages, s.ns)},
          {"packets_per_second", per_second(p.data, s.ns)},
          {"packets",
           {{"data", p.data},
            {"sequenced", p.sequenced},
            {"repairs", p.repairs},
            {"lost", p.lost},
            {"spurious", p.spurious},
            {"marks", sum_of(d.to).marks}}},
          {"longest_gap_us", us(s.gap_ns)},
          {"latency_us",
           {{"count", l.count},
            {"min", us(l.min)},
            {"mean", us(l.mean)},
            {"p50", us(l.p50)},
            {"p90", us(l.p90)},
            {"p99", us(l.p99)},
            {"p999", us(l.p999)},
            {"max", us(l.max)}}}};
}

}  // namespace

std::string describe_plan(const PerfPlan& plan) {
  const char* way = plan.direction == kForward   ? "client to server"
                    : plan.direction == kReverse ? "server to client"
                                                 : "both ways";
  if (plan.ping_pong) {
    return fmt::format("{} {} of {} bytes, {}", to_string(plan.op), latency_name(plan), plan.size,
                       plan.direction == kForward ? "asked by the client" : "asked by the server");
  }
  return fmt::format("{}, {} bytes, {} under way on {} stream{}, {}", to_string(plan.op), plan.size,
                     plan.depth, plan.streams, plan.streams == 1 ? "" : "s each", way);
}

std::string interval_line(const PerfPlan& plan, Time begin, const PerfMoment& from,
                          const PerfMoment& to) {
  const double first = static_cast<double>((from.when - begin).ns) / 1e9;
  const double last = static_cast<double>((to.when - begin).ns) / 1e9;
  const int64_t ns = (to.when - from.when).ns;
  std::string line = fmt::format("[{:7.2f} -{:7.2f} s]", first, last);
  if (plan.ping_pong && plan.direction == kForward) {
    const uint64_t n = to.messages - from.messages;
    line += fmt::format("  {:>8} messages  {:>9.1f} us each", n,
                        n == 0 ? 0.0 : us(ns) / static_cast<double>(n));
  }
  const auto rate = [&](const char* name, uint64_t bytes) {
    line += fmt::format("  {}{:>10}  {:>8.3f} Gbit/s", name, human_bytes(bytes), gbps(bytes, ns));
  };
  if (!plan.ping_pong && (plan.direction & kForward) != 0) {
    rate(plan.direction == kBoth ? "out " : "", to.sent - from.sent);
  }
  if (!plan.ping_pong && (plan.direction & kReverse) != 0) {
    rate(plan.direction == kBoth ? "in " : "", to.received - from.received);
  }
  if ((plan.direction & kForward) != 0) {
    line += fmt::format("  {} sent again", to.repairs - from.repairs);
  }
  return line + fmt::format("  {} of {} paths", to.good_paths, to.paths);
}

std::string summary(const PerfResult& r) {
  std::string out;
  for (const Direction& d : directions(r)) out += direction_lines(d, r.plan);
  const uint64_t bytes = payload_bytes(r);
  out += fmt::format(
      "CPU            client {:.3f} s/GB ({:.0f} %), server {:.3f} s/GB ({:.0f} %){}",
      cpu_per_gb(r.client, bytes), 100 * per_second(r.client.cpu_ns, r.client.cpu_span_ns) / 1e9,
      cpu_per_gb(r.server, bytes), 100 * per_second(r.server.cpu_ns, r.server.cpu_span_ns) / 1e9,
      r.server.cpu_shared ? " with other clients" : "");
  out += fmt::format(
      "\npaths\n  {:<6} {:>4} {:>5} {:>6} {:<10} {:>9} {:>9} {:>10} {:>8} {:>7} {:>8} "
      "{:>7}\n",
      "end", "path", "plane", "port", "state", "window", "srtt us", "packets", "again", "lost",
      "spurious", "marked");
  out += path_lines("client", r.client) + path_lines("server", r.server);
  out.pop_back();
  return out;
}

std::string sweep_heading(bool latency) {
  if (latency) {
    return fmt::format("{:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  us", "bytes", "messages",
                       "min", "p50", "p90", "p99", "p99.9", "max");
  }
  return fmt::format("{:>10} {:>10} {:>9} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9}", "bytes",
                     "messages", "Gbit/s", "packets/s", "p50 us", "p99 us", "again", "client",
                     "server");
}

std::string sweep_line(const PerfResult& r) {
  std::string out;
  for (const Direction& d : directions(r)) {
    const PerfSent& s = d.from.sent;
    const Percentiles& l = s.latency;
    if (!out.empty()) out += '\n';
    if (r.plan.ping_pong) {
      out += fmt::format("{:>10} {:>10} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}",
                         r.plan.size, s.messages, us(l.min), us(l.p50), us(l.p90), us(l.p99),
                         us(l.p999), us(l.max));
      continue;
    }
    const PacketSum p = sum_of(d.from);
    out += fmt::format(
        "{:>10} {:>10} {:>9.3f} {:>10.0f} {:>10.1f} {:>9.1f} {:>9} {:>9.3f} {:>9.3f}", r.plan.size,
        s.messages, gbps(s.bytes, s.ns), per_second(p.data, s.ns), us(l.p50), us(l.p99), p.repairs,
        cpu_per_gb(r.client, payload_bytes(r)), cpu_per_gb(r.server, payload_bytes(r)));
  }
  return out;
}

json perf_json(const PerfResult& r) {
  const PerfPlan& plan = r.plan;
  json out{{"op", to_string(plan.op)},
           {"mode", plan.ping_pong ? "latency" : "goodput"},
           {"latency_is", latency_name(plan)},
           {"size", plan.size},
           {"streams", plan.streams},
           {"depth", plan.depth},
           {"warmup_seconds", static_cast<double>(plan.warmup_ns) / 1e9},
           {"verify", plan.verify},
           {"complete", r.complete},
           {"interrupted", r.end.code == kExitInterrupted},
           {"error", r.end.code == kExitFailed ? r.end.text : std::string()}};
  out["directions"] = json::array();
  for (const Direction& d : directions(r)) out["directions"].push_back(direction_json(d));
  out["client"] = end_json(r.client, payload_bytes(r));
  out["server"] = end_json(r.server, payload_bytes(r));
  out["intervals"] = json::array();
  return out;
}

}  // namespace metaroce::tool
