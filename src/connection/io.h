// What goes in and out of an engine: plain structs, shared by drivers, api/ and the simulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/address.h"
#include "base/counters.h"
#include "base/status.h"
#include "base/time.h"
#include "base/types.h"
#include "message/work.h"
#include "wire/types.h"

namespace metaroce::secure {
class Session;
}

namespace metaroce::connection {

/// One received packet, verified by the driver: `bytes` ends before the trailer.
struct RxPacket {
  std::span<const std::byte> bytes;
  Ecn ecn = Ecn::kNotEct;
  uint8_t plane = 0;  ///< index into EngineConfig::local of the address it came to
  SocketAddress from;
  bool sealed = false;  ///< Engine::open decrypted it: it comes from the peer and nobody else
};

/// What Engine::open found a datagram to be.
enum class Opening : uint8_t {
  kPlain,    ///< not sealed: the driver verifies its CRC
  kOpened,   ///< decrypted in place
  kDropped,  ///< of a secured connection and not good; counted
};

/// "Copy this payload there": carried out by the driver before its next poll of the engine.
struct Placement {
  uint32_t packet = 0;         ///< index into the span given to on_packets
  uint32_t payload_begin = 0;  ///< first payload byte within that packet
  uint32_t length = 0;
  uint32_t region = 0;           ///< region index, or kReceiveBuffer
  uint64_t offset = 0;           ///< within the region
  std::byte* address = nullptr;  ///< where to copy to; null for a region without memory
  /// Not empty: only `first` bytes go to `address`, the others into these, one after the other.
  std::span<const message::Segment> rest;
  uint32_t first = 0;
};
inline constexpr uint32_t kReceiveBuffer = 0xFFFFFFFFu;

inline constexpr size_t kRunHeaderBytes = 1280;

/// A run: up to 15 packets of one path to be sent in one call. All have the same size on the wire
/// except that the last may be shorter. Headers stand one after the other in `headers`, each
/// followed by `trailer` bytes that the driver fills with the CRC or tag over header and payload.
struct TxRun {
  SocketAddress from;  ///< the plane's local address; port = the path's entropy
  SocketAddress to;    ///< the peer's address on that plane, its service port
  uint8_t plane = 0;   ///< local plane index
  uint8_t path = 0;
  uint8_t count = 0;
  uint8_t trailer = wire::kCrcBytes;
  secure::Session* session = nullptr;  ///< seals the packets; null: a CRC each
  Ecn ecn = Ecn::kEct0;
  bool is_data = false;     ///< sequenced packets (data, control, probe); false: ACK, handshake
  bool needs_df = true;     ///< padded probe or data: never fragment
  uint32_t connection = 0;  ///< handle it belongs to, 0 for none; names the path in errors
  uint16_t header_length[kMaxRun];
  uint32_t payload_length[kMaxRun];
  const std::byte* payload[kMaxRun];  ///< null with a length: that many zero bytes (padding), or
                                      ///< bytes of a region without memory
  std::byte headers[kRunHeaderBytes];
};

using message::Completion;
using message::ConnectionHandle;
using message::Operation;
using message::ReceiveRequest;
using message::Segment;
using message::StreamOptions;
using message::WorkRequest;

enum class ConnectionEventKind : uint8_t {
  kAccepted,   ///< a peer connected to us
  kConnected,  ///< our connect succeeded
  kPathsOpen,  ///< every path of every plane is open in our sending direction
  kFailed,     ///< our connect failed, see status
  kClosed,     ///< the peer closed, or our close is done
  kLost,       ///< the connection died, see status
  kQueueLow,   ///< a shared receive queue (detail) became short (MR-MSG-062)
};

struct ConnectionEvent {
  ConnectionEventKind kind = ConnectionEventKind::kAccepted;
  ConnectionHandle connection = 0;
  Status status = Status::kOk;
  /// kClosed: the peer's CLOSE code. kFailed after a REFUSE: its reason 8, TLV 8, versions 16.
  uint32_t detail = 0;
  SocketAddress peer;
};

enum class PathState : uint8_t { kOpening, kValidating, kGood, kSuspect, kDead, kClosed };
const char* to_string(PathState state);

/// A path changed its state. For people and books: no decision of a program needs it.
struct PathEvent {
  ConnectionHandle connection = 0;
  uint8_t path = 0;
  uint8_t plane = 0;
  PathState from = PathState::kOpening;
  PathState to = PathState::kOpening;
  uint32_t missed = 0;  ///< events that were dropped before this one because nobody fetched them
};

/// What the network told the driver about something it sent; a hint, never a verdict.
enum class NetworkHint : uint8_t {
  kPortUnreachable,  ///< ICMP port unreachable or ECONNREFUSED
  kHostUnreachable,  ///< ICMP host/net unreachable or prohibited
  kTooBig,           ///< EMSGSIZE or ICMP packet too big; value = the reported MTU, 0 if none
  kNotSent,          ///< the datagrams never left the host
};

/// Why a path is in its state: the last thing that changed it.
enum class PathChange : uint8_t {
  kNone,
  kOpened,        ///< by the handshake, or PATH_OPEN is on its way
  kConfirmed,     ///< the peer took PATH_OPEN; its address is being validated
  kValidated,     ///< a padded probe was answered
  kSilent,        ///< a probe went unanswered
  kUnanswered,    ///< more probes went unanswered than its loss explains
  kAnswered,      ///< it was heard of again
  kLinkDown,      ///< the plane's own link is down
  kPeerReport,    ///< the peer says that the plane is down
  kNotTaken,      ///< the peer has no room for it
  kEnded,         ///< the connection ended
};
const char* to_string(PathChange change);

/// What a connection's work waits for, looked at from outside.
enum class StallReason : uint8_t {
  kNone,         ///< it moves
  kApplication,  ///< nothing is posted
  kSetup,        ///< not open yet
  kWindow,       ///< congestion window, or the packets the peer can take at once, are in flight
  kHint,         ///< the receiver's rate hint (hints are not enforced yet)
  kCredit,       ///< the peer has no receive for it, or asked to wait
  kCpsnWindow,   ///< an old packet is undecided, newer ones have no number left
  kOrderHole,    ///< messages arrived behind one that did not
  kPathDead,     ///< no path answers
  kPool,         ///< a pool of the engine is empty
  kClosed,       ///< closing or closed
};
const char* to_string(StallReason reason);

struct PathStatus {
  uint8_t id = 0;
  uint8_t plane = 0;
  PathState state = PathState::kOpening;
  uint16_t source_port = 0;
  uint16_t pmtu = 0;
  uint32_t window = 0;     ///< bytes
  uint32_t in_flight = 0;  ///< bytes
  Duration srtt;
  Duration min_rtt;
  bool ecn_bleached = false;
  uint8_t epoch = 0;
  uint32_t in_flight_packets = 0;
  uint32_t loss_ppm = 0;   ///< recent, as the path judges it
  PathChange change = PathChange::kNone;
  Time changed_at{0};      ///< when it got into its state
  uint16_t peer_port = 0;  ///< the service port it sends to
  PathCounters counters;
};

/// Records in use of the pools that all connections share.
struct EnginePools {
  uint32_t requests = 0;
  uint32_t responses = 0;  ///< to Reads and atomics of peers
  uint32_t parked = 0;     ///< of them: wait for their turn
  uint32_t retries = 0;
  uint32_t claims = 0;
  uint32_t copies = 0;
  uint32_t send_lists = 0;  ///< segment lists
  uint32_t receive_lists = 0;
  uint32_t open_messages = 0;
  uint32_t receives = 0;
};

/// What the connections of an engine hold, in bytes; pools of fixed size are not in it.
struct EngineMemory {
  uint32_t connections = 0;
  uint32_t resting = 0;          ///< of them: paths folded (MR-CONN-040)
  uint64_t state_bytes = 0;      ///< fixed state of all connections
  uint64_t counter_bytes = 0;    ///< counters of all their paths
  uint32_t awake_paths = 0;      ///< paths unfolded now
  uint32_t awake_paths_most = 0; ///< most there ever were: so much of the pool was touched
  uint32_t path_bytes = 0;       ///< of the pool, for each of these
  EnginePools pools;
};

enum class ConnectionState : uint8_t {
  kHelloSent,  ///< initiator, waits for ACCEPT
  kAccepting,  ///< responder, sent ACCEPT, waits for CONFIRM
  kOpen,
  kClosing,    ///< our CLOSE is on its way
  kTimeWait,   ///< closed, still answers repetitions
  kDead,       ///< may be removed
};
const char* to_string(ConnectionState state);

struct ConnectionStatus {
  ConnectionState state = ConnectionState::kDead;
  SocketAddress peer;
  uint32_t payload = 0;  ///< bytes a full packet carries now
  uint32_t window = 0;   ///< bytes
  uint32_t in_flight_packets = 0;
  uint32_t paths = 0;
  uint32_t planes = 0;
  StallReason stall = StallReason::kNone;
  bool has_work = false;   ///< something posted is unfinished
  uint64_t oldest_work = 0;      ///< id of the oldest posted request that is unfinished
  Duration oldest_age;           ///< since it was posted, to 1 ms
  uint64_t bytes_waiting = 0;    ///< posted and never sent
  uint64_t in_flight_bytes = 0;
  Duration silent;               ///< since anything was heard of the peer
  uint8_t suite = 0;             ///< secure::Suite; 0: neither encrypted nor authenticated
  const char* peer_name = "";    ///< of the key the peer has; lives as long as the engine
  uint32_t key_updates = 0;      ///< of our sending direction
  ConnectionCounters counters;
};

}  // namespace metaroce::connection
