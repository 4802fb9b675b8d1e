#include "perf_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "driver/common/clock.h"
#include "driver/common/socket_address.h"

namespace metaroce::tool {
namespace {

constexpr Duration kSignalLook = milliseconds(50);
constexpr Duration kPathsWait = milliseconds(500);
constexpr Duration kAnswerWait = seconds(5);
// Payload memory of the client itself; the server has a limit of its own.
constexpr uint64_t kClientMemory = 4ull << 30;

}  // namespace

PeerConnection connect_peer(const PeerOptions& options, Duration timeout, unsigned number) {
  PeerConnection out;
  api::EndpointOptions endpoint;
  endpoint.local = local_planes(options);
  endpoint.settings = make_settings(options.common);
  endpoint.faults = make_faults(options.common);
  endpoint.seed = options.common.seed;
  endpoint.reply_first = true;
  set_taps(options.common, number, endpoint);
  set_security(options.common.security, endpoint);
  const auto candidates = remote_planes(options);
  auto opened = api::Endpoint::open(endpoint);
  if (!opened) {
    out.code = kExitFailed;
    out.text = opened.error().text;
    return out;
  }
  out.endpoint = std::move(*opened);
  for (const auto& remote : candidates) {
    const Time begin = driver::now();
    const auto connected = out.endpoint->connect(remote, timeout);
    if (connected) {
      out.connection = *connected;
      out.setup = driver::now() - begin;
      out.peer = remote.front();
      break;
    }
    if (!out.text.empty()) out.text += "; ";
    out.text += connected.error().text;
  }
  if (out.connection == 0) {
    out.code = kExitNoConnection;
    return out;
  }
  out.text.clear();
  // Figures without the paths that are still being opened would mislead.
  const Time limit = driver::now() + kPathsWait;
  api::ConnectionEvent event;
  while (!out.paths_open && driver::now() < limit && signal_received() == nullptr) {
    out.endpoint->wait(milliseconds(20));
    while (out.endpoint->next_event(event)) {
      if (event.connection != out.connection) continue;
      if (event.kind == api::ConnectionEventKind::kPathsOpen) out.paths_open = true;
      if (event.kind == api::ConnectionEventKind::kClosed ||
          event.kind == api::ConnectionEventKind::kLost) {
        out.code = kExitNoConnection;
        out.text = api::describe_loss(event, Duration{endpoint.settings.death_timeout});
        return out;
      }
    }
  }
  return out;
}

void close_peer(PeerConnection& peer) {
  if (peer.connection == 0) return;
  peer.endpoint->close(peer.connection);
  const Time limit = driver::now() + milliseconds(300);
  std::array<api::Completion, 64> rest;
  api::ConnectionEvent event;
  for (bool closed = false; !closed && driver::now() < limit;) {
    peer.endpoint->wait(limit - driver::now());
    peer.endpoint->poll(rest);
    while (peer.endpoint->next_event(event)) {
      closed = closed || (event.connection == peer.connection &&
                          event.kind != api::ConnectionEventKind::kPathsOpen);
    }
  }
  peer.connection = 0;
}

void PerfClient::fail(int code, std::string text) {
  if (end_.code == kExitOk || end_.code == kExitInterrupted) end_ = {code, std::move(text)};
  state_ = State::kEnded;
}

PerfMoment PerfClient::moment(Time now) const {
  PerfMoment m;
  m.when = now;
  m.messages = run_->messages_sent();
  api::ConnectionStatus status;
  if (peer_.endpoint->connection_status(peer_.connection, status)) {
    m.sent = status.counters.bytes_sent;
    m.received = status.counters.bytes_received;
  }
  std::array<api::PathStatus, kMostPerfPaths> paths;
  const size_t n = peer_.endpoint->path_status(peer_.connection, paths);
  for (size_t i = 0; i < n; ++i) {
    m.repairs += paths[i].counters.tx_repair;
    m.good_paths += paths[i].state == engine::PathState::kGood;
    ++m.paths;
  }
  return m;
}

PerfResult PerfClient::run(Duration interval, const OnInterval& on_interval) {
  run_ = std::make_unique<PerfRun>(*peer_.endpoint, peer_.connection, plan_, PerfSide::kClient,
                                   kClientMemory);
  const std::string problem = run_->prepare();
  if (!problem.empty()) {
    fail(kExitFailed, problem);
  } else if (!link_.open()) {
    fail(kExitFailed, "no room for the control messages (settings max_receives, max_streams)");
  } else {
    link_.send(PerfStart{kPerfVersion, plan_});
  }
  const Time answer_limit = driver::now() + kAnswerWait;
  Time next = kNever;
  PerfMoment last;
  Time begin{};
  while (state_ != State::kEnded) {
    round(next);
    const Time now = driver::now();
    if (state_ == State::kAsked && now > answer_limit) {
      fail(kExitFailed, driver::to_string(peer_.peer) +
                            " is a MetaRoCE endpoint but does not answer as a perf server; start "
                            "`metaroce perf --server` there");
    }
    if (state_ != State::kRunning || interval.ns == 0 || !run_->measuring()) continue;
    if (next == kNever) {
      last = moment(now);
      begin = last.when;
      next = begin + interval;
    } else if (now >= next) {
      const PerfMoment current = moment(now);
      on_interval(begin, last, current);
      last = current;
      while (next <= now) next = next + interval;
    }
  }
  PerfResult result;
  result.plan = plan_;
  result.client = run_->report(driver::now());
  if (server_report_) result.server = *server_report_;
  result.complete = server_report_.has_value() && end_.code != kExitFailed;
  result.end = end_;
  return result;
}

void PerfClient::round(Time until) {
  const Time before = driver::now();
  Duration timeout = kSignalLook;
  for (const Time t : {until, run_->next_turn()}) {
    if (t > before && t - before < timeout) timeout = t - before;
  }
  api::Endpoint& endpoint = *peer_.endpoint;
  endpoint.wait(timeout);
  api::Completion done[64];
  const size_t n = endpoint.poll(done);
  const Time now = driver::now();
  for (size_t i = 0; i < n && state_ != State::kEnded; ++i) {
    if (done[i].connection != peer_.connection) continue;
    if (done[i].stream != 0) {
      run_->on_completion(done[i], now);
      continue;
    }
    const auto heard = link_.on_completion(done[i]);
    if (!heard) continue;
    if (*heard) {
      on_message(**heard, now);
    } else {
      fail(kExitFailed, driver::to_string(peer_.peer) + " does not speak as a perf server (" +
                            heard->error() + "); start `metaroce perf --server` there");
    }
  }
  api::ConnectionEvent event;
  while (endpoint.next_event(event)) on_event(event);
  if (state_ != State::kEnded) progress(now);
}

void PerfClient::on_event(const api::ConnectionEvent& event) {
  if (event.connection != peer_.connection || state_ == State::kEnded) return;
  if (event.kind != api::ConnectionEventKind::kClosed &&
      event.kind != api::ConnectionEventKind::kLost) {
    return;
  }
  peer_.connection = 0;
  fail(kExitFailed, "the server is gone: " + api::describe_loss(event, death_timeout_));
}

void PerfClient::on_message(const PerfMessage& message, Time now) {
  if (const auto* refuse = std::get_if<PerfRefuse>(&message)) {
    if (refuse->version != kPerfVersion) {
      return fail(kExitFailed,
                  fmt::format("the server speaks version {} of metaroce perf, this client version "
                              "{}; update the older side",
                              refuse->version, kPerfVersion));
    }
    return fail(kExitFailed, "the server refused: " + refuse->text);
  }
  if (const auto* ready = std::get_if<PerfReady>(&message)) {
    if (ready->version != kPerfVersion) {
      return fail(kExitFailed, fmt::format("the server speaks version {} of metaroce perf, this "
                                           "client version {}; update the older side",
                                           ready->version, kPerfVersion));
    }
    if (state_ != State::kAsked) return fail(kExitFailed, "the server sent READY twice");
    state_ = State::kRunning;
    link_.send(PerfGo{run_->grant()});
    run_->start(now, ready->grant);
    return;
  }
  if (state_ != State::kRunning) return fail(kExitFailed, "the server spoke before READY");
  if (const auto* mark = std::get_if<PerfMark>(&message)) {
    run_->on_peer_mark(now, *mark);
  } else if (const auto* done = std::get_if<PerfDone>(&message)) {
    run_->on_peer_done(now, *done);
  } else if (const auto* report = std::get_if<PerfReport>(&message)) {
    server_report_ = *report;
  } else {
    fail(kExitFailed, "the server sent a message that only a client sends");
  }
}

void PerfClient::progress(Time now) {
  link_.progress();
  if (!stopped_ && signal_received() != nullptr) {
    stopped_ = true;
    end_ = {kExitInterrupted, std::string("interrupted (") + signal_received() + ")"};
    if (state_ != State::kRunning) {
      state_ = State::kEnded;
      return;
    }
    run_->stop();
    link_.send(PerfStop{});
  }
  if (state_ != State::kRunning) return;
  run_->progress(now);
  if (!run_->error().empty()) {
    link_.send(PerfRefuse{kPerfVersion, run_->error()});
    return fail(kExitFailed, run_->error());
  }
  PerfMark mark;
  PerfDone done;
  if (run_->take_mark(mark)) link_.send(mark);
  if (run_->take_done(done)) link_.send(done);
  if (server_report_ && run_->finished() && run_->received_all()) state_ = State::kEnded;
}

}  // namespace metaroce::tool
