// The records behind Receiver: what stands in the pools of the receiving half.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "message/index_list.h"
#include "message/work.h"
#include "wire/types.h"

namespace metaroce::message {

/// A message of which something was accepted and that is not delivered. No map of its bytes: the
/// CPSN filter lets every packet in once, so counting is enough (MR-MSG-010).
struct OpenMessage {
  uint64_t accepted = 0;     ///< bytes
  uint32_t highest_end = 0;  ///< end of the highest byte accepted
  uint32_t total = 0;        ///< valid when `last` was accepted
  uint32_t msn = 0;
  uint32_t rq_seq = 0;
  uint32_t immediate = 0;
  uint32_t stream = kNoIndex;
  uint32_t receive = kNoIndex;    ///< bound receive, or none yet
  uint32_t operation = kNoIndex;  ///< Read or atomic that waits for its turn
  Link link;                      ///< open messages of the stream
  wire::Opcode opcode = wire::Opcode::kWrite;
  bool last = false;
  bool solicited = false;  ///< as its LAST says
  bool unordered = false;  ///< delivered as soon as it is complete (MR-MSG-017)
  bool given = false;      ///< it was: only its place in the order of the stream is left
  bool complete() const { return last && accepted == total; }
};

struct PostedReceive {
  uint64_t id = 0;
  std::byte* buffer = nullptr;
  uint64_t length = 0;
  uint64_t bytes = 0;
  uint32_t rq_seq = 0;
  uint32_t msn = 0;  ///< of the message it is bound to
  uint32_t immediate = 0;
  Link link;  ///< the queue's or stream's posted receives, later the completions
  uint32_t segments = kNoIndex;
  uint32_t queue = 0;  ///< shared queue it was posted to; 0: to the stream
  uint16_t stream = 0;
  Status status = Status::kOk;
  bool bound = false;
  bool has_immediate = false;
  bool solicited = false;
  bool invalidated = false;
  bool overrun = false;  ///< a message that is longer was refused
};

struct ReceiveSegments {
  Segment segment[kMaxSegments];
  uint32_t count = 0;
};

/// Receives that several streams take theirs from, whatever their connection.
struct SharedQueue {
  ListEnds receives;  ///< PostedReceive, not bound yet
  ListEnds starved;   ///< ReceiveStream that found it empty, oldest first
  uint32_t count = 0;
  uint32_t streams = 0;  ///< that take from it
  uint32_t low = 0;      ///< tell once when fewer are left (MR-MSG-062)
  bool armed = false;
  bool used = false;
};

/// Receiving state of one stream.
struct ReceiveStream {
  uint64_t bytes = 0;      ///< accepted
  uint32_t delivered = 0;  ///< MSN of the next message to deliver
  uint32_t posted = 0;     ///< receives ever posted
  uint32_t completed = 0;  ///< receives ever completed
  uint32_t used = 0;       ///< one above the highest receive sequence seen
  uint32_t told = 0;       ///< highest limit that the sender may know of
  uint32_t open_count = 0;
  ListEnds open;      ///< OpenMessage
  ListEnds receives;  ///< PostedReceive, oldest first
  Link news_link;
  Link starved_link;
  uint32_t next_stream = kNoIndex;
  uint32_t connection = 0;  ///< handle
  uint32_t queue = 0;       ///< shared queue; 0: none
  bool reset_heard = false;
  uint16_t id = 0;
  bool in_order = false;  ///< MR-MSG-060
  bool queued = false;    ///< in the starved list of its shared queue
  bool closed = false;
  bool starved = false;  ///< the sender was refused or asked for credit
  bool news = false;     ///< in the news list
};

}  // namespace metaroce::message
