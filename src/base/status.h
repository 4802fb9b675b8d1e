// How operations end, in one list for every layer.
#pragma once

#include <cstdint>

namespace metaroce {

enum class Status : uint8_t {
  kOk = 0,
  // Refused at the call, nothing was done:
  kFull,            ///< queue or table is full, try again after polling
  kInvalid,         ///< an argument is out of range
  kUnknownHandle,   ///< connection, stream or region does not exist (any more)
  kNotConnected,
  // Completions of operations that failed:
  kUnreachable,     ///< the network says there is no way
  kUnresponsive,    ///< the peer stopped answering
  kRefused,         ///< the peer refused the connection
  kMismatch,        ///< no common version or an unknown critical parameter
  kNotReady,        ///< no receive was posted in time
  kAccess,          ///< key, bounds or rights do not allow it
  kLength,          ///< message longer than the receive buffer
  kUnsupported,
  kPeerFailed,      ///< the peer reported an error of its own, or broke off
  kFlushed,         ///< ended because an earlier operation failed or the connection closed
  kClosed,
  kPeerGone,        ///< the peer's process is gone or was restarted: it knows nothing of us
  kNotTrusted,      ///< one side insists on keys that the other has not, or has others
  kCount
};

const char* to_string(Status status);

}  // namespace metaroce
