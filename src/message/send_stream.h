// The records behind Sender: what stands in the pools of the sending half.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "base/time.h"
#include "message/index_list.h"
#include "message/work.h"
#include "wire/types.h"

namespace metaroce::message {

/// One posted request, from post() until its completion is polled; or the response to a request of
/// the peer, from its arrival until the peer has all of it.
struct SendRecord {
  uint64_t id = 0;
  const std::byte* local = nullptr;
  std::byte* result = nullptr;  ///< of a Read or an atomic
  uint64_t remote_address = 0;  ///< of a response: of our memory that it reads or changes
  uint64_t operand = 0;         ///< of an atomic; after it was executed, the old value
  uint64_t swap = 0;
  Time retry_due;       ///< end of the last wait, so that one round of refusals doubles once
  uint32_t length = 0;  ///< of what we send; of a Read and an atomic 0
  uint32_t response_length = 0;  ///< of what comes back
  uint32_t response_bytes = 0;   ///< of it accepted
  uint32_t segments = kNoIndex;  ///< the segment list, if there is more than one
  uint32_t copy = kNoIndex;      ///< the copy of a `copied` request
  uint32_t next_error = kNoIndex;
  uint32_t cut = 0;        ///< bytes cut into fragments so far
  uint32_t undecided = 0;  ///< fragments whose fate is not known
  uint32_t claims = 0;     ///< undecided fragments + waiting retry ranges
  uint32_t msn = 0;
  uint32_t rq_seq = 0;
  uint32_t remote_key = 0;
  uint32_t immediate = 0;
  uint32_t posted_ms = 0;      ///< when it was posted, wraps
  uint32_t stream = kNoIndex;  ///< index of the stream record
  uint32_t next = kNoIndex;    ///< next request of the stream, later next completion
  uint16_t stream_id = 0;
  wire::Opcode opcode = wire::Opcode::kWrite;
  wire::Opcode asked = wire::Opcode::kWrite;  ///< of a response: what the peer wants
  Operation operation = Operation::kWrite;
  Status status = Status::kOk;
  uint8_t doublings = 0;   ///< of the retry delay
  uint8_t last_extra = 0;  ///< header bytes that LAST has more than the packets before it
  bool consumes = false;   ///< takes a receive at the peer
  bool solicited = false;
  bool cut_done = false;  ///< every byte was cut at least once
  bool fence = false;
  bool unordered = false;
  bool ordered = false;  ///< its stream is in in-order mode
  bool signalled = true;
  bool awaits = false;       ///< a response, which is not complete
  bool outstanding = false;  ///< counted among the stream's outstanding operations
  bool parked = false;       ///< a response to a request that may not be executed yet
  bool aborted = false;      ///< a response that the peer does not want, or that has no memory
  bool asking = false;       ///< what was refused last had no reason: the next packet finds it out
  bool torn = false;         ///< the peer does not have all of it and never will
  wire::Refusal error = wire::Refusal::kUnknown;  ///< of a response: why it is told as an error
};

struct SegmentList {
  Segment segment[kMaxSegments];
  uint32_t count = 0;
};

struct InlineCopy {
  std::byte bytes[kMaxInline];
};

/// Bytes of one message that were refused and wait to be cut again.
struct RetryRecord {
  Time due;
  uint32_t send = kNoIndex;
  uint32_t offset = 0;
  uint32_t length = 0;
  Link link;  ///< in the stream's ready or delayed list
};

/// Sending state of one stream.
struct SendStream {
  Time backoff_until;        ///< valid while backing_off
  Time wake = kNever;        ///< place in the sender's timed list; kNever: not in it
  uint32_t head = kNoIndex;  ///< oldest request without completion
  uint32_t tail = kNoIndex;
  uint32_t cut = kNoIndex;  ///< oldest request with bytes that were never cut
  uint32_t next_msn = 0;
  uint32_t next_rq = 0;
  uint32_t limit = 0;       ///< absolute receive limit of the peer
  uint32_t refused_rq = 0;  ///< lowest sequence refused for want of a receive
  uint32_t fail_msn = 0;    ///< this message and all later ones failed; valid if failed
  uint32_t known_msn = 0;   ///< the peer has all messages before it; from here a new life goes on
  uint32_t known_rq = 0;    ///< their receives
  bool known = true;        ///< false: one was found that the peer does not have
  ListEnds ready;           ///< retry ranges to cut now
  ListEnds delayed;         ///< retry ranges that wait, sorted by due
  Link active_link;
  Link timed_link;
  Link blocked_link;
  uint32_t next_stream = kNoIndex;  ///< all streams of the sender
  uint32_t prev_stream = kNoIndex;
  uint32_t next_reset = kNoIndex;
  uint32_t outstanding = 0;  ///< Reads and atomics sent whose response is not complete
  uint32_t undecided = 0;    ///< fragments whose fate is open; counted in in-order mode only
  uint32_t operations = 0;   ///< of a response stream: records, started or not
  uint32_t parked = 0;       ///< of a response stream: entries of the pending table
  Link waiting_link;         ///< streams whose next Read or atomic finds too many outstanding
  uint16_t id = 0;
  uint8_t rnr_retry = kRetryForEver;
  uint8_t rnr_tries = 0;
  bool responses = false;  ///< carries the responses of a stream, in their own message space
  bool in_order = false;
  bool waiting = false;    ///< in the list of streams that wait for fewer outstanding operations
  bool asked = false;      ///< a credit probe names it and was not answered yet
  uint8_t asked_path = 0;  ///< of that probe
  uint32_t asked_seq = 0;
  bool draining = false;      ///< takes no requests any more; RESET follows the last one
  bool silent_reset = false;  ///< it failed for want of a receive: the peer keeps its own
  bool active = false;        ///< in the list of streams that have something to take
  bool blocked = false;       ///< in the list of streams that want credit
  bool backing_off = false;
  bool wants_credit = false;  ///< the back-off ends when the limit rises above refused_rq
  bool failed = false;
  bool error_given = false;  ///< the completion that names the cause is out; the rest is flushed
  bool reset_told = false;
  bool reset_accepted = false;
  bool halt_told = false;  ///< RESET that leaves the peer its receives (MR-MSG-061)
  bool halt_accepted = false;
};

inline uint64_t stream_key(ConnectionHandle connection, uint16_t stream) {
  return uint64_t{connection} << 16 | stream;
}
/// The responses to what the peer asks for on a stream are a message space of their own.
inline uint64_t response_key(uint64_t key) { return key | uint64_t{1} << 48; }

}  // namespace metaroce::message
