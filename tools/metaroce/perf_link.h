// The control messages of one perf connection: stream 0.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "api/endpoint.h"
#include "perf_protocol.h"

namespace metaroce::tool {

class PerfLink {
 public:
  PerfLink(api::Endpoint& endpoint, api::ConnectionHandle connection)
      : endpoint_(endpoint), connection_(connection) {}

  /// Makes ready to hear; false when the engine has no room.
  bool open();
  void send(const PerfMessage& message);
  using Heard = std::optional<Expected<PerfMessage, std::string>>;
  /// Takes a completion of stream 0; a message, or why it is none, when one came.
  Heard on_completion(const api::Completion& completion);
  /// Sends what found no room before. Call it in every round.
  void progress();
  /// Everything sent is accepted by the peer.
  bool flushed() const { return waiting_.empty() && posted_ == 0; }
  api::ConnectionHandle connection() const { return connection_; }

 private:
  static constexpr size_t kBuffers = 4;
  bool post_receive(size_t index);

  api::Endpoint& endpoint_;
  const api::ConnectionHandle connection_;
  std::vector<std::byte> buffers_;
  std::deque<std::vector<std::byte>> waiting_;  ///< in order; the first `posted_` are posted
  size_t posted_ = 0;
};

}  // namespace metaroce::tool
