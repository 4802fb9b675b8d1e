// metaroce ping HOST: set-up time, then round trips of small messages.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "driver/common/clock.h"
#include "driver/common/socket_address.h"
#include "perf_client.h"
#include "perf_options.h"

namespace metaroce::tool {
namespace {

using nlohmann::json;

constexpr int kAnswered = 0;
constexpr int kNotAnswered = 1;
constexpr int kOther = 2;

double ms(Duration d) { return static_cast<double>(d.ns) / 1e6; }

struct Answers {
  uint64_t sent = 0;
  uint64_t received = 0;
  double sum = 0;
  double squares = 0;
  double min = 0;
  double max = 0;

  void add(double value) {
    min = received == 0 ? value : std::min(min, value);
    max = std::max(max, value);
    ++received;
    sum += value;
    squares += value * value;
  }
  double mean() const { return received == 0 ? 0 : sum / static_cast<double>(received); }
  double deviation() const {
    if (received == 0) return 0;
    return std::sqrt(std::max(squares / static_cast<double>(received) - mean() * mean(), 0.0));
  }
};

class Ping {
 public:
  Ping(const PingOptions& options, PerfOp op, uint64_t size)
      : options_(options), op_(op), size_(size) {}
  int run();

 private:
  bool begin();
  bool ask_server();
  bool post();
  /// True when an answer came; false at `limit`, at a signal or when the peer is gone.
  bool wait_answer(Time limit);
  void wait_until(Time until);
  bool take(const api::Completion& completion);
  bool turn(Duration timeout);
  void print_answer(Duration rtt);
  void print_paths();
  int end();
  void line(const std::string& text) const {
    if (options_.peer.common.quiet) return;
    std::fputs((text + "\n").c_str(), options_.peer.common.json == "-" ? stderr : stdout);
    std::fflush(stdout);
  }

  const PingOptions& options_;
  const PerfOp op_;
  const uint64_t size_;
  PerfGrant grant_;
  PeerConnection peer_;
  std::unique_ptr<PerfLink> link_;
  PerfLink::Heard heard_;
  std::vector<std::byte> memory_;
  bool answered_ = false;
  bool gone_ = false;
  std::string error_;
  Answers answers_;
  json messages_ = json::array();
  json security_;
};

bool Ping::turn(Duration timeout) {
  api::Endpoint& endpoint = *peer_.endpoint;
  endpoint.wait(timeout);
  api::Completion done[16];
  const size_t n = endpoint.poll(done);
  for (size_t i = 0; i < n; ++i) answered_ = take(done[i]) || answered_;
  api::ConnectionEvent event;
  while (endpoint.next_event(event)) {
    if (event.connection != peer_.connection || (event.kind != api::ConnectionEventKind::kClosed &&
                                                 event.kind != api::ConnectionEventKind::kLost)) {
      continue;
    }
    error_ = api::describe_loss(event, Duration{make_settings(options_.peer.common).death_timeout});
    gone_ = true;
  }
  return answered_;
}

bool Ping::take(const api::Completion& c) {
  if (c.stream == 0 && link_) {
    auto heard = link_->on_completion(c);
    if (heard) heard_ = std::move(heard);
    return false;
  }
  if (c.status != Status::kOk) {
    if (error_.empty()) error_ = std::string("a message failed: ") + to_string(c.status);
    return false;
  }
  if (size_ == 0 || fetches(op_)) return c.operation != engine::Operation::kReceive;
  if (c.operation != engine::Operation::kReceive) return false;
  api::ReceiveRequest r;
  r.connection = peer_.connection;
  r.stream = 1;
  r.buffer = memory_.data() + size_;
  r.length = size_;
  Status status = Status::kOk;
  peer_.endpoint->post_receive({&r, 1}, status);
  return true;
}

bool Ping::wait_answer(Time limit) {
  while (!answered_ && !gone_ && signal_received() == nullptr) {
    const Time now = driver::now();
    if (now >= limit) return false;
    turn(std::min(limit - now, milliseconds(50)));
  }
  return answered_;
}

void Ping::wait_until(Time until) {
  for (Time now = driver::now(); now < until && !gone_ && signal_received() == nullptr;
       now = driver::now()) {
    turn(std::min(until - now, milliseconds(50)));
  }
}

bool Ping::ask_server() {
  // Messages with content are answered by a perf server, as in a latency run without an end.
  memory_.resize(2 * size_);
  link_ = std::make_unique<PerfLink>(*peer_.endpoint, peer_.connection);
  PerfPlan plan;
  plan.op = op_;
  plan.ping_pong = true;
  plan.depth = 1;
  plan.size = size_;
  plan.count = UINT64_MAX;
  for (int i = 0; i < 4 && op_ == PerfOp::kSend; ++i) {
    api::ReceiveRequest r;
    r.connection = peer_.connection;
    r.stream = 1;
    r.buffer = memory_.data() + size_;
    r.length = size_;
    Status status = Status::kOk;
    peer_.endpoint->post_receive({&r, 1}, status);
  }
  if (!link_->open()) {
    error_ = "no room for the control messages";
    return false;
  }
  link_->send(PerfStart{kPerfVersion, plan});
  const Time limit = driver::now() + nanoseconds(static_cast<int64_t>(options_.timeout * 1e9));
  while (!heard_ && !gone_ && driver::now() < limit && signal_received() == nullptr) {
    turn(milliseconds(50));
  }
  if (heard_ && *heard_) {
    if (const auto* refuse = std::get_if<PerfRefuse>(&**heard_)) error_ = refuse->text;
    if (const auto* ready = std::get_if<PerfReady>(&**heard_)) {
      if (ready->version == kPerfVersion) {
        grant_ = ready->grant;
        link_->send(PerfGo{});
        return true;
      }
      error_ = fmt::format("the server speaks version {} of metaroce perf, not {}", ready->version,
                           kPerfVersion);
    }
  }
  if (error_.empty()) {
    error_ = driver::to_string(peer_.peer) +
             " is no perf server: start `metaroce perf --server` there, or ping with --size 0";
  }
  return false;
}

bool Ping::begin() {
  peer_ = connect_peer(options_.peer, nanoseconds(static_cast<int64_t>(options_.timeout * 1e9)));
  if (peer_.code != kExitOk) {
    error_ = peer_.text;
    return false;
  }
  security_ = security_json(*peer_.endpoint, peer_.connection);
  line(fmt::format("PING {}: {} bytes, set up in {:.3f} ms, {}", driver::to_string(peer_.peer),
                   size_, ms(peer_.setup), security_["text"].get<std::string>()));
  return size_ == 0 || ask_server();
}

bool Ping::post() {
  api::WorkRequest w;
  w.connection = peer_.connection;
  w.stream = 1;
  // A Write without bytes touches no memory: whoever speaks the protocol accepts it.
  w.operation = size_ == 0 ? engine::Operation::kWrite : engine::Operation::kSend;
  if (op_ == PerfOp::kRead) w.operation = engine::Operation::kRead;
  if (op_ == PerfOp::kFetchAdd) w.operation = engine::Operation::kFetchAdd;
  w.remote_key = grant_.key;
  w.remote_address = grant_.address;
  w.operand = 1;
  w.local = w.result = memory_.data();
  w.length = size_;
  Status status = Status::kOk;
  if (peer_.endpoint->post({&w, 1}, status) == 1) return true;
  error_ = std::string("cannot post: ") + to_string(status);
  return false;
}

void Ping::print_answer(Duration rtt) {
  answers_.add(ms(rtt));
  messages_.push_back(ms(rtt));
  line(fmt::format("{} bytes from {}: seq={} time={:.3f} ms", size_, driver::to_string(peer_.peer),
                   answers_.sent, ms(rtt)));
}

void Ping::print_paths() {
  std::vector<api::PathStatus> paths(kMostPerfPaths);
  paths.resize(peer_.endpoint->path_status(peer_.connection, paths));
  for (const api::PathStatus& p : paths) {
    line(
        fmt::format("  path {:>3} plane {:>2} port {:>5} {:<10} srtt {:.3f} ms  min {:.3f} ms  "
                    "lost {}",
                    p.id, p.plane, p.source_port, engine::to_string(p.state), ms(p.srtt),
                    ms(p.min_rtt), p.counters.lost));
  }
}

int Ping::run() {
  if (!begin()) {
    say("metaroce ping: " + error_);
    return peer_.code == kExitNoConnection ? kNotAnswered : kOther;
  }
  const Duration interval = nanoseconds(static_cast<int64_t>(options_.interval * 1e9));
  const Duration timeout = nanoseconds(static_cast<int64_t>(options_.timeout * 1e9));
  Time next = driver::now();
  while (signal_received() == nullptr && !gone_) {
    answered_ = false;
    const Time sent = driver::now();
    if (!post()) break;
    ++answers_.sent;
    // An answer that is late is waited for: the transport does not lose messages.
    if (!wait_answer(sent + timeout) && !gone_ && signal_received() == nullptr) {
      line(fmt::format("no answer to seq={} within {} s", answers_.sent, options_.timeout));
      while (!wait_answer(driver::now() + timeout) && !gone_ && signal_received() == nullptr) {
      }
    }
    if (answered_) print_answer(driver::now() - sent);
    if (answered_ && options_.paths) print_paths();
    if (options_.count != 0 && answers_.sent >= options_.count) break;
    next = std::max(next + interval, driver::now());
    wait_until(next);
  }
  return end();
}

int Ping::end() {
  if (!error_.empty()) say("metaroce ping: " + error_);
  std::vector<api::PathStatus> paths(kMostPerfPaths);
  paths.resize(peer_.endpoint->path_status(peer_.connection, paths));
  PathCounters sum;
  for (const api::PathStatus& p : paths) {
    sum.tx_packets += p.counters.tx_packets;
    sum.lost += p.counters.lost;
    sum.tx_repair += p.counters.tx_repair;
  }
  const bool to_json = options_.peer.common.json == "-";
  std::FILE* out = to_json ? stderr : stdout;
  std::fputs(fmt::format("--- {} ---\n{} messages sent, {} answered; {} packets sent, {} lost, {} "
                         "sent again\nset-up {:.3f} ms, round trip min/avg/max/stddev = "
                         "{:.3f}/{:.3f}/{:.3f}/{:.3f} ms\n",
                         driver::to_string(peer_.peer), answers_.sent, answers_.received,
                         sum.tx_packets, sum.lost, sum.tx_repair, ms(peer_.setup), answers_.min,
                         answers_.mean(), answers_.max, answers_.deviation())
                 .c_str(),
             out);
  int code = answers_.received > 0 ? kAnswered : kNotAnswered;
  if (!options_.peer.common.json.empty()) {
    json report{
        {"command", "ping"},
        {"peer", driver::to_string(peer_.peer)},
        {"size", size_},
        {"setup_ms", ms(peer_.setup)},
        {"security", security_},
        {"sent", answers_.sent},
        {"answered", answers_.received},
        {"rtt_ms",
         {{"min", answers_.min},
          {"mean", answers_.mean()},
          {"max", answers_.max},
          {"stddev", answers_.deviation()}}},
        {"messages_ms", messages_},
        {"packets", {{"sent", sum.tx_packets}, {"lost", sum.lost}, {"repairs", sum.tx_repair}}},
        {"error", error_}};
    report["paths"] = json::array();
    for (const api::PathStatus& p : paths) {
      report["paths"].push_back({{"id", p.id},
                                 {"plane", p.plane},
                                 {"source_port", p.source_port},
                                 {"state", engine::to_string(p.state)},
                                 {"srtt_ms", ms(p.srtt)},
                                 {"min_rtt_ms", ms(p.min_rtt)},
                                 {"lost", p.counters.lost}});
    }
    if (to_json) {
      std::fputs((report.dump(2) + "\n").c_str(), stdout);
    } else if (!write_json(options_.peer.common.json, report)) {
      code = kOther;
    }
  }
  if (!gone_) close_peer(peer_);
  return code;
}

}  // namespace

int run_ping(const PingOptions& options) {
  PerfOp op = PerfOp::kSend;
  if (options.op == "read") op = PerfOp::kRead;
  if (options.op == "fetch-add") op = PerfOp::kFetchAdd;
  uint64_t size = parse_size(options.size, "--size");
  if (op == PerfOp::kFetchAdd) {
    if (size != 0 && size != 8) {
      throw UsageError{"--size " + options.size + ": fetch-add works on 8 bytes"};
    }
    size = 8;
  }
  if (size > kMostPerfSize) throw UsageError{"--size " + options.size + ": at most 1G"};
  make_settings(options.peer.common);
  make_faults(options.peer.common);
  install_signals();
  arm_signals();
  return Ping(options, op, size).run();
}

}  // namespace metaroce::tool
