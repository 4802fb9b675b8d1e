// The native in-process API: one engine on one UDP driver.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "base/random_source.h"
#include "base/settings.h"
#include "driver/common/fault_injector.h"
#include "driver/common/fault_spec.h"
#include "driver/udp/udp_options.h"
#include "engine/api.h"
#include "memory/regions.h"
#include "secure/config.h"

namespace metaroce::driver {
class UdpDriver;
}
namespace metaroce::engine {
class Engine;
struct EngineConfig;
struct ConnectRequest;
}  // namespace metaroce::engine
namespace metaroce::telemetry {
class JsonTrace;
struct Tune;
class PcapWriter;
class Recorder;
class StatPage;
}  // namespace metaroce::telemetry

namespace metaroce::api {

using engine::Completion;
using engine::ConnectionEvent;
using engine::ConnectionEventKind;
using engine::ConnectionHandle;
using engine::ConnectionStatus;
using engine::EngineMemory;
using engine::PathEvent;
using engine::PathStatus;
using engine::ReceiveRequest;
using engine::WorkRequest;

/// Why a call failed. `text` is one line that names the peer and what to check.
struct Error {
  Status status = Status::kOk;
  int code = 0;  ///< errno of the system call that failed, or 0
  std::string text;
};

struct EndpointOptions {
  /// One address a plane; empty: one plane on whatever interface. Ports are ignored.
  std::vector<SocketAddress> local;
  uint16_t port = 0;    ///< service port on every plane; 0: a free one
  bool accept = false;  ///< peers may connect
  Settings settings;
  driver::FaultSpec faults;
  /// Of ids and ports, to repeat a run; 0: from the system's cryptographic generator. Not with
  /// keys: those of a connection could be guessed.
  uint64_t seed = 0;
  secure::Config security;  ///< keys; the default is plain
  std::string identity;     ///< which own key connect() uses, by name; "": the first
  std::string peer_key;     ///< the pinned key that the peer of connect() must have; "": any
  uint32_t receive_buffer = 8u << 20;
  uint32_t send_buffer = 1u << 20;
  Duration spin = microseconds(50);
  /// Not with keys: what is needed to repeat the calls would be the keys themselves.
  std::string record;  ///< file that gets every call of the engine (docs/telemetry.md); "": none
  std::string trace;   ///< file that gets every event of the engine (JSON text sequences); "": none
  bool publish = true;  ///< show the connections to `metaroce stat`
  std::string pcap;     ///< pcapng file that gets every datagram; "": none
  /// wait() and poll() return what happened before they send what is owed for it, so that an answer
  /// posted at once leaves before the acknowledgements. For owners that always come back soon: what
  /// is owed waits for their next call.
  bool reply_first = false;
};

/// The keys of one attempt by name; what is not given is as in EndpointOptions.
struct KeyNames {
  std::optional<std::string> identity;
  std::optional<std::string> peer_key;
};

struct Region {
  uint32_t index = 0;
  uint32_t key = 0;
  uint64_t address = 0;  ///< what peers name as the address of its first byte
};

/// One connection to a peer, as accept and connect return it.
struct Peer {
  ConnectionHandle connection = 0;
  SocketAddress address;
};

/// One engine and one driver. Belongs to one thread: the calls that return what happened also move
/// the packets, so the owner has to call poll() or wait() often. Only wake() may be called from
/// any thread. More cores are used by more endpoints, each with its own port and connections.
class Endpoint {
 public:
  static Expected<std::unique_ptr<Endpoint>, Error> open(const EndpointOptions& options);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// The planes with the service port filled in.
  const std::vector<SocketAddress>& local() const;
  uint16_t port() const;

  /// Asks `peer` ([0] first, [i] belongs to plane i) and waits for the answer. kUnresponsive after
  /// `timeout`; kRefused or kUnreachable as soon as the network says so; kMismatch; kFull.
  Expected<ConnectionHandle, Error> connect(std::span<const SocketAddress> peer, Duration timeout);
  /// Asks and does not wait: kConnected or kFailed follows as an event.
  Expected<ConnectionHandle, Error> start_connect(std::span<const SocketAddress> peer,
                                                  const KeyNames& keys = {});
  /// What an event kFailed of start_connect() means, in one line.
  Error failure(const ConnectionEvent& event) const;
  /// Waits for a peer that connects; kUnresponsive after `timeout`.
  Expected<Peer, Error> accept(Duration timeout);
  /// Flushes what is posted and tells the peer. The event kClosed follows.
  void close(ConnectionHandle connection, uint32_t code = 0);

  /// `memory` has to stay valid until deregister_region(). Rights: memory::access.
  Expected<Region, Error> register_region(std::span<std::byte> memory, uint8_t rights);
  Status deregister_region(const Region& region);
  /// A key of its own for a part of a region, for connections of one domain (0: all).
  Expected<Region, Status> open_window(const Region& region, uint64_t offset, uint64_t length,
                                       uint8_t rights, uint32_t domain);
  Status set_domain(ConnectionHandle connection, uint32_t domain);

  // As the functions of engine::Engine.
  Expected<uint32_t, Status> create_shared_queue();
  Status destroy_shared_queue(uint32_t queue);
  Status arm_shared_queue(uint32_t queue, uint32_t count);
  /// Receives that no message has taken.
  uint32_t shared_queue_length(uint32_t queue) const;
  Status set_stream_options(ConnectionHandle connection, uint16_t stream,
                            const engine::StreamOptions& options);
  Status reset_stream(ConnectionHandle connection, uint16_t stream);
  Status drain_stream(ConnectionHandle connection, uint16_t stream);

  /// Take as many requests as fit and return their number; `status` says why the next one did not.
  size_t post(std::span<const WorkRequest> requests, Status& status);
  size_t post_receive(std::span<const ReceiveRequest> requests, Status& status);

  /// Moves packets without blocking and returns what completed.
  size_t poll(std::span<Completion> out);
  /// Connections that came, opened their paths, closed or died since the last call.
  bool next_event(ConnectionEvent& out);
  /// Moves packets until there is a completion or an event to fetch (true), or until wake() or
  /// `timeout` (false).
  bool wait(Duration timeout);
  void wake();
  /// Path changes since the last call, at most out.size().
  size_t poll_path_events(std::span<PathEvent> out);

  // The pieces of wait(), for loops that wait in a way of their own.

  /// One round without blocking; returns the packets and deadlines handled.
  size_t step();
  /// True while a completion or an event waits to be fetched.
  bool has_news() const;
  /// Readable while step() has something from the kernel to look at; for epoll and poll only.
  int fd() const;
  /// Readable after wake() until take_wake().
  int wake_fd() const { return wake_fd_; }
  bool take_wake();
  /// When step() is due although no descriptor is readable; kNever: not.
  Time next_wake() const;
  /// Call before step() when fd() was readable.
  void look_soon();
  bool spinning() const;
  /// Spins for a while after the last work, then blocks until there is something to do, wake(), or
  /// `timeout`. Call it when step() returned 0.
  void block(Duration timeout);

  /// What a failed set-up means, in one line that names the peer and what to check.
  Error connect_error(const SocketAddress& peer, Status status, Duration timeout,
                      uint32_t detail = 0) const;

  bool connection_status(ConnectionHandle connection, ConnectionStatus& out) const;
  size_t path_status(ConnectionHandle connection, std::span<PathStatus> out) const;
  std::span<const uint64_t> drops() const;
  EngineMemory memory() const;
  const driver::UdpCounters& udp_counters() const;
  const driver::FaultTally& rx_tally() const;
  const driver::FaultTally& tx_tally() const;
  /// Packets given to and taken from the engine: with the counters of the driver they say how many
  /// packets got lost between the two, whoever took them.
  uint64_t packets_in() const { return packets_in_; }
  uint64_t packets_out() const { return packets_out_; }
  /// Black hole on a plane, both directions, on or off: for demonstrations.
  void set_plane_dark(uint8_t plane, bool dark);
  /// Why a recording or capture ended before the endpoint did (disk full ...), or "".
  std::string telemetry_error() const;
  /// One line when the system granted less buffer than asked for, else "".
  const std::string& buffer_warning() const;

 private:
  struct CountingEngine;
  CountingEngine tapped();
  engine::ConnectRequest request_to(std::span<const SocketAddress> peer,
                                    const KeyNames& keys = {}) const;
  Error request_error(const engine::ConnectRequest& request, Status status) const;
  Expected<void, Error> open_taps(engine::EngineConfig& config, uint64_t seed);
  explicit Endpoint(const EndpointOptions& options);
  uint64_t tune(const telemetry::Tune& what);
  size_t round();
  bool collect();
  bool take_event(ConnectionHandle connection, ConnectionEventKind kind, ConnectionEvent& out);

  EndpointOptions options_;
  std::unique_ptr<RandomSource> random_;
  std::unique_ptr<driver::UdpDriver> driver_;
  std::unique_ptr<telemetry::Recorder> recorder_;
  std::unique_ptr<telemetry::PcapWriter> pcap_;
  std::unique_ptr<telemetry::JsonTrace> trace_;
  std::unique_ptr<telemetry::StatPage> page_;
  std::unique_ptr<engine::Engine> engine_;  // speaks to the trace as long as it lives
  Time last_round_{0};
  std::vector<Completion> completions_;
  size_t completions_begin_ = 0;
  size_t completions_end_ = 0;
  std::deque<ConnectionEvent> events_;
  uint64_t packets_in_ = 0;
  uint64_t packets_out_ = 0;
  std::atomic<bool> woken_{false};
  int wake_fd_ = -1;
};

/// What a connection's end means, in one line that names the peer and what to check.
std::string describe_loss(const ConnectionEvent& event, Duration death_timeout);

}  // namespace metaroce::api
