// State of the model: sender, receiver, and the packets and delayed ACKs between them.
#pragma once

#include <array>
#include <cstdint>

#include "tests/model/config.h"

namespace metaroce::model {

inline constexpr int kMaxPaths = 2;
inline constexpr int kMaxTx = 40;    // the search needs few; the fair run adds some
inline constexpr int kMaxCpsn = 12;  // likewise
inline constexpr int kMaxHeld = 2;
inline constexpr int kSeqModulus = 256;
inline constexpr int kSeqStart = 254;
inline constexpr int kCpsnStart = 14;  // reduced modulo cpsn_modulus()
inline constexpr int kNoProbe = 15;

enum class Violation : std::uint8_t {
  kNone,
  kPlacedTwice,         // an item was placed under two CPSNs
  kPlacedAfterRefused,  // placed although the sender already believes it refused
  kDecidedTwice,        // the receiver changed a decision
  kBeliefWrong,         // the sender's belief differs from the receiver's decision
  kForgotten,           // undecided CPSN without live sequence and not in the repair queue
  kBasePassed,          // receiver's base beyond an unresolved sequence it did not accept
  kMapOverrun,          // a received packet does not fit the map
  kSequenceReused,      // a path sequence was sent twice
  kFilterForgot,        // the filter's window left a CPSN that is undecided at the sender
  kUnproven,            // data on a path on which no probe of its generation arrived
  kStuck,               // a fair run without loss does not finish
};
const char* violation_name(Violation v);

enum class Belief : std::uint8_t { kUndecided, kAccepted, kRefused };
enum class Kind : std::uint8_t { kData, kVoid, kProbe, kOpen };
enum class Status : std::uint8_t { kLive, kLost, kResolved };
enum class Net : std::uint8_t { kFlying, kArrived, kGone };
enum class PathState : std::uint8_t { kOpen, kOpening, kProving, kClosed };

struct Tx {
  std::uint8_t path = 0;
  std::uint8_t generation = 0;
  std::uint8_t seq = 0;
  std::uint8_t floor = 0;  // the field of the packet
  std::uint8_t cpsn = 0;   // index, not the number on the wire
  Kind kind = Kind::kData;
  Status status = Status::kLive;
  Net net = Net::kFlying;
};

struct Cpsn {
  std::uint8_t item = 0;  // data: item; PATH_OPEN: path
  bool open = false;      // a PATH_OPEN
  std::uint8_t generation = 0;
  std::uint8_t start = 0;
  Belief belief = Belief::kUndecided;
  Belief decision = Belief::kUndecided;  // ghost: what the receiver really decided
  bool queued = false;
  bool voided = false;
};

struct SenderPath {
  PathState state = PathState::kOpen;
  std::uint8_t generation = 0;
  std::uint8_t next = kSeqStart;
  std::uint8_t acked_base = kSeqStart;
  std::uint8_t start = kSeqStart;
  std::uint8_t last_probe_floor = kNoProbe;  // kNoProbe: the last packet was no probe
};

struct ReceiverPath {
  std::uint8_t generation = 0;
  std::uint8_t base = kSeqStart;
  std::uint8_t map = 0;
  std::uint8_t refused = 0;
};

// An ACK is a snapshot of a receiver path. It carries no generation.
struct Ack {
  bool used = false;
  std::uint8_t path = 0;
  std::uint8_t base = 0;
  std::uint8_t map = 0;
  std::uint8_t refused = 0;
  std::uint8_t through = 0;  // decided-through, as an index

  bool operator==(const Ack&) const = default;
};

struct State {
  Violation bad = Violation::kNone;
  std::uint8_t sends = 0;
  std::uint8_t probes = 0;
  std::uint8_t items = 0;    // items that got a first CPSN
  std::uint8_t highest = 0;  // receiver: highest CPSN seen, on the wire
  std::uint16_t filter = 0;  // receiver: ring of 2-bit states indexed by CPSN modulo window
  std::uint8_t tx_count = 0;
  std::uint8_t cpsn_count = 0;
  std::array<SenderPath, kMaxPaths> out;
  std::array<ReceiverPath, kMaxPaths> in;
  std::array<Ack, kMaxHeld> held;
  std::array<Cpsn, kMaxCpsn> cpsns;
  std::array<Tx, kMaxTx> txs;
};

constexpr int serial(int a, int b, int modulus) {
  int d = (a - b) % modulus;
  if (d < 0) d += modulus;
  return d >= (modulus + 1) / 2 ? d - modulus : d;
}
// a - b in path sequences.
constexpr int seq_diff(int a, int b) { return static_cast<std::int8_t>(a - b); }
static_assert(kSeqModulus == 256, "seq_diff wraps at 8 bits");
constexpr std::uint8_t seq_add(int a, int n) {
  return static_cast<std::uint8_t>((a + n) & (kSeqModulus - 1));
}
constexpr int cpsn_modulus(const Config& cfg) { return cfg.window == 3 ? 15 : 16; }
constexpr int cpsn_wire(const Config& cfg, int index) {
  return (kCpsnStart + index) % cpsn_modulus(cfg);
}

State initial_state(const Config& cfg);
// Brings a state into the one form that all equivalent states share: transmissions nobody needs
// any more are dropped, the others sorted.
void normalise(const Config& cfg, State& s);

inline constexpr int kMaxPacked = 16 + kMaxPaths * 9 + kMaxHeld * 5 + kMaxCpsn * 4 + kMaxTx * 4;
struct Packed {
  std::uint16_t size = 0;
  std::array<std::uint8_t, kMaxPacked> bytes;
};
void pack(const State& s, Packed& out);
void unpack(const std::uint8_t* bytes, State& s);

}  // namespace metaroce::model
