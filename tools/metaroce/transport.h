// What the file transfer needs of a transport: messages, writes into shared memory, events.
// Implemented over api::Endpoint and, in memory, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/expected.h"
#include "base/status.h"
#include "base/time.h"
#include "file_protocol.h"

namespace metaroce::tool {

using Link = uint32_t;  ///< a connection of a transport; never 0

enum class EventKind : uint8_t {
  kLinkUp,    ///< a peer connected; `text` names it
  kMessage,   ///< `message` arrived on `stream`
  kWritten,   ///< write `id` is accepted by the peer, or failed with `status`
  kLinkDown,  ///< the connection ended; kClosed when a side closed it, else `text` says why
};

struct Event {
  EventKind kind = EventKind::kMessage;
  Link link = 0;
  uint16_t stream = 0;
  uint64_t id = 0;
  Status status = Status::kOk;
  Bytes message;
  std::string text;
};

struct SharedMemory {
  uint32_t key = 0;
  uint64_t address = 0;
  uint32_t handle = 0;
};

/// Belongs to one thread; only wake() may be called from any.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Messages of one stream arrive in order, after the writes posted before them on that stream.
  virtual void send(Link link, uint16_t stream, Bytes message) = 0;
  /// `from` has to stay as it is until kWritten.
  virtual void write(Link link, uint16_t stream, std::span<const std::byte> from, uint32_t key,
                     uint64_t address, uint64_t id) = 0;
  virtual Expected<SharedMemory, std::string> share(std::span<std::byte> memory) = 0;
  virtual void unshare(const SharedMemory& memory) = 0;
  virtual bool next(Event& event) = 0;
  /// Returns at an event, after wake(), or after `timeout`.
  virtual void wait(Duration timeout) = 0;
  virtual void wake() = 0;
  /// Every message queued on the link has been accepted by the peer.
  virtual bool flushed(Link link) const = 0;
  virtual void close(Link link) = 0;
  /// The transfer on this link is complete: keep its figures for the report.
  virtual void note_end(Link link) { (void)link; }
};

}  // namespace metaroce::tool
