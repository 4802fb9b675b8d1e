// The sans-IO face of the transport: a function of its inputs. No socket, clock, thread, random
// device or log; nothing is allocated after construction and connect/listen.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/events.h"
#include "base/rng.h"
#include "base/settings.h"
#include "engine/api.h"
#include "memory/regions.h"
#include "secure/config.h"

namespace metaroce::engine {

/// Sums over an engine's life: connections that live and that are gone.
struct EngineTotals {
  EndpointCounters endpoint;
  PathCounters paths;
  ConnectionCounters connections;
};

struct EngineConfig {
  Settings settings;
  std::vector<SocketAddress> local;  ///< one address a plane, port = our service port
  std::vector<uint16_t> plane_mtu;   ///< IP MTU of each plane, as its interface says
  bool accept = false;               ///< answer HELLO packets
  uint16_t first_source_port = 0;    ///< entropy ports start here; 0: drawn from the Rng
  uint32_t payload_alignment = 16;
  uint16_t versions = 1;        ///< bit v set = version v is offered and accepted
  secure::Config security;      ///< keys; the default is plain
  EventSink* events = nullptr;  ///< hears what happens inside; null: nobody
  bool memory = true;           ///< false: addresses mean nothing here (replay): all are left alone
};

struct ConnectRequest {
  /// The peer's addresses; [0] is asked first, the others are hints for planes with the same index.
  std::vector<SocketAddress> peer;
  /// Which of EngineConfig::security is used: a pre-shared key or own key by name (empty: the
  /// first), and the pinned key that the peer must have (empty: any).
  std::string identity = {};
  std::string peer_key = {};
};

class Engine {
 public:
  Engine(EngineConfig config, Rng rng);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Packets. At most one Placement per packet; returns their number. They are to be carried out
  // before the next call of any kind. placements.size() must be at
  // least packets.size().
  size_t on_packets(Time now, std::span<const RxPacket> packets, std::span<Placement> placements);
  /// For a datagram as received, before on_packets, when any connection may be secured: decrypts a
  /// sealed one in place, `body` is its length without the tag then. kPlain: verify the CRC.
  Opening open(Time now, std::span<std::byte> datagram, const SocketAddress& from, uint8_t plane,
               size_t& body);
  /// Fills runs to send now; returns their number. Call until it returns less than asked for. What
  /// they point to is good until the next call.
  size_t poll_transmit(Time now, std::span<TxRun> runs);
  /// Earliest time at which on_deadline wants to be called; kNever if there is none.
  Time next_deadline() const;
  void on_deadline(Time now);

  // Work. post_* return how many of the span were taken; `status` says why the next was not.
  size_t post(Time now, std::span<const WorkRequest> requests, Status& status);
  size_t post_receives(Time now, std::span<const ReceiveRequest> requests, Status& status);
  size_t poll_completions(std::span<Completion> out);
  size_t poll_events(std::span<ConnectionEvent> out);
  /// The newest are kept; `missed` of the first says how many were dropped before it.
  size_t poll_path_events(std::span<PathEvent> out);

  // Memory. `base` may be null for a region without memory (simulation): then placements have a
  // null address. Remote addresses are `remote_base` + offset; remote_base is base unless given.
  memory::Regions& regions();

  // Shared receive queues: streams of any connection take their receives from one (MR-MSG-027).
  // Receives are posted to it by ReceiveRequest::shared_queue.
  Expected<uint32_t, Status> create_shared_queue();
  /// kUnknownHandle, or kFull while streams take from it; what is posted to it is forgotten.
  Status destroy_shared_queue(uint32_t queue);
  /// Tells once, by kQueueLow, when fewer than `count` receives are left; 0: never (MR-MSG-062).
  Status arm_shared_queue(uint32_t queue, uint32_t count);
  uint32_t shared_queue_length(uint32_t queue) const;

  // Streams. kUnknownHandle: no such connection or queue; kInvalid: receives were posted already.
  Status set_stream_options(ConnectionHandle connection, uint16_t stream,
                            const StreamOptions& options);
  /// Ends both directions of a stream: all that is posted is flushed and the peer told.
  Status reset_stream(Time now, ConnectionHandle connection, uint16_t stream);
  /// No request is taken any more; the peer's receives end when the last message was delivered.
  Status drain_stream(Time now, ConnectionHandle connection, uint16_t stream);
  /// Makes a stream as new that both sides have reset (MR-MSG-007). kFull: not over yet.
  Status reopen_stream(ConnectionHandle connection, uint16_t stream);
  /// The group of connections whose keys a connection may use; 0 at first.
  Status set_domain(ConnectionHandle connection, memory::Domain domain);

  // Connections.
  Expected<ConnectionHandle, Status> connect(Time now, const ConnectRequest& request);
  /// Flushes what is posted and tells the peer; who wants it delivered waits for its completions
  /// first. `code` is one of wire::close_code: the peer's operations end with kClosed for kNormal
  /// and kShutdown, with kPeerFailed for any other (an abort), and its event carries the code.
  void close(Time now, ConnectionHandle connection, uint32_t code);
  /// What the driver learned about a path or plane; connection 0 and path 0xFF: a whole plane.
  void on_network_hint(Time now, ConnectionHandle connection, uint8_t path, NetworkHint hint,
                       uint32_t value);
  /// The local address of a plane is another one now, or none (family 0): peers are told by
  /// ADD_ADDR on the other planes and the paths of the plane open again (MR-CONN-026).
  void set_local_address(Time now, uint8_t plane, const SocketAddress& address);
  /// Local link state of a plane (MR-HEALTH).
  void on_plane_state(Time now, uint8_t plane, bool up);
  /// Gives a path another source port: epoch + 1 (planned port change, MR-LOSS).
  bool change_port(Time now, ConnectionHandle connection, uint8_t path, uint16_t port);

  // Looking in.
  bool connection_status(ConnectionHandle connection, ConnectionStatus& out) const;
  /// As above, with ages and the stall reason as of `now` instead of the last call with a time.
  bool connection_status(Time now, ConnectionHandle connection, ConnectionStatus& out) const;
  /// Handles of connections, in the order of their index; returns how many there are.
  size_t connections(std::span<ConnectionHandle> out) const;
  EngineTotals totals() const;
  EngineMemory memory() const;
  size_t path_status(ConnectionHandle connection, std::span<PathStatus> out) const;
  /// Drops by reason (wire::DropReason) since construction.
  std::span<const uint64_t> drops() const;
  /// True when nothing posted is unfinished and no acknowledgement is owed.
  bool idle() const;
  /// A hash over the protocol state, for "same seed same hash" and "state unchanged" checks.
  uint64_t state_hash() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metaroce::engine
