// The sending half of one path: path sequences, loss judged from gaps, probes, RTT, health
// (MR-PATH, MR-LOSS, MR-HEALTH). It carries an opaque token (the CPSN) per packet and tells what
// became of it; what the token stands for it does not know.
#pragma once

#include <algorithm>

#include "base/bitmap256.h"
#include "base/counters.h"
#include "base/seq.h"
#include "base/settings.h"
#include "base/slab.h"
#include "base/time.h"
#include "congestion/window.h"
#include "path/resting.h"
#include "wire/ack_packet.h"

namespace metaroce::path {

inline constexpr uint32_t kMapBits = 256;
inline constexpr uint32_t kReach = 4 * kMapBits;  // R of MR-PATH

enum class SentKind : uint8_t { kData, kControl, kVoid, kPaddedProbe };

/// One sequenced packet that the path still knows.
struct SentRecord {
  uint32_t cpsn = 0;
  uint32_t sent = 0;    ///< ticks of 64 ns
  uint32_t gap = 0;     ///< when an ACK first showed it missing
  uint32_t resent = 0;  ///< when its CPSN was sent again
  uint16_t size = 0;    ///< bytes the congestion window counts
  uint8_t epoch = 0;
  SentKind kind = SentKind::kData;
};

/// The records of a path that has something unresolved; from a slab of the engine.
struct SentWindow {
  Bitmap256 outstanding;         ///< sent, fate unknown, counted as in flight
  Bitmap256 gap;                 ///< an ACK showed a later packet of the same epoch
  Bitmap256 lost;                ///< judged lost, not resolved yet
  Bitmap256 resent;              ///< of the lost: its CPSN was sent again
  SentRecord records[kMapBits];  ///< valid where a bit is set

  void clear() {
    for (Bitmap256* map : {&outstanding, &gap, &lost, &resent}) map->reset();
  }
};

enum class State : uint8_t { kClosed, kOpening, kValidating, kGood, kSuspect, kDead };

/// Told while the path works; implemented by the connection.
class Listener {
 public:
  /// `count` packets from `first_seq` on arrived as they should: outstanding, neither refused nor
  /// judged late. Their records stand in the ring `records`; `bytes` is what they weigh together.
  virtual void on_delivered_run(uint8_t path, uint32_t first_seq, uint32_t count, uint32_t,
                                const SentRecord* records) {
    for (uint32_t seq = first_seq; seq != first_seq + count; ++seq) {
      on_delivered(path, seq, records[seq % kMapBits], false, false);
    }
  }
  /// `was_lost`: it had been judged lost before (spurious judgement).
  virtual void on_delivered(uint8_t path, uint32_t seq, const SentRecord& record, bool refused,
                            bool was_lost) = 0;
  virtual void on_lost(uint8_t path, uint32_t seq, const SentRecord& record) = 0;
  /// May the path forget a lost packet? True when the CPSN's fate is known.
  virtual bool is_decided(uint32_t cpsn) const = 0;

 protected:
  ~Listener() = default;
};

struct AckOutcome {
  bool valid = true;       ///< false: it acknowledges what was never sent
  bool answered = false;   ///< a probe was answered, or new packets acknowledged
  bool recovered = false;  ///< the path became GOOD by it
  bool newer = false;      ///< not overtaken by a later ACK of this path
  bool fresh = false;      ///< something sent less than 0.5 s ago is shown for the first time
  uint32_t newly_acked = 0;
  uint32_t spurious = 0;
  uint16_t padded_acked = 0;  ///< IP size of a padded probe that arrived, 0 if none
};

/// What a timer of the path asks for.
struct TimerOutcome {
  bool suspect = false;     ///< the path became SUSPECT now
  bool unanswered = false;  ///< one more probe went unanswered: ask for a verdict
};

class PathSender {
 public:
  PathSender(const Settings& settings, Slab<SentWindow>& windows, PathCounters& path_counters);
  ~PathSender();
  PathSender(const PathSender&) = delete;
  PathSender& operator=(const PathSender&) = delete;

  /// Prepares the path in state kOpening (by PATH_OPEN) or kGood (by the handshake).
  void open(uint8_t id, uint8_t plane, uint32_t start_seq, uint16_t port, State state,
            Duration rtt_guess);
  void close(Listener& listener);

  // --- sending ---
  /// True if one more sequence may be used for data now (span, reach, a free record window).
  bool can_send(Time now, Listener& listener);
  bool can_probe(Time now, Listener& listener);
  /// Sequences that may still be used for data before the span or the reach ends.
  uint32_t span_room() const {
    const uint32_t by_span = kMapBits - (next_seq_ - una_);
    const int32_t by_reach = seq_diff(peer_base_ + kReach - 2, next_seq_);
    return by_reach <= 0 ? 0 : std::min(by_span, static_cast<uint32_t>(by_reach));
  }
  bool has_room(uint32_t bytes) const {
    return in_flight_ == 0 || in_flight_ + bytes <= window_.bytes();
  }
  /// Takes the next sequence for a packet of `size` bytes. can_send() must be true.
  uint32_t on_sent(Time now, uint32_t cpsn, uint16_t size, SentKind kind);
  /// on_sent() for `n` new data packets at once, at most span_room(): consecutive CPSNs, all of
  /// `size` but the last. Returns the first sequence.
  uint32_t on_sent_run(Time now, uint32_t cpsn, uint32_t n, uint16_t size, uint16_t last_size);
  /// Takes a sequence for a probe. can_probe() must be true. A padded one (`ip_size` > 0, at least
  /// one record window must be free, else 0 is used) is tracked like data and told by on_lost or
  /// AckOutcome::padded_acked; outside kValidating it says nothing about the path's health.
  uint32_t on_probe_sent(Time now, uint16_t ip_size);
  /// True when only the peer's base keeps the path from probing: then its last probe goes out
  /// again bit for bit, which on_probe_repeated notes (MR-PATH-031).
  bool must_repeat_probe() const { return seq_ge(next_seq_, peer_base_ + kReach - 1); }
  void on_probe_repeated(Time now);
  /// Floor delta of the packet with this sequence (MR-PATH: never saturated).
  uint8_t floor_of(uint32_t seq) const {
    return seq_lt(seq, una_) ? uint8_t{0} : static_cast<uint8_t>(seq - una_);
  }  // MR-PATH-004
  /// The CPSN of this lost sequence was sent again, or lives on in another copy.
  void on_resent(Time now, uint32_t seq);
  /// Gives up padded probes that were sent before `before`: on_lost tells each.
  void expire_padded(Time now, Duration age, Listener& listener);
  /// The packet just sent went out in place of a probe (MR-PATH-008) and is answered like one.
  void count_as_probe(Time now);
  /// With a full span: what to send again instead of a probe; its sequence is resolved by it.
  /// True when the span is full and its lowest sequence is held lost.
  bool lowest_is_lost() const {
    return next_seq_ - una_ >= kMapBits && window_index_ != Slab<SentWindow>::kNone &&
           (*windows_)[window_index_].lost.test(una_);
  }
  bool take_lowest(Listener& listener, uint32_t& cpsn);

  // --- hearing ---
  AckOutcome on_ack(Time now, const wire::AckPacket& ack, Listener& listener);
  TimerOutcome on_timer(Time now, Listener& listener);
  Time deadline() const;

  // --- health ---
  void become_validating(Time now);
  void become_good(bool restart_window);
  void become_suspect(Time now, Listener& listener);
  void become_dead(Time now, Listener& listener);
  void probe_soon(Time now);  ///< a hint arrived, or the program waits for credit
  /// Another path was acknowledged for a packet sent at `sent`, no earlier than ours: what is
  /// still out here is overdue sooner than the usual probe time says (MR-LOSS-034).
  void hasten_probe(Time now, Time sent);
  bool wants_probe() const { return wants_probe_; }
  void probe_not_sent(Time now);
  /// Unanswered probes after which the observed loss alone proves death (MR-HEALTH).
  uint32_t verdict_count() const;
  Time answered_at() const { return answered_at_; }
  Time first_unanswered_at() const { return first_unanswered_at_; }

  // --- rest (MR-CONN-040) ---
  /// True when rest() loses nothing but what wake() can do without.
  bool can_rest() const;
  /// Fills the sender's part.
  void rest(RestingPath& out) const;
  void wake(Time now, const RestingPath& from);

  /// Planned port change: epoch + 1 (MR-LOSS); false if one happened less than an RTT ago.
  bool change_port(Time now, uint16_t port);

  // --- state others read ---
  uint8_t id = 0;
  uint8_t plane = 0;
  uint16_t port = 0;
  uint16_t generation = 0;
  uint16_t pmtu = 0;  ///< proven IP packet size, 0 before validation
  PathCounters* counters;  ///< they live on while the path rests

  State state() const { return state_; }
  bool is_good() const { return state_ == State::kGood; }
  /// Validated once: GOOD, SUSPECT or DEAD.
  bool is_open() const { return state_ >= State::kGood; }
  /// This sequence is among the newest that were sent, and something was sent in the last 2 s.
  bool sent_lately(Time now, uint32_t seq) const {
    return next_seq_ - 1 - seq < kReach && seq_ge(seq, start_) && now - used_at_ <= seconds(2);
  }
  uint8_t epoch() const { return epoch_; }
  uint32_t next_seq() const { return next_seq_; }
  uint32_t lowest_unresolved() const { return una_; }
  uint32_t in_flight() const { return in_flight_; }
  uint32_t in_flight_packets() const { return in_flight_packets_; }
  uint32_t unanswered() const { return unanswered_; }
  bool rtt_known() const { return rtt_known_; }
  Duration srtt() const { return srtt_; }
  Duration min_rtt() const { return min_rtt_; }
  Duration reorder_window() const { return reorder_window_; }
  Duration probe_timeout() const;
  uint32_t loss_fraction() const { return loss_q16_; }
  bool loss_means_congestion() const;
  /// How the packet of the current on_lost call was found missing: by a gap, or by silence.
  bool lost_by_gap() const { return lost_by_gap_; }
  congestion::Window& window() { return window_; }
  const congestion::Window& window() const { return window_; }
  bool has_outstanding() const { return in_flight_packets_ > 0; }
  uint16_t ce_delta(uint16_t count);  ///< new marks since the last call with a newer ACK

 private:
  struct Probe {
    uint32_t seq = 0;
    uint32_t sent = 0;  // ticks of 64 ns
    uint8_t epoch = 0;
    bool waiting = false;
  };

  SentWindow& window_records() { return (*windows_)[window_index_]; }
  bool ensure_window();
  void advance(Time now, Listener& listener);
  void mark_lost(uint32_t seq, Listener& listener, bool by_gap);
  void lose_all(Listener& listener);
  void sample_rtt(Time now, const wire::AckPacket& ack);
  void settle(Time now, const Bitmap256& newly, const Bitmap256& refused, Listener& listener,
              AckOutcome& out);
  bool settle_in_order(Time now, const wire::AckPacket& ack, Listener& listener, AckOutcome& out);
  void settle_map(Time now, const wire::AckPacket& ack, Listener& listener, AckOutcome& out);
  void settle_one(Time now, uint32_t seq, bool refused, Listener& listener, AckOutcome& out);
  uint32_t settle_run(Time now, uint32_t seq, uint32_t count, Listener& listener, AckOutcome& out);
  void note_lateness(Time now, uint32_t gap_ticks, bool was_lost);
  void note_late_count(Time now, uint8_t count, const AckOutcome& out);
  void find_gaps(Time now, Listener& listener);
  void judge_gaps(Time now, Listener& listener);
  void drain_old_epochs(Time now, Listener& listener);
  void match_probes(Time now, uint32_t base, const Bitmap256& map, AckOutcome& out);
  void on_alive(Time now, AckOutcome& out);
  void note_arrived(uint32_t seq, uint8_t epoch);
  void note_loss_sample(bool lost);
  void arm_probe(Time now);
  void add_probe(Time now, uint32_t seq);
  void arm_next_probe(Time now);

  const Settings* settings_;
  Slab<SentWindow>* windows_;
  uint32_t window_index_ = Slab<SentWindow>::kNone;
  State state_ = State::kClosed;
  bool wants_probe_ = false;
  bool lost_by_gap_ = false;
  bool rtt_known_ = false;
  bool ack_seen_ = false;
  bool marks_seen_ = false;      // this fabric marks: loss needs no second meaning
  bool probe_repeated_ = false;  // since the peer's base moved last
  uint8_t epoch_ = 0;
  uint8_t late_count_ = 0;
  uint16_t ce_count_ = 0;
  uint32_t start_ = 0;  // no base of this generation is below it
  uint32_t next_seq_ = 0;
  uint32_t una_ = 0;          // lowest unresolved
  uint32_t peer_base_ = 0;    // highest base the peer has shown
  uint32_t epoch_start_ = 0;  // first sequence of the current epoch
  uint32_t high_ = 0;         // one above the highest acknowledged sequence of the current epoch
  uint32_t prev_start_ = 0;   // first sequence of the epoch before
  uint32_t high_old_ = 0;     // one above the highest acknowledged sequence of that epoch
  uint32_t ack_counter_ = 0;
  uint32_t in_flight_ = 0;
  uint32_t in_flight_packets_ = 0;
  uint32_t loss_q16_ = 0;
  uint32_t unanswered_ = 0;
  uint32_t dead_probes_ = 0;   // sent since the path died or was heard of
  uint32_t dead_answers_ = 0;  // answered since it died
  Duration srtt_{};
  Duration rttvar_{};
  Duration latest_rtt_{};
  Duration min_rtt_{};
  Duration max_rtt_{};
  Duration reorder_window_{};
  Duration dead_interval_{};
  Time reorder_decay_at_ = kNever;
  Time gap_deadline_ = kNever;
  Time drain_at_ = kNever;
  Time epoch_changed_at_{-(1ll << 60)};
  Time min_rtt_at_{0};
  Time probe_at_ = kNever;
  Time last_sent_at_{0};
  Time used_at_{0};  // probes included
  Time answered_at_{0};
  Time first_unanswered_at_ = kNever;
  Probe probes_[8];
  uint8_t probe_slot_ = 0;
  uint8_t probes_waiting_ = 0;
  congestion::Window window_;
};

}  // namespace metaroce::path
