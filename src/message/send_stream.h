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

/// One posted request, from post() until its completion is polled.
struct SendRecord {
  uint64_t id = 0;
  const std::byte* local = nullptr;
  uint64_t remote_address = 0;
  Time retry_due;  ///< end of the last wait, so that one round of refusals doubles once
  uint32_t length = 0;
  uint32_t cut = 0;        ///< bytes cut into fragments so far
  uint32_t undecided = 0;  ///< fragments whose fate is not known
  uint32_t claims = 0;     ///< undecided fragments + waiting retry ranges
  uint32_t msn = 0;
  uint32_t rq_seq = 0;
  uint32_t remote_key = 0;
  uint32_t immediate = 0;
  uint32_t posted_ms = 0;  ///< when it was posted, wraps
  uint32_t stream = kNoIndex;  ///< index of the stream record
  uint32_t next = kNoIndex;    ///< next request of the stream, later next completion
  uint16_t stream_id = 0;
  wire::Opcode opcode = wire::Opcode::kWrite;
  Operation operation = Operation::kWrite;
  Status status = Status::kOk;
  uint8_t doublings = 0;   ///< of the retry delay
  uint8_t last_extra = 0;  ///< header bytes that LAST has more than the packets before it
  bool consumes = false;   ///< takes a receive at the peer
  bool solicited = false;
  bool cut_done = false;  ///< every byte was cut at least once
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
  ListEnds ready;           ///< retry ranges to cut now
  ListEnds delayed;         ///< retry ranges that wait, sorted by due
  Link active_link;
  Link timed_link;
  Link blocked_link;
  uint32_t next_stream = kNoIndex;  ///< all streams of the sender
  uint32_t next_reset = kNoIndex;
  uint16_t id = 0;
  bool active = false;   ///< in the list of streams that have something to take
  bool blocked = false;  ///< in the list of streams that want credit
  bool backing_off = false;
  bool wants_credit = false;  ///< the back-off ends when the limit rises above refused_rq
  bool failed = false;
  bool error_given = false;  ///< the completion that names the cause is out; the rest is flushed
  bool reset_told = false;
};

}  // namespace metaroce::message
