// The receiving half of one path: base, map, marks, and when to acknowledge (MR-PATH, MR-ACK).
#pragma once

#include "base/address.h"
#include "base/bitmap256.h"
#include "base/counters.h"
#include "base/seq.h"
#include "base/settings.h"
#include "base/time.h"
#include "path/resting.h"
#include "wire/ack_packet.h"

namespace metaroce::path {

/// A sequenced packet as the path sees it.
struct Arrival {
  uint32_t seq = 0;
  uint32_t stamp = 0;
  uint8_t floor = 0;
  uint8_t epoch = 0;
  bool refused = false;  ///< the CPSN it carries was refused
  bool voided = false;   ///< and that by a VOID
  bool ack_now = false;  ///< AR flag, probe, LAST
  bool new_refusal = false;
  bool ce = false;
  uint16_t stream = 0;
};

class PathReceiver {
 public:
  void open(uint8_t plane_index, uint16_t gen, uint32_t start, const SocketAddress& peer_address);
  void close() { open_ = false; }
  bool is_open() const { return open_; }

  /// MR-PATH: false when the sequence is R or more away from the base.
  bool in_reach(uint32_t seq) const {
    const int32_t d = seq_diff(seq, base_);
    return d < 1024 && d > -1024;
  }
  /// False when the sequence would lie above the map even after its own floor moved the base.
  bool fits(uint32_t seq, uint8_t floor) const {
    const uint32_t moved = seq_max(base_, seq - floor);
    return seq_lt(seq, moved) || seq - moved < 256;
  }
  /// Applies the floor, sets the bit, moves the base, decides how soon to acknowledge.
  /// fits() must be true.
  void note(Time now, const Arrival& arrival, const Settings& settings, Duration srtt);

  /// True when nothing is missing and `seq` is the next one.
  bool is_next(uint32_t seq) const { return base_ == seq && top_ == seq; }
  /// note() for `n` unmarked packets, the first of them is_next(), that were accepted and asked for
  /// nothing; `stamp` is that of the last.
  void note_run(Time now, uint32_t n, uint32_t stamp, uint16_t stream, const Settings& settings,
                Duration srtt);

  /// When the next acknowledgement is due; kNever if none is owed.
  Time ack_at() const { return ack_at_; }
  /// An ACK that nobody asked for (credit news, hint).
  void ack_soon(Time now) { ack_at_ = earlier(ack_at_, now); }
  /// Fills everything a path knows; marks the acknowledgement as given.
  void fill_ack(Time now, wire::AckPacket& ack);
  /// Why the packet with this sequence, which this path was first to bring, was refused; to be
  /// called before its note().
  void set_refusal(uint32_t seq, wire::Refusal reason, uint16_t stream, uint32_t rq_seq,
                   uint8_t delay);

  uint8_t plane = 0;
  uint16_t generation = 0;
  SocketAddress peer;
  uint16_t credit_stream = 0;  ///< the stream whose limit the next ACK carries
  PathCounters* counters = nullptr;
  uint32_t base() const { return base_; }
  uint64_t hash() const;

  // --- rest (MR-CONN-040) ---
  /// `usual_peer`: the address of the peer on this path's plane, which rest() does not keep.
  bool can_rest(const SocketAddress& usual_peer) const;
  /// Fills the receiver's part, after PathSender::rest.
  void rest(RestingPath& out) const;
  void wake(const RestingPath& from, const SocketAddress& usual_peer);
  static uint64_t hash_of(const RestingPath& path);

 private:
  void move_base_to(uint32_t new_base);
  void slide();
  bool is_mistakable() const;

  bool open_ = false;
  bool last_was_ce_ = false;
  uint8_t late_ = 0;
  uint16_t ce_count_ = 0;
  uint16_t pending_ = 0;
  uint32_t base_ = 0;
  uint32_t top_ = 0;  // one above the highest sequence received
  uint32_t stamp_ = 0;
  Bitmap256 map_;      // ring: received at or above base
  Bitmap256 refused_;  // ring: of these, refused
  Bitmap256 voided_;   // ring: of these, by a VOID
  Bitmap256 history_;  // ring: of the 256 below base, received
  Time ack_at_ = kNever;
  Time arrived_{0};
  Time last_ack_{-(1ll << 60)};
  bool has_reason_ = false;
  uint32_t reason_seq_ = 0;
  wire::Refusal reason_ = wire::Refusal::kUnknown;
  uint8_t reason_delay_ = 0;
  uint16_t reason_stream_ = 0;
  uint32_t reason_rq_seq_ = 0;
};

}  // namespace metaroce::path
