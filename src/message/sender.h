// The sending half of all streams of one connection: from posted requests to fragments, and from
// the fate of fragments to completions in posting order (MR-MSG). Knows nothing of paths, CPSNs
// and windows; the scheduler in connection/ brings the two together.
#pragma once

#include <span>

#include "base/flat_map.h"
#include "base/ring.h"
#include "base/settings.h"
#include "base/slab.h"
#include "base/time.h"
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

 private:
  std::unique_ptr<Slab<SendRecord>> sends_;
  std::unique_ptr<Slab<SendStream>> streams_;
  std::unique_ptr<Slab<RetryRecord>> retries_;
};

class Sender {
 public:
  Sender(SendPools& pools, const Settings& settings, ConnectionHandle connection);
  ~Sender();

  /// kFull: no send record or stream left; kInvalid: longer than 2^31; kFlushed is never returned:
  /// a request posted to a failed stream is taken and completes with kFlushed.
  Status post(const WorkRequest& request);

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
  uint16_t stream_of(const Fragment& fragment) const;

  /// The peer accepted the fragment (each fragment's fate is told exactly once).
  void on_accepted(const Fragment& fragment);

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

  /// Ends all that is posted: the oldest request of each stream gets `first`, the rest kFlushed.
  void fail_all(Status first);

  /// Up to out.size() completions, in posting order per stream.
  size_t poll(std::span<Completion> out);

  uint64_t bytes_waiting() const;  ///< not yet cut into fragments, retries included
  bool idle() const;               ///< nothing posted is unfinished

 private:
  // (helper fills in)
};

}  // namespace metaroce::message
