#include "base/status.h"

namespace metaroce {

const char* to_string(Status status) {
  switch (status) {
    case Status::kOk: return "ok";
    case Status::kFull: return "full";
    case Status::kInvalid: return "invalid argument";
    case Status::kUnknownHandle: return "unknown handle";
    case Status::kNotConnected: return "not connected";
    case Status::kUnreachable: return "unreachable";
    case Status::kUnresponsive: return "unresponsive";
    case Status::kRefused: return "refused";
    case Status::kMismatch: return "parameter mismatch";
    case Status::kNotReady: return "receiver not ready";
    case Status::kAccess: return "access";
    case Status::kLength: return "message too long";
    case Status::kUnsupported: return "unsupported";
    case Status::kPeerFailed: return "peer failed";
    case Status::kFlushed: return "flushed";
    case Status::kClosed: return "closed";
    case Status::kPeerGone: return "peer gone";
    case Status::kNotTrusted: return "not trusted";
    case Status::kCount: break;
  }
  return "?";
}

}  // namespace metaroce
