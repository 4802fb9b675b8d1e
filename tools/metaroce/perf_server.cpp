// metaroce perf --server: serves any number of clients, one after the other and at once.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "driver/common/clock.h"
#include "driver/common/socket_address.h"
#include "endpoint_news.h"
#include "perf_link.h"
#include "perf_options.h"
#include "perf_run.h"

namespace metaroce::tool {
namespace {

// A client that says nothing for so long is let go.
constexpr Duration kSilence = seconds(30);
constexpr Duration kSignalLook = milliseconds(100);

struct Session {
  Session(api::Endpoint& endpoint, api::ConnectionHandle connection, std::string who, Time now)
      : link(endpoint, connection), peer(std::move(who)), heard(now) {}

  PerfLink link;
  std::string peer;
  Time heard;
  std::unique_ptr<PerfRun> run;
  bool started = false;
  bool peer_done = false;
  bool reported = false;
  bool closing = false;
};

class Server {
 public:
  Server(const PerfOptions& options, std::unique_ptr<api::Endpoint> endpoint)
      : options_(options),
        memory_limit_(parse_size(options.memory, "--memory")),
        endpoint_(std::move(endpoint)) {}

  int run();

 private:
  using Sessions = std::map<api::ConnectionHandle, std::unique_ptr<Session>>;

  void round();
  void on_event(const api::ConnectionEvent& event);
  void on_completion(const api::Completion& completion, Time now);
  void on_message(Session& session, const PerfMessage& message, Time now);
  void on_start(Session& session, const PerfStart& start);
  void progress(Session& session, Time now);
  void refuse(Session& session, const std::string& text);
  void end(Sessions::iterator at);
  void log(const Session& session, const std::string& text) const;

  const PerfOptions& options_;
  const uint64_t memory_limit_;
  std::unique_ptr<api::Endpoint> endpoint_;
  Sessions sessions_;
  uint64_t served_ = 0;
};

void Server::log(const Session& session, const std::string& text) const {
  if (!options_.peer.common.quiet) say("metaroce perf: " + session.peer + ": " + text);
}

int Server::run() {
  while (signal_received() == nullptr) {
    if (options_.once && served_ > 0 && sessions_.empty()) return kExitOk;
    round();
  }
  // A client learns at once that its server is gone.
  for (auto& [connection, session] : sessions_) endpoint_->close(connection);
  const Time limit = driver::now() + milliseconds(300);
  while (!sessions_.empty() && driver::now() < limit) round();
  return kExitInterrupted;
}

void Server::round() {
  Time turn = kNever;
  for (const auto& [connection, session] : sessions_) {
    if (session->run) turn = earlier(turn, session->run->next_turn());
  }
  const Time before = driver::now();
  endpoint_->wait(turn > before && turn - before < kSignalLook ? turn - before : kSignalLook);
  Time now{};
  take_news(
      *endpoint_, [this](const api::ConnectionEvent& event) { on_event(event); },
      [&](std::span<const api::Completion> done) {
        now = driver::now();
        for (const api::Completion& c : done) on_completion(c, now);
      });
  for (auto& [connection, session] : sessions_) progress(*session, now);
}

void Server::on_event(const api::ConnectionEvent& event) {
  if (event.kind == api::ConnectionEventKind::kAccepted) {
    auto session = std::make_unique<Session>(*endpoint_, event.connection,
                                             driver::to_string(event.peer), driver::now());
    if (!session->link.open()) {
      log(*session, "no room for another client (settings max_receives, max_streams)");
      endpoint_->close(event.connection);
      return;
    }
    sessions_[event.connection] = std::move(session);
    return;
  }
  const auto found = sessions_.find(event.connection);
  if (found == sessions_.end()) return;
  if (event.kind != api::ConnectionEventKind::kClosed &&
      event.kind != api::ConnectionEventKind::kLost &&
      event.kind != api::ConnectionEventKind::kFailed) {
    return;
  }
  Session& session = *found->second;
  if (event.kind != api::ConnectionEventKind::kClosed) {
    log(session, "gone: " + std::string(to_string(event.status)));
  } else if (session.run && !session.reported && !session.closing) {
    log(session, "left before the end of its run");
  }
  end(found);
}

void Server::end(Sessions::iterator at) {
  served_ += at->second->run != nullptr;
  sessions_.erase(at);
}

void Server::on_completion(const api::Completion& completion, Time now) {
  const auto found = sessions_.find(completion.connection);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  if (completion.stream != 0) {
    if (session.run) session.run->on_completion(completion, now);
    return;
  }
  const auto heard = session.link.on_completion(completion);
  if (!heard || session.closing) return;
  session.heard = now;
  if (!*heard) return refuse(session, heard->error());
  on_message(session, **heard, now);
}

void Server::on_message(Session& session, const PerfMessage& message, Time now) {
  if (const auto* start = std::get_if<PerfStart>(&message)) return on_start(session, *start);
  if (std::holds_alternative<PerfRefuse>(message)) {
    session.closing = true;
    endpoint_->close(session.link.connection());
    return;
  }
  if (!session.run) return refuse(session, "the first message has to be START");
  if (const auto* go = std::get_if<PerfGo>(&message)) {
    if (session.started) return refuse(session, "GO came twice");
    session.started = true;
    session.run->start(now, go->grant);
  } else if (const auto* mark = std::get_if<PerfMark>(&message)) {
    session.run->on_peer_mark(now, *mark);
  } else if (const auto* done = std::get_if<PerfDone>(&message)) {
    session.run->on_peer_done(now, *done);
    session.peer_done = true;
  } else if (std::holds_alternative<PerfStop>(message)) {
    session.run->stop();
  } else {
    refuse(session, "a message that only a server sends");
  }
}

void Server::on_start(Session& session, const PerfStart& start) {
  if (start.version != kPerfVersion) {
    return refuse(session, fmt::format("the client speaks version {} of metaroce perf, this server "
                                       "version {}; update the older side",
                                       start.version, kPerfVersion));
  }
  if (session.run) return refuse(session, "START came twice");
  const std::string problem = check_plan(start.plan);
  if (!problem.empty()) return refuse(session, problem);
  auto run = std::make_unique<PerfRun>(*endpoint_, session.link.connection(), start.plan,
                                       PerfSide::kServer, memory_limit_);
  const std::string failure = run->prepare();
  session.run = std::move(run);  // receives may be posted: their memory stays until the end
  if (!failure.empty()) return refuse(session, "server: " + failure);
  if (options_.peer.common.verbose) {
    log(session, fmt::format("{} {}, {} bytes", start.plan.ping_pong ? "latency" : "goodput",
                             to_string(start.plan.op), start.plan.size));
  }
  session.link.send(PerfReady{kPerfVersion, session.run->grant()});
}

void Server::refuse(Session& session, const std::string& text) {
  log(session, "refused: " + text);
  session.link.send(PerfRefuse{kPerfVersion, text});
  // The client closes when it has read the reason; a hostile one is let go after a while.
  session.closing = true;
}

void Server::progress(Session& session, Time now) {
  session.link.progress();
  const auto connection = session.link.connection();
  if (session.closing || !session.started) {
    if (now - session.heard > (session.closing ? seconds(2) : kSilence)) {
      endpoint_->close(connection);
      session.closing = true;
      session.heard = now;
    }
    return;
  }
  PerfRun& run = *session.run;
  if (sessions_.size() > 1) run.note_shared();
  run.progress(now);
  if (!run.error().empty() && !session.reported) {
    return refuse(session, "server: " + run.error());
  }
  PerfMark mark;
  PerfDone done;
  if (run.take_mark(mark)) session.link.send(mark);
  if (run.take_done(done)) session.link.send(done);
  if (session.reported || !run.finished() || !run.received_all()) return;
  if (!session.peer_done && (run.plan().direction & kForward) != 0) return;
  session.reported = true;
  session.link.send(run.report(now));
}

}  // namespace

int run_perf_server(const PerfOptions& options) {
  api::EndpointOptions endpoint;
  endpoint.local = local_planes(options.peer);
  endpoint.port = options.peer.port;
  endpoint.accept = true;
  endpoint.settings = make_settings(options.peer.common);
  endpoint.faults = make_faults(options.peer.common);
  endpoint.seed = options.peer.common.seed;
  endpoint.reply_first = true;
  set_taps(options.peer.common, 0, endpoint);
  set_security(options.peer.common.security, endpoint);
  parse_size(options.memory, "--memory");
  install_signals();
  auto opened = api::Endpoint::open(endpoint);
  if (!opened) {
    say("metaroce perf: " + opened.error().text);
    return kExitFailed;
  }
  if (!options.peer.common.quiet && !(*opened)->buffer_warning().empty()) {
    say("metaroce perf: warning: " + (*opened)->buffer_warning());
  }
  if (!options.peer.common.quiet) {
    say("metaroce perf: listening on " + join_addresses((*opened)->local()) + " (UDP), " +
        policy_text(options.peer.common.security));
  }
  arm_signals();
  return Server(options, std::move(*opened)).run();
}

}  // namespace metaroce::tool
