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
#include "message/gather.h"
#include "message/index_list.h"
#include "message/work.h"
#include "wire/ack_packet.h"
#include "wire/data_packet.h"

namespace metaroce::message {

/// A piece of a message that one packet carries; the token the scheduler keeps per CPSN.
struct Fragment {
  uint32_t send = 0xFFFFFFFFu;  ///< index of the send record
  uint32_t offset = 0;          ///< within the message
  uint32_t length = 0;          ///< bytes, 0 only for an empty message
};

/// How a fragment wants to be sent.
struct FragmentTraits {
  uint32_t header_bytes;  ///< of its DATA packet
  bool scattered;         ///< it must go by itself: its bytes do not lie beside those of the next
  bool reads_region;      ///< reads_region() says which
  /// It is sent to hear why it is refused. A copy on another path would be refused there without a
  /// reason, and that answer may be the first.
  bool asking;
};

struct SendRecord;  // one posted request, or a response
struct SegmentList;
struct InlineCopy;
struct SendStream;   // sending state of one stream
struct RetryRecord;  // a refused or re-cut range that waits

/// Shared by all connections of an engine; sized once from the settings.
struct SendPools {
  explicit SendPools(const Settings& settings);
  ~SendPools();
  Slab<SendRecord>& sends() { return *sends_; }
  Slab<SendStream>& streams() { return *streams_; }
  Slab<RetryRecord>& retries() { return *retries_; }
  Slab<SegmentList>& segments() { return *segments_; }
  Slab<InlineCopy>& copies() { return *copies_; }
  FlatMap& index() { return *index_; }  ///< (connection, stream, kind) -> stream record
  GatherSpace& gather() { return *gather_; }

  bool pending_nearly_full() const { return uint64_t{parked} * 4 > uint64_t{max_pending} * 3; }

  uint32_t posted = 0;        ///< send records of requests, at most max_sends
  uint32_t responses = 0;     ///< of responses, parked ones included
  uint32_t parked = 0;        ///< entries of the pending table in use (MR-MSG-041)
  uint32_t streams_used = 0;  ///< stream records of requests, at most max_streams
  bool memory = true;         ///< false: addresses mean nothing in this process
  const uint32_t max_sends;
  const uint32_t max_streams;
  const uint32_t max_pending;
  const uint32_t max_responses;

  // Every undecided fragment may come back as a retry range, so a fragment is only cut when a
  // range for it is sure to be there. The first of each request needs none of the shared ones.
  uint32_t shared_claims = 0;      ///< fragments and ranges beyond the first of each request
  uint32_t max_shared_claims = 0;  ///< from here on a request has one fragment in flight

 private:
  std::unique_ptr<Slab<SendRecord>> sends_;
  std::unique_ptr<Slab<SendStream>> streams_;
  std::unique_ptr<Slab<RetryRecord>> retries_;
  std::unique_ptr<Slab<SegmentList>> segments_;
  std::unique_ptr<Slab<InlineCopy>> copies_;
  std::unique_ptr<FlatMap> index_;
  std::unique_ptr<GatherSpace> gather_;
};

/// What a request of the peer asks for, as its record holds it until it is executed.
struct RemoteOperation {
  wire::Opcode opcode = wire::Opcode::kReadRequest;
  uint32_t key = 0;
  uint64_t address = 0;
  uint32_t length = 0;
  uint64_t operand = 0;
  uint64_t swap = 0;
};

/// The answer to a packet of a response.
struct ResponseAdmission {
  bool accepted = false;
  wire::Refusal reason = wire::Refusal::kUnknown;
  uint32_t send = kNoIndex;  ///< the request it answers
  bool atomic = false;       ///< the payload is an old value, not bytes to place
};

class Sender {
 public:
  Sender(SendPools& pools, const Settings& settings, ConnectionHandle connection);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  /// kFull: no send record, stream, segment list or copy left; kInvalid: longer than 2^31, too many
  /// segments, more than kMaxInline bytes to copy; kClosed: the stream is drained. kFlushed is
  /// never returned: a request posted to a failed stream is taken and completes with kFlushed.
  /// `now` is only kept for oldest().
  Status post(const WorkRequest& request, Time now = Time{});

  /// Unfinished messages a stream may have at the peer (negotiated span), MR-MSG.
  void set_peer_span(uint32_t span);

  /// Reads and atomics we may have outstanding (MR-MSG-044).
  void set_peer_outstanding(uint32_t count);
  /// kFull: no stream record left; kInvalid: the order cannot change while something is posted.
  Status may_set_options(uint16_t stream, const StreamOptions& options) const;
  Status set_options(uint16_t stream, const StreamOptions& options);
  /// No request is taken any more; when the last one is accepted, RESET follows. kFull: no stream
  /// record left.
  Status drain(uint16_t stream);
  /// Ends what is posted with kFlushed, as soon as its fragments are decided; RESET follows.
  Status reset(uint16_t stream);
  /// The peer accepted our RESET of the stream.
  void on_reset_accepted(uint16_t stream, bool halt);
  /// The stream is as new, with the numbers it had (MR-MSG-007); false while anything of its past
  /// is open.
  bool reopen(uint16_t stream);
  bool may_reopen(uint16_t stream) const;

  /// True if take() would give something now (credits, span and back-off considered). O(1).
  bool ready(Time now);

  /// Takes the next fragments, at most out.size(), all of one message and contiguous, each of
  /// `payload` bytes but the last of the message. A LAST whose header is larger than its
  /// predecessors' (immediate) and whose payload is not shorter by the difference ends up alone:
  /// it is not returned together with others. Retries come before new data; streams take turns
  /// (round robin, one call = one turn). Returns the number.
  size_t take(Time now, uint32_t payload, std::span<Fragment> out);

  /// The memory of ours that a fragment of a Read response reads: false if it is none. Whoever
  /// sends it asks first whether the key is still good (MR-MSG-047, MR-MSG-048).
  bool reads_region(const Fragment& fragment, uint32_t& key, uint64_t& address) const;
  /// All that the sending of a run depends on, in one look.
  FragmentTraits traits(const Fragment& fragment) const;
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

  /// Absolute receive limit of a stream, low 16 bits in an ACK or 32 bits from CREDIT; serial
  /// maximum. Unknown streams are remembered only if they were posted to.
  /// True: a request ended for want of a receive.
  bool on_limit16(const wire::AckPacket& ack);
  void on_limit(uint16_t stream, uint32_t limit);

  // --- responses of the peer to our Reads and atomics (operations.cpp) ---
  /// Against what was asked for (MR-MSG-045); changes nothing.
  ResponseAdmission admit_response(const wire::DataPacket& packet) const;
  /// Where its bytes go: the segments, and the offset of the packet within them.
  std::span<const Segment> landing(uint32_t send, Segment& single) const;
  void commit_response(const wire::DataPacket& packet, uint32_t send, uint64_t old_value);
  void on_response_error(uint16_t stream, uint32_t msn, wire::Refusal reason);

  // --- requests of the peer (operations.cpp) ---
  /// A record for a request that was found good; kNoIndex: there is none (NO_PENDING). `parked`:
  /// it waits for its turn and takes an entry of the pending table (MR-MSG-041).
  uint32_t accept_request(const wire::DataPacket& packet, bool parked);
  bool can_accept_request(uint16_t stream, bool parked) const;
  /// Its turn has come: a Read is answered from `source`, an atomic waits for next_deferred().
  void start_read(uint32_t operation, const std::byte* source);
  void defer(uint32_t operation);
  uint32_t next_deferred();
  void start_atomic(uint32_t operation, uint64_t old_value);
  RemoteOperation operation(uint32_t index) const;
  /// It is answered by RESPONSE_ERROR and not by a response.
  void refuse_operation(uint32_t operation, wire::Refusal reason);
  /// It was never started and never will be.
  void drop_operation(uint32_t operation);
  /// The rest of the response is not sent; the peer is told why (MR-MSG-048).
  void abort_response(uint32_t send, wire::Refusal reason);
  /// The peer reset the stream: it wants no response any more. With a reason: we did, and tell it.
  void drop_responses(uint16_t stream, wire::Refusal reason = wire::Refusal::kUnknown);
  bool next_response_error(uint16_t& stream, uint32_t& msn, wire::Refusal& reason);
  bool has_response_error() const { return first_error_ != kNoIndex; }
  bool is_aborted(uint32_t send) const;

  /// Earliest end of a back-off; kNever if none.
  Time next_wakeup() const;

  /// A stream that has something to send but no credit (for credit probes); false if none.
  bool credit_blocked(uint16_t& stream) const;

  /// A probe that asks for the stream's credit went out.
  void note_asked(uint16_t stream, uint8_t path, uint32_t seq);

  /// A stream that failed and whose peer must be told (RESET): the final MSN; one call each.
  /// `halt`: the peer keeps its receives (MR-MSG-061).
  bool next_reset(uint16_t& stream, uint32_t& final_msn, bool& halt);
  bool has_reset() const { return first_reset_ != kNoIndex; }

  /// Ends all that is posted: the oldest request of each stream gets `first`, the rest kFlushed.
  /// Afterwards no fragment is known any more: its fate must not be told.
  void fail_all(Status first);

  /// Up to out.size() completions, in posting order per stream.
  size_t poll(std::span<Completion> out);

  // For those who look from outside; nothing changes by asking.
  /// The oldest unfinished request of at most 1,024 streams; false if there is none.
  bool oldest(Time now, uint64_t& id, uint32_t& age_ms) const;
  bool has_completions() const { return !done_.empty(); }
  bool waits_for_credit() const { return !blocked_.empty(); }
  bool has_active() const { return !active_.empty(); }
  uint64_t messages_accepted() const { return accepted_; }

  /// Not yet cut into fragments, retries included.
  uint64_t bytes_waiting() const { return bytes_waiting_; }
  bool idle() const { return unfinished_ == 0; }  ///< nothing posted is unfinished

 private:
  uint32_t find_stream(uint16_t id) const;
  uint32_t get_stream(uint16_t id);
  uint32_t make_stream(uint16_t id);
  uint32_t make_record(uint64_t key, uint16_t id);
  uint32_t find_responses(uint16_t id) const;
  void release_stream(uint32_t index);
  Status take_memory(const WorkRequest& request, SendRecord& record);
  void release(uint32_t send);
  bool held_back(const SendStream& stream, const SendRecord& record) const;
  void note_outstanding(SendRecord& record);
  void no_longer_outstanding(SendRecord& record);
  void start(uint32_t operation);
  void settle_responses(uint32_t index);
  void tell_end(uint32_t index);
  void queue_reset(uint32_t index);
  bool comes_before(const SendRecord& r, const RetryRecord& retry, const RetryRecord& other) const;
  void end_responses(uint32_t index);
  void give_up(uint32_t send);
  const std::byte* gather(const SendRecord& record, const Fragment& fragment) const;
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
  uint32_t find_unfinished(const SendStream& stream, uint32_t msn) const;
  bool advance(uint32_t index);
  void note_known(SendStream& stream, const SendRecord& record);
  void finish(SendStream& stream, Status status);
  Duration stretch(Time now, SendRecord& record, Duration delay);
  void hasten_oldest(uint32_t index);
  void back_off(uint32_t index, const SendRecord& record, Time until, bool for_credit);
  void add_retry(Time now, const Fragment& fragment, Time due);
  uint32_t find_neighbour(const ListEnds& list, const Fragment& fragment, bool only_tail) const;
  void insert_retry(Time now, uint32_t retry);
  void fail(uint32_t send, Status status);
  void drop_unsent(SendStream& stream);
  void drop_retries(SendStream& stream, ListEnds& list);
  void drop_retries_of(SendStream& stream, uint32_t send);
  void raise_limit(uint32_t index, uint32_t limit);

  SendPools& pools_;
  ConnectionHandle connection_;
  uint32_t span_;
  uint32_t max_asked_;    ///< Reads and atomics the peer may have outstanding
  uint32_t answers_ = 0;  ///< to what it asked, parked ones included
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
  ListEnds waiting_;   ///< streams whose next operation waits for fewer outstanding ones
  ListEnds deferred_;  ///< atomics whose turn has come (singly linked)
  uint32_t first_error_ = kNoIndex;
  uint32_t last_error_ = kNoIndex;
  uint32_t outstanding_ = 0;
  uint32_t max_outstanding_ = 16;              ///< what a peer that says nothing grants
  mutable uint32_t cached_answer_ = kNoIndex;  ///< request that the last response belonged to
  uint64_t bytes_waiting_ = 0;
  uint64_t unfinished_ = 0;
  uint64_t accepted_ = 0;  ///< messages that the peer has as a whole
  bool dead_ = false;
};

}  // namespace metaroce::message
