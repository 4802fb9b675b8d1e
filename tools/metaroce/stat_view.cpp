#include "stat_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli_common.h"
#include "driver/common/socket_address.h"

namespace metaroce::tool {
namespace {

using nlohmann::json;
using telemetry::StatConnection;
using telemetry::StatPath;
using telemetry::StatSnapshot;

// An open connection has to be polled once a second, for its keep-alive.
constexpr Duration kNotPolled = seconds(2);

int badness(engine::PathState state) {
  switch (state) {
    case engine::PathState::kDead: return 4;
    case engine::PathState::kSuspect: return 3;
    case engine::PathState::kOpening:
    case engine::PathState::kValidating: return 2;
    case engine::PathState::kClosed: return 1;
    case engine::PathState::kGood: return 0;
  }
  return 0;
}

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double loss_share(const PathCounters& c) { return share(c.lost, c.acked + c.lost); }
double mark_share(const PathCounters& c) { return share(c.ce_reported, c.acked); }

std::string duration(Duration d) {
  const auto ns = static_cast<double>(d.ns);
  if (d.ns < 1'000'000) return fmt::format("{:.0f}us", ns / 1e3);
  if (d.ns < 1'000'000'000) return fmt::format("{:.1f}ms", ns / 1e6);
  return fmt::format("{:.1f}s", ns / 1e9);
}

std::string size(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P"};
  double v = static_cast<double>(bytes);
  size_t unit = 0;
  while (v >= 10'000 && unit + 1 < std::size(kUnits)) {
    v /= 1024;
    ++unit;
  }
  return fmt::format("{:.0f}{}", v, kUnits[unit]);
}

std::string percent(double s) {
  if (s == 0) return "0";
  return s < 0.001 ? fmt::format("{:.3f}%", s * 100) : fmt::format("{:.1f}%", s * 100);
}

/// Rows with columns as wide as their widest field.
class Table {
 public:
  void row(std::vector<std::string> fields) { rows_.push_back(std::move(fields)); }
  std::string text() const {
    std::vector<size_t> width;
    for (const auto& r : rows_) {
      width.resize(std::max(width.size(), r.size()));
      for (size_t i = 0; i < r.size(); ++i) width[i] = std::max(width[i], r[i].size());
    }
    std::string out;
    for (const auto& r : rows_) {
      for (size_t i = 0; i < r.size(); ++i) {
        out += i + 1 == r.size() ? r[i] : fmt::format("{:<{}}  ", r[i], width[i]);
      }
      out += "\n";
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

struct Sum {
  PathCounters counters;
  uint32_t good = 0;
  uint32_t epoch = 0;
  Duration srtt{};
  Duration min_rtt{};
};

Sum sum_of(const StatSnapshot& page, const StatConnection& row) {
  Sum sum;
  for (const StatPath& p : page.paths) {
    if (p.connection != row.handle) continue;
    add(sum.counters, p.status.counters);
    sum.epoch += p.status.epoch;
    if (p.status.state != engine::PathState::kGood) continue;
    // Of the good paths: the mean would hide the slowest, so the largest.
    sum.srtt = std::max(sum.srtt, p.status.srtt);
    sum.min_rtt = sum.good == 0 ? p.status.min_rtt : std::min(sum.min_rtt, p.status.min_rtt);
    ++sum.good;
  }
  return sum;
}

std::string process(const StatSnapshot& page) {
  return fmt::format("{}/{}", page.owner.pid, page.owner.command);
}

json path_json(const StatPath& p, Time now) {
  const engine::PathStatus& s = p.status;
  json out{{"id", s.id},
           {"plane", s.plane},
           {"source_port", s.source_port},
           {"peer_port", s.peer_port},
           {"state", engine::to_string(s.state)},
           {"last_change", engine::to_string(s.change)},
           {"last_change_seconds_ago", static_cast<double>((now - s.changed_at).ns) / 1e9},
           {"epoch", s.epoch},
           {"pmtu", s.pmtu},
           {"window", s.window},
           {"in_flight", s.in_flight},
           {"srtt_us", static_cast<double>(s.srtt.ns) / 1e3},
           {"min_rtt_us", static_cast<double>(s.min_rtt.ns) / 1e3},
           {"recent_loss_ppm", s.loss_ppm}};
#define X(name, unit, meaning) out["counters"][#name] = s.counters.name;
  MR_PATH_COUNTERS(X)
#undef X
  return out;
}

}  // namespace

bool worse(const StatPath& a, const StatPath& b) {
  const int state_a = badness(a.status.state);
  const int state_b = badness(b.status.state);
  if (state_a != state_b) return state_a > state_b;
  // What the path judges of late decides; the sums only among equals.
  if (a.status.loss_ppm != b.status.loss_ppm) return a.status.loss_ppm > b.status.loss_ppm;
  const double loss_a = loss_share(a.status.counters);
  const double loss_b = loss_share(b.status.counters);
  if (loss_a != loss_b) return loss_a > loss_b;
  const double marks_a = mark_share(a.status.counters);
  const double marks_b = mark_share(b.status.counters);
  if (marks_a != marks_b) return marks_a > marks_b;
  return a.status.srtt - a.status.min_rtt > b.status.srtt - b.status.min_rtt;
}

StatView::Rates StatView::rates(const StatSnapshot& page, const StatConnection& row) const {
  Rates rates;
  for (const StatSnapshot& old : before_) {
    if (old.file != page.file || old.owner.start_time != page.owner.start_time) continue;
    const double ns = static_cast<double>((page.head.published - old.head.published).ns);
    if (ns <= 0) return rates;
    for (const StatConnection& c : old.connections) {
      if (c.handle != row.handle) continue;
      const ConnectionCounters& a = c.status.counters;
      const ConnectionCounters& b = row.status.counters;
      rates.known = true;
      rates.sent = static_cast<double>(b.bytes_sent - a.bytes_sent) * 8 / ns;
      rates.received = static_cast<double>(b.bytes_received - a.bytes_received) * 8 / ns;
    }
  }
  return rates;
}

std::string StatView::waits_for(const StatSnapshot& page, const StatConnection& row) const {
  const Duration age = now_ - page.head.published;
  if (page.stopped) return fmt::format("application (stopped for {})", duration(age));
  if (!page.sleeping && age > kNotPolled) {
    return fmt::format("application (has not polled for {})", duration(age));
  }
  std::string text = engine::to_string(row.status.stall);
  if (row.status.stall == engine::StallReason::kNone) text = "-";
  if (row.status.stall == engine::StallReason::kPathDead) {
    text += fmt::format(" (peer silent for {})",
                        duration(row.status.silent + (age.ns > 0 ? age : Duration{})));
  }
  return text;
}

Duration StatView::oldest(const StatSnapshot& page, const StatConnection& row) const {
  const Duration age = now_ - page.head.published;
  return row.status.oldest_age + (age.ns > 0 ? age : Duration{});
}

std::string StatView::left_out() const {
  std::string text;
  for (const StatSnapshot& page : pages_) {
    const auto hidden = page.head.connections - page.head.connections_shown;
    const auto paths = page.head.paths - page.head.paths_shown;
    if (hidden == 0 && paths == 0) continue;
    text += fmt::format(
        "process {} shows {} of {} connections; {} more and {} paths are left out\n",
        process(page), page.head.connections_shown, page.head.connections, hidden, paths);
  }
  return text;
}

std::string StatView::table() const {
  Table table;
  table.row({"PROCESS", "PEER", "STATE", "PATHS", "PLANES", "WINDOW", "IN-FLIGHT", "SRTT/MIN",
             "LOSS", "MARKS", "EPOCHS", "OUT", "IN", "OLDEST", "WAITS FOR"});
  for (const StatSnapshot& page : pages_) {
    for (const StatConnection& c : page.connections) {
      const engine::ConnectionStatus& s = c.status;
      const Sum sum = sum_of(page, c);
      const Rates r = rates(page, c);
      const auto rate = [&](double v) { return r.known ? fmt::format("{:.2f}Gb/s", v) : "?"; };
      table.row({process(page), driver::to_string(s.peer), engine::to_string(s.state),
                 fmt::format("{}/{}", sum.good, s.paths), fmt::format("{}", s.planes),
                 size(s.window), size(s.in_flight_bytes),
                 sum.good == 0 ? "-" : duration(sum.srtt) + "/" + duration(sum.min_rtt),
                 percent(loss_share(sum.counters)), percent(mark_share(sum.counters)),
                 fmt::format("{}", sum.epoch), rate(r.sent), rate(r.received),
                 s.has_work ? fmt::format("#{} {}", s.oldest_work, duration(oldest(page, c))) : "-",
                 waits_for(page, c)});
    }
  }
  return table.text() + left_out();
}

std::string StatView::path_table() const {
  struct Row {
    const StatSnapshot* page;
    const StatPath* path;
    const StatConnection* connection;
  };
  std::vector<Row> rows;
  for (const StatSnapshot& page : pages_) {
    for (const StatPath& path : page.paths) {
      for (const StatConnection& c : page.connections) {
        if (c.handle == path.connection) rows.push_back({&page, &path, &c});
      }
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return worse(*a.path, *b.path); });
  Table table;
  table.row({"STATE", "PEER", "PLANE", "PATH", "PORT", "WINDOW", "IN-FLIGHT", "SRTT/MIN", "LOSS",
             "NOW", "MARKS", "SENT", "RECEIVED", "PMTU", "EPOCH", "LAST CHANGE", "PROCESS"});
  for (const Row& row : rows) {
    const engine::PathStatus& s = row.path->status;
    table.row({engine::to_string(s.state), driver::to_string(row.connection->status.peer),
               fmt::format("{}", s.plane), fmt::format("{}", s.id),
               fmt::format("{}", s.source_port), size(s.window), size(s.in_flight),
               duration(s.srtt) + "/" + duration(s.min_rtt), percent(loss_share(s.counters)),
               percent(s.loss_ppm / 1e6), percent(mark_share(s.counters)),
               size(s.counters.tx_bytes), size(s.counters.rx_bytes), fmt::format("{}", s.pmtu),
               fmt::format("{}", s.epoch),
               fmt::format("{} {} ago", engine::to_string(s.change),
                           duration(now_ - s.changed_at)),
               process(*row.page)});
  }
  return table.text() + left_out();
}

json StatView::json() const {
  nlohmann::json out = nlohmann::json::array();
  for (const StatSnapshot& page : pages_) {
    nlohmann::json p{{"pid", page.owner.pid},
                     {"command", page.owner.command},
                     {"port", page.head.port},
                     {"stopped", page.stopped},
                     {"age_seconds", static_cast<double>((now_ - page.head.published).ns) / 1e9},
                     {"connections_total", page.head.connections},
                     {"connections_left_out", page.head.connections - page.head.connections_shown},
                     {"paths_left_out", page.head.paths - page.head.paths_shown},
                     {"connections", nlohmann::json::array()}};
#define X(name, unit, meaning) p["counters"][#name] = page.head.totals.endpoint.name;
    MR_ENDPOINT_COUNTERS(X)
#undef X
    for (const StatConnection& c : page.connections) {
      const engine::ConnectionStatus& s = c.status;
      const Rates r = rates(page, c);
      nlohmann::json row{{"handle", fmt::format("{:08x}", c.handle)},
                         {"peer", driver::to_string(s.peer)},
                         {"state", engine::to_string(s.state)},
                         {"planes", s.planes},
                         {"payload", s.payload},
                         {"window", s.window},
                         {"in_flight_bytes", s.in_flight_bytes},
                         {"in_flight_packets", s.in_flight_packets},
                         {"bytes_waiting", s.bytes_waiting},
                         {"stall", engine::to_string(s.stall)},
                         {"waits_for", waits_for(page, c)},
                         {"silent_seconds", static_cast<double>(s.silent.ns) / 1e9}};
      row["oldest_work"] = nullptr;
      if (s.has_work) {
        row["oldest_work"] = {{"id", s.oldest_work},
                              {"seconds", static_cast<double>(oldest(page, c).ns) / 1e9}};
      }
      row["sent_gbps"] = r.known ? nlohmann::json(r.sent) : nlohmann::json();
      row["received_gbps"] = r.known ? nlohmann::json(r.received) : nlohmann::json();
#define X(name, unit, meaning) row["counters"][#name] = s.counters.name;
      MR_CONNECTION_COUNTERS(X)
#undef X
      std::vector<const StatPath*> paths;
      for (const StatPath& path : page.paths) {
        if (path.connection == c.handle) paths.push_back(&path);
      }
      std::stable_sort(paths.begin(), paths.end(),
                       [](const StatPath* a, const StatPath* b) { return worse(*a, *b); });
      row["paths"] = nlohmann::json::array();
      for (const StatPath* path : paths) row["paths"].push_back(path_json(*path, now_));
      p["connections"].push_back(std::move(row));
    }
    out.push_back(std::move(p));
  }
  return out;
}

}  // namespace metaroce::tool
