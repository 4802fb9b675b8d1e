// The client's side of `metaroce perf`: one run over one connection.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "perf_link.h"
#include "perf_options.h"
#include "perf_run.h"

namespace metaroce::tool {

struct PerfEnd {
  int code = kExitOk;
  std::string text;  ///< why it failed or was interrupted
};

/// What the figures of an interval line come from.
struct PerfMoment {
  Time when{};
  uint64_t sent = 0;      ///< payload bytes the server has accepted
  uint64_t received = 0;  ///< payload bytes placed here
  uint64_t messages = 0;  ///< measured
  uint64_t repairs = 0;
  uint32_t good_paths = 0;
  uint32_t paths = 0;
};

struct PerfResult {
  PerfPlan plan;
  PerfReport client;
  PerfReport server;
  bool complete = false;  ///< both reports are there
  PerfEnd end;
};

/// An endpoint with a connection to the peer, as perf and ping use it.
struct PeerConnection {
  std::unique_ptr<api::Endpoint> endpoint;
  api::ConnectionHandle connection = 0;
  SocketAddress peer;
  Duration setup{};  ///< from HELLO to the answer
  bool paths_open = false;
  int code = kExitOk;
  std::string text;  ///< why there is none
};

/// Connects to the first of the addresses that answers; waits a moment for all paths.
/// `number`: of the connection, for the names of recordings.
PeerConnection connect_peer(const PeerOptions& options, Duration timeout, unsigned number = 0);
/// Tells the peer and waits until it knows, but not for long.
void close_peer(PeerConnection& peer);

class PerfClient {
 public:
  using OnInterval = std::function<void(Time begin, const PerfMoment&, const PerfMoment&)>;

  PerfClient(PeerConnection& peer, const PerfPlan& plan, Duration death_timeout)
      : peer_(peer),
        plan_(plan),
        death_timeout_(death_timeout),
        link_(*peer.endpoint, peer.connection) {}

  /// Calls `on_interval` every `interval` while figures are taken (0: never).
  PerfResult run(Duration interval, const OnInterval& on_interval);

 private:
  enum class State : uint8_t { kAsked, kRunning, kEnded };
  void round(Time until);
  void on_message(const PerfMessage& message, Time now);
  void on_event(const api::ConnectionEvent& event);
  void progress(Time now);
  void fail(int code, std::string text);
  PerfMoment moment(Time now) const;

  PeerConnection& peer_;
  const PerfPlan plan_;
  const Duration death_timeout_;
  PerfLink link_;
  std::unique_ptr<PerfRun> run_;
  State state_ = State::kAsked;
  bool stopped_ = false;
  std::optional<PerfReport> server_report_;
  PerfEnd end_;
};

}  // namespace metaroce::tool
