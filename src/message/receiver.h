// The receiving half of all streams of one connection: matching, counting, completions in MSN
// order (MR-MSG). It decides whether a packet may be accepted; placement is the driver's work.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/expected.h"
#include "base/flat_map.h"
#include "base/ring.h"
#include "base/settings.h"
#include "base/slab.h"
#include "base/time.h"
#include "message/index_list.h"
#include "message/work.h"
#include "wire/data_packet.h"

namespace metaroce::message {

struct OpenMessage;    // a message of which something was accepted and that is not delivered
struct ReceiveStream;  // receiving state of one stream
struct PostedReceive;
struct ReceiveSegments;
struct SharedQueue;

struct ReceivePools {
  explicit ReceivePools(const Settings& settings);
  ~ReceivePools();
  Slab<OpenMessage>& messages() { return *messages_; }
  Slab<ReceiveStream>& streams() { return *streams_; }
  Slab<PostedReceive>& receives() { return *receives_; }
  FlatMap& index() { return *index_; }                  ///< (stream record, MSN) -> open message
  FlatMap& stream_index() { return *stream_index_; }    ///< (connection, stream) -> stream record
  FlatMap& receive_index() { return *receive_index_; }  ///< (stream record, sequence) -> receive
  Slab<ReceiveSegments>& segments() { return *segments_; }

  // Shared receive queues: ids from 1.
  /// kFull: there are max_shared_queues.
  Expected<uint32_t, Status> create_queue();
  /// kUnknownHandle, or kFull while streams take from it. What is posted is forgotten.
  Status destroy_queue(uint32_t id);
  Status post_shared(const ReceiveRequest& request);
  /// The next one that makes the queue shorter than `count` is told by take_low() (MR-MSG-062).
  Status arm_low(uint32_t id, uint32_t count);
  uint32_t queue_length(uint32_t id) const;
  /// A queue that became short; 0: none.
  uint32_t take_low();
  /// A stream that found the queue empty and may be told of what was posted since.
  bool take_starved(uint32_t id, ConnectionHandle& connection, uint16_t& stream);
  SharedQueue* queue(uint32_t id);
  const SharedQueue* queue(uint32_t id) const { return const_cast<ReceivePools*>(this)->queue(id); }
  void note_bound(uint32_t id);
  /// Over three quarters of the open messages are in use (MR-WIRE-044).
  bool nearly_full() const;
  void tell_if_low(uint32_t id, SharedQueue& queue);
  uint32_t take_receive(const ReceiveRequest& request, Status& status);
  void release_receive(uint32_t index);

 private:
  std::unique_ptr<Slab<OpenMessage>> messages_;
  std::unique_ptr<Slab<ReceiveStream>> streams_;
  std::unique_ptr<Slab<PostedReceive>> receives_;
  std::unique_ptr<FlatMap> index_;
  std::unique_ptr<FlatMap> stream_index_;
  std::unique_ptr<FlatMap> receive_index_;
  std::unique_ptr<Slab<ReceiveSegments>> segments_;
  std::vector<SharedQueue> queues_;
  Ring<uint32_t> low_;
};

/// Executes what the receiver puts in order: Reads and atomics name records of the Sender.
class OperationHost {
 public:
  virtual void on_turn(uint32_t operation) = 0;
  virtual void on_never(uint32_t operation) = 0;  ///< the stream ended before its turn
  virtual void on_invalidate(uint32_t key) = 0;   ///< MR-MEM-008

 protected:
  ~OperationHost() = default;
};

/// The answer to one data packet, before key and bounds are checked. It holds until the next call
/// of admit or commit: each admitted packet is committed, or given up, before the next one.
struct Admission {
  bool accepted = false;
  wire::Refusal reason = wire::Refusal::kUnknown;
  uint32_t rq_seq = 0;           ///< of a refused packet that consumes a receive
  bool check_memory = false;     ///< Write: the connection checks key, address and length next
  bool operation = false;        ///< Read or atomic: it checks memory and takes a record
  bool parks = false;            ///< the operation has to wait for its turn
  bool invalidates = false;      ///< its immediate is a key that must be one it may invalidate
  std::byte* address = nullptr;  ///< Send: where this packet's payload goes (null: nowhere)
  uint64_t offset = 0;           ///< Send: within the receive buffer
  uint32_t message = kNoIndex;   ///< open message found, if any; commit opens one when it must
  uint32_t stream = kNoIndex;    ///< stream record
  uint32_t receive = kNoIndex;   ///< posted receive the message consumes, once it is known
};

class Receiver {
 public:
  /// Without a host no Read, atomic or invalidation is taken.
  Receiver(ReceivePools& pools, const Settings& settings, ConnectionHandle connection,
           OperationHost* host = nullptr);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  /// kFull: no record left; kInvalid: too many segments, or the stream has a shared queue. The
  /// stream is created if needed.
  Status post(const ReceiveRequest& request);
  /// kFull: no record left; kUnknownHandle: no such queue; kInvalid: another queue than
  /// before, or a change of order while messages are open.
  Status set_options(uint16_t stream, const StreamOptions& options);

  /// Checks stream, span (MSN - delivered < span, else kSpan; below delivered: kStreamClosed is
  /// wrong, such a packet is kUnknown-refused and counted), credit (kNotReady), length (kLength),
  /// space (kNoOpenMessage; the last entry only for MSN = delivered). Changes nothing but may
  /// create the stream; an admission that is not committed leaves no other trace
  /// than that a buffer was too short.
  Admission admit(const wire::DataPacket& packet);

  /// Counts an admitted packet as accepted, completes and delivers what is complete. `operation`:
  /// the record that was taken for a Read or atomic.
  void commit(const wire::DataPacket& packet, const Admission& admission,
              uint32_t operation = kNoIndex);
  /// The buffer of a receive, if it has several segments.
  std::span<const Segment> segments_of(uint32_t receive) const;

  /// The open message that the last commit belongs to, if more packets of it may follow one by one
  /// without a question: its LAST has not come. kNoIndex otherwise.
  uint32_t open_run() const;
  /// commit() for packets of an open_run() that together carry `bytes` and end at `end`.
  void commit_run(uint32_t message, uint32_t bytes, uint32_t end);

  /// Absolute receive limit of a stream (number of receives ever posted), 0 if unknown.
  uint32_t limit(uint16_t stream) const;

  /// A stream whose sender ran out of credit and that got new receives since the last call:
  /// an unsolicited ACK should tell. False if none.
  bool credit_news(uint16_t& stream);
  bool has_credit_news() const { return !news_.empty(); }
  /// The sender asks (probe) for the credit of this stream.
  void on_credit_asked(uint16_t stream);
  /// The shared queue of this stream, which found it empty, has receives again.
  void on_queue_filled(uint16_t stream);

  /// RESET from the peer: what is not delivered is dropped, posted receives are flushed.
  /// Idempotent.
  void on_reset(uint16_t stream);
  /// The sender gave up for want of a receive: its unfinished messages go (MR-MSG-061).
  void on_halt(uint16_t stream);
  /// Ends the stream from this side: what is posted is flushed, what comes is refused.
  Status close(uint16_t stream);
  /// The stream is as new from that MSN on (MR-MSG-007); false unless it was closed.
  bool reopen(uint16_t stream);

  /// Ends all posted receives: first kStatus for each stream's oldest, the rest kFlushed.
  void fail_all(Status first);

  size_t poll(std::span<Completion> out);

  /// Whole messages wait behind one that is not; at most 1,024 records are looked at.
  bool has_order_hole() const;
  uint64_t messages_delivered() const;
  uint64_t stale() const { return stale_; }  ///< packets of messages that were delivered before
  uint64_t hash() const;  ///< over stream ids, delivered MSNs, accepted bytes (order independent)

 private:
  uint32_t find_stream(uint16_t id) const;
  uint32_t get_stream(uint16_t id);
  bool admit_message(const wire::DataPacket& packet, Admission& admission) const;
  bool admit_receive(const wire::DataPacket& packet, const ReceiveStream& stream,
                     Admission& admission);
  void add_news(uint32_t index);
  uint32_t open(const wire::DataPacket& packet, uint32_t stream);
  void close_message(uint32_t message);
  /// What the completion of a message says of it.
  struct Ending {
    uint64_t bytes = 0;
    uint32_t immediate = 0;
    wire::Opcode opcode = wire::Opcode::kWrite;
    bool solicited = false;
  };
  void bind(const wire::DataPacket& packet, const Admission& admission);
  bool admit_shared(const wire::DataPacket& packet, const ReceiveStream& stream,
                    Admission& admission);
  void note_starved(uint32_t stream);
  bool out_of_turn(const wire::DataPacket& packet, uint32_t ahead, uint32_t message) const;
  void give(uint32_t stream, uint32_t receive, const Ending& ending);
  void give_early(uint32_t message);
  bool deliver(uint32_t stream, uint32_t receive, const Ending& ending);
  void advance(uint32_t stream);
  void flush_receives(uint32_t index, Status first);
  void close_stream(uint32_t stream, Status first);
  void finish(uint32_t receive, Status status);

  ReceivePools& pools_;
  OperationHost* host_;
  ConnectionHandle connection_;
  uint32_t span_;
  uint32_t streams_ = kNoIndex;
  ListEnds done_;                          ///< receives whose completion waits to be polled
  ListEnds news_;                          ///< streams whose sender should hear of new credit
  mutable uint32_t cached_id_ = kNoIndex;  ///< last stream looked up
  mutable uint32_t cached_index_ = kNoIndex;
  uint32_t cached_stream_ = kNoIndex;  ///< stream record and MSN of the last open message
  uint32_t cached_msn_ = 0;
  uint32_t cached_message_ = kNoIndex;
  uint64_t delivered_ = 0;
  uint64_t stale_ = 0;
  bool dead_ = false;
};

}  // namespace metaroce::message
