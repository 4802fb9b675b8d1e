// The sending half of all streams of one connection: from posted requests to fragments, and from
// the fate of fragments to completions in posting order (MR-MSG). Knows nothing of paths, CPSNs
// and windows; the scheduler in connection/ brings the two together.
#pragma once

#include <memory>
#include <span>

#include "base/flat_map.h"
#include "base/settings.h"
#include "base/slab.h"
#include "base/time.h"
#include "message/index_list.h"
#include "message/work.h"
#include "wire/data_packet.h"

namespace metaroce::message {

/// A piece of a message that one packet carries; the token the scheduler keeps per CPSN.
struct Fragment {
  uint32_t send = 0xFFFFFFFFu;  ///< index of the send record
  uint32_t offset = 0;          ///< within the message
  uint32_t length = 0;          ///< bytes, 0 only for an empty message
};

struct SendRecord;   // one posted request
struct SendStream;   // sending state of one stream
struct RetryRecord;  // a refused or re-cut range that waits

/// Shared by all connections of an engine; sized once from the settings.
struct SendPools {
  explicit SendPools(const Settings& settings);
  ~SendPools();
  Slab<SendRecord>& sends() { return *sends_; }
  Slab<SendStream>& streams() { return *streams_; }
  Slab<RetryRecord>& retries() { return *retries_; }
  FlatMap& index() { return *index_; }  ///< (connection, stream) -> stream record

  // Every undecided fragment may come back as a retry range, so a fragment is only cut when a
  // range for it is sure to be there. The first of each request needs none of the shared ones.
  uint32_t shared_claims = 0;      ///< fragments and ranges beyond the first of each request
  uint32_t max_shared_claims = 0;  ///< from here on a request has one fragment in flight

 private:
  std::unique_ptr<Slab<SendRecord>> sends_;
  std::unique_ptr<Slab<SendStream>> streams_;
  std::unique_ptr<Slab<RetryRecord>> retries_;
  std::unique_ptr<FlatMap> index_;
};

class Sender {
 public:
  Sender(SendPools& pools, const Settings& settings, ConnectionHandle connection);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  /// kFull: no send record or stream left; kInvalid: longer than 2^31; kFlushed is never returned:
  /// a request posted to a failed stream is taken and completes with kFlushed.
  /// `now` is only kept for oldest().
  Status post(const WorkRequest& request, Time now = Time{});

  /// Unfinished messages a stream may have at the peer (negotiated span), MR-MSG.
  void set_peer_span(uint32_t span);

  /// True if take() would give something now (credits, span and back-off considered). O(1).
  bool ready(Time now);

  /// Takes the next fragments, at most out.size(), all of one message and contiguous, each of
  /// `payload` bytes but the last of the message. A LAST whose header is larger than its
  /// predecessors' (immediate) and whose payload is not shorter by the difference ends up alone:
  /// it is not returned together with others. Retries come before new data; streams take turns
  /// (round robin, one call = one turn). Returns the number.
  size_t take(Time now, uint32_t payload, std::span<Fragment> out);

  /// Fills everything of the DATA header above the connection (opcode, stream, MSN, offset, key,
  /// address, sequence, immediate, flags) and returns where the payload lies (may be null).
  const std::byte* describe(const Fragment& fragment, wire::DataPacket& packet) const;
  size_t header_bytes(const Fragment& fragment) const;
  bool ends_message(const Fragment& fragment) const;
  uint16_t stream_of(const Fragment& fragment) const;

  /// The peer accepted `count` fragments of this request (each fragment's fate is told exactly
  /// once).
  void on_accepted(uint32_t send, uint32_t count = 1);

  /// The peer refused it for ever; by class of the reason (spec/10): retry-now and VOID go back to
  /// the retry queue (and may be cut anew), retry-later after `delay`, fatal ones fail the message
  /// (status by reason) and the stream: every later request of it completes with kFlushed.
  /// kNotReady backs off the whole stream, not the others; kUnknown is retried after `delay`.
  void on_refused(Time now, const Fragment& fragment, wire::Refusal reason, Duration delay);

  /// Absolute receive limit of a stream, low 16 bits from an ACK or 32 bits from CREDIT; serial
  /// maximum. Unknown streams are remembered only if they were posted to.
  void on_limit16(uint16_t stream, uint16_t low);
  void on_limit(uint16_t stream, uint32_t limit);

  /// Earliest end of a back-off; kNever if none.
  Time next_wakeup() const;

  /// A stream that has something to send but no credit (for credit probes); false if none.
  bool credit_blocked(uint16_t& stream) const;

  /// A stream that failed and whose peer must be told (RESET): the final MSN; one call each.
  bool next_reset(uint16_t& stream, uint32_t& final_msn);
  bool has_reset() const { return first_reset_ != kNoIndex; }

  /// Ends all that is posted: the oldest request of each stream gets `first`, the rest kFlushed.
  /// Afterwards no fragment is known any more: its fate must not be told.
  void fail_all(Status first);

  /// Up to out.size() completions, in posting order per stream.
  size_t poll(std::span<Completion> out);

  // For those who look from outside; nothing changes by asking.
  /// The oldest unfinished request of at most 1,024 streams; false if there is none.
  bool oldest(Time now, uint64_t& id, uint32_t& age_ms) const;
  bool waits_for_credit() const { return !blocked_.empty(); }
  bool has_active() const { return !active_.empty(); }
  uint64_t messages_accepted() const { return accepted_; }

  uint64_t bytes_waiting() const;  ///< not yet cut into fragments, retries included
  bool idle() const;               ///< nothing posted is unfinished

 private:
  uint32_t find_stream(uint16_t id) const;
  uint32_t make_stream(uint16_t id);
  bool cuttable(const SendStream& stream) const;
  bool wants_credit(const SendStream& stream) const;
  bool can_claim(const SendRecord& record) const;
  uint32_t claim(SendRecord& record, uint32_t wanted);
  void unclaim(SendRecord& record);
  void refresh(uint32_t index);
  void reschedule(uint32_t index);
  void expire(Time now);
  bool claimable(uint32_t index) const;
  size_t take_from(uint32_t index, uint32_t payload, std::span<Fragment> out);
  size_t cut_pieces(uint32_t send, uint32_t& begin, uint32_t end, uint32_t payload, bool range,
                    std::span<Fragment> out);
  void settle(uint32_t send);
  bool advance(uint32_t index);
  void finish(SendStream& stream, Status status);
  Duration stretch(Time now, SendRecord& record, Duration delay);
  void back_off(uint32_t index, const SendRecord& record, Time until, bool for_credit);
  void add_retry(Time now, const Fragment& fragment, Time due);
  uint32_t find_neighbour(const ListEnds& list, const Fragment& fragment, bool only_tail) const;
  void insert_retry(Time now, uint32_t retry);
  void fail(uint32_t send, Status status);
  void drop_unsent(SendStream& stream);
  void drop_retries(SendStream& stream, ListEnds& list);
  void raise_limit(uint32_t index, uint32_t limit);

  SendPools& pools_;
  ConnectionHandle connection_;
  uint32_t span_;
  uint32_t last_payload_ = 0;
  ListEnds active_;           ///< streams with something to take now, in turn order
  ListEnds timed_;            ///< streams that wait, sorted by SendStream::wake
  mutable ListEnds blocked_;  ///< streams without credit; rotates so that each is asked for
  ListEnds done_;             ///< requests whose completion waits to be polled
  uint32_t streams_ = kNoIndex;
  uint32_t first_reset_ = kNoIndex;
  uint32_t last_reset_ = kNoIndex;
  mutable uint32_t cached_id_ = kNoIndex;  ///< last stream looked up
  mutable uint32_t cached_index_ = kNoIndex;
  uint64_t bytes_waiting_ = 0;
  uint64_t unfinished_ = 0;
  uint64_t accepted_ = 0;  ///< messages that the peer has as a whole
  bool dead_ = false;
};

}  // namespace metaroce::message
