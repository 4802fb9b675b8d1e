// metaroce perf HOST: runs one size after the other and tells the figures.
#include <fmt/format.h>

#include <cstdio>

#include "driver/common/socket_address.h"
#include "perf_client.h"
#include "perf_options.h"
#include "perf_report.h"

namespace metaroce::tool {
namespace {

using nlohmann::json;

int64_t to_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9 + 0.5); }

std::vector<PerfPlan> make_plans(const PerfOptions& o) {
  PerfPlan plan;
  for (const PerfOp op : {PerfOp::kWrite, PerfOp::kWriteImm, PerfOp::kSend, PerfOp::kRead,
                          PerfOp::kFetchAdd}) {
    if (o.op == to_string(op)) plan.op = op;
  }
  plan.ping_pong = o.lat;
  plan.verify = o.verify;
  plan.direction = o.both ? kBoth : o.reverse ? kReverse : kForward;
  plan.streams = static_cast<uint16_t>(o.streams);
  plan.depth = o.depth != 0 ? o.depth : o.lat ? 1 : 16;
  plan.warmup_ns = to_ns(o.warmup);
  const bool fixed = plan.op == PerfOp::kFetchAdd;
  const std::string usual = fixed ? "8" : o.lat ? "64" : "64K";
  const std::string size = !o.size.empty() ? o.size : o.all ? "2:8M" : usual;
  const auto sizes = parse_sizes(size);
  plan.count = o.count;
  const double seconds = o.seconds > 0 ? o.seconds : sizes.size() > 1 ? 1.0 : 10.0;
  plan.time_ns = o.count != 0 ? 0 : to_ns(seconds);
  std::vector<PerfPlan> plans;
  for (const uint64_t bytes : sizes) {
    plan.size = bytes;
    const std::string problem = check_plan(plan);
    if (!problem.empty()) throw UsageError{problem};
    plans.push_back(plan);
  }
  return plans;
}

/// Where lines for people go: standard output, unless JSON goes there.
class Lines {
 public:
  explicit Lines(const PerfOptions& o)
      : out_(o.peer.common.json == "-" ? stderr : stdout), quiet_(o.peer.common.quiet) {}
  void detail(const std::string& line) const {
    if (!quiet_) result(line);
  }
  void result(const std::string& line) const {
    std::fputs((line + "\n").c_str(), out_);
    std::fflush(out_);
  }

 private:
  std::FILE* out_;
  bool quiet_;
};

json interval_json(Time begin, const PerfMoment& from, const PerfMoment& to) {
  const Duration time = to.when - from.when;
  return {{"begin_seconds", static_cast<double>((from.when - begin).ns) / 1e9},
          {"end_seconds", static_cast<double>((to.when - begin).ns) / 1e9},
          {"messages", to.messages - from.messages},
          {"bytes_out", to.sent - from.sent},
          {"bytes_in", to.received - from.received},
          {"gbps_out", gigabits_per_second(to.sent - from.sent, time)},
          {"gbps_in", gigabits_per_second(to.received - from.received, time)},
          {"repairs", to.repairs - from.repairs},
          {"good_paths", to.good_paths},
          {"paths", to.paths}};
}

/// One size over a connection of its own: no figure of one run can reach into the next.
int run_size(const PerfOptions& o, const PerfPlan& plan, bool sweep, const Lines& lines,
             json& runs) {
  const Settings settings = make_settings(o.peer.common);
  PeerConnection peer =
      connect_peer(o.peer, Duration{settings.connect_timeout}, static_cast<unsigned>(runs.size()));
  if (peer.code != kExitOk) {
    say("metaroce perf: cannot connect: " + peer.text);
    return peer.code;
  }
  if (runs.empty()) {
    if (!o.peer.common.quiet && !peer.endpoint->buffer_warning().empty()) {
      say("metaroce perf: warning: " + peer.endpoint->buffer_warning());
    }
    api::ConnectionStatus status;
    peer.endpoint->connection_status(peer.connection, status);
    lines.detail(fmt::format("connected to {} in {:.0f} us, {} paths on {} plane{}, {}\n{}",
                             driver::to_string(peer.peer), static_cast<double>(peer.setup.ns) / 1e3,
                             status.paths, status.planes, status.planes == 1 ? "" : "s",
                             security_text(status),
                             describe_plan(plan)));
    if (sweep) lines.result(sweep_heading(plan.ping_pong));
  }
  const double seconds = o.interval >= 0 ? o.interval : sweep ? 0.0 : 1.0;
  json intervals = json::array();
  PerfClient client(peer, plan, Duration{settings.death_timeout});
  const PerfResult result = client.run(
      nanoseconds(to_ns(seconds)), [&](Time begin, const PerfMoment& from, const PerfMoment& to) {
        lines.detail(interval_line(plan, begin, from, to));
        intervals.push_back(interval_json(begin, from, to));
      });
  if (!result.end.text.empty()) say("metaroce perf: " + result.end.text);
  if (result.complete) lines.result(sweep ? sweep_line(result) : summary(result));
  json report = perf_json(result);
  report["security"] = security_json(*peer.endpoint, peer.connection);
  report["peer"] = driver::to_string(peer.peer);
  report["setup_us"] = static_cast<double>(peer.setup.ns) / 1e3;
  report["paths_open"] = peer.paths_open;
  report["intervals"] = std::move(intervals);
  runs.push_back(std::move(report));
  close_peer(peer);
  if (result.client.verify_errors + result.server.verify_errors > 0) {
    say(fmt::format("metaroce perf: verification failed: {} of {} are not what was sent",
                    result.client.verify_errors + result.server.verify_errors,
                    result.client.verified + result.server.verified));
    return kExitFailed;
  }
  return result.end.code;
}

}  // namespace

int run_perf_client(const PerfOptions& options) {
  const auto plans = make_plans(options);
  make_faults(options.peer.common);
  install_signals();
  arm_signals();
  const Lines lines(options);
  json runs = json::array();
  int code = kExitOk;
  for (const PerfPlan& plan : plans) {
    code = run_size(options, plan, plans.size() > 1, lines, runs);
    if (code != kExitOk) break;
  }
  const std::string& file = options.peer.common.json;
  if (file.empty()) return code;
  const json report{{"command", "perf"}, {"exit_code", code}, {"runs", std::move(runs)}};
  if (file == "-") {
    std::fputs((report.dump(2) + "\n").c_str(), stdout);
    return code;
  }
  return write_json(file, report) ? code : code == kExitOk ? kExitFailed : code;
}

}  // namespace metaroce::tool
