// What statuses mean, in words; library version.
#include "api/native/status_map.h"

#include <iterator>

namespace metaroce::api::native {
namespace {

// The manual page mr_status_text(3) holds the same table; a test compares the names.
constexpr StatusRow kRows[] = {
    {MR_OK, "MR_OK", "success", "nothing to do"},
    {MR_FULL, "MR_FULL", "a queue or table is full",
     "poll completions and try again; for tables raise the setting that mr_last_error names"},
    {MR_INVALID, "MR_INVALID", "an argument is out of range",
     "mr_last_error names the argument, its value and the range"},
    {MR_UNKNOWN_HANDLE, "MR_UNKNOWN_HANDLE",
     "the connection, stream or region does not exist (any more)",
     "look for MR_EVENT_CLOSED or MR_EVENT_LOST of the connection, and for an mr_stream_open"},
    {MR_NOT_CONNECTED, "MR_NOT_CONNECTED", "the connection is closing or gone",
     "fetch its events: they name the cause"},
    {MR_UNREACHABLE, "MR_UNREACHABLE", "the network reports no way to the peer",
     "the peer's address, and route and interface towards it (ip route get ADDRESS)"},
    {MR_UNRESPONSIVE, "MR_UNRESPONSIVE", "the peer does not answer on any path",
     "whether the peer's process runs and is driven, then firewalls for its UDP port"},
    {MR_REFUSED, "MR_REFUSED", "the peer's host says that nothing listens on that UDP port",
     "whether the peer's process runs, and its port"},
    {MR_MISMATCH, "MR_MISMATCH", "the two sides have no common version or parameters",
     "the versions of both sides; update the older one"},
    {MR_NOT_READY, "MR_NOT_READY", "the peer had no receive posted in time",
     "that the peer posts receives on this stream number ahead of the sends"},
    {MR_ACCESS, "MR_ACCESS", "key, bounds or rights of the peer's region do not allow the access",
     "that the peer's region is still registered, with MR_REMOTE_WRITE, and holds the whole range"},
    {MR_LENGTH, "MR_LENGTH", "the message is longer than the receive that takes it",
     "the length of the receives the peer posts on this stream"},
    {MR_UNSUPPORTED, "MR_UNSUPPORTED", "the peer or this version does not support the operation",
     "the versions of both sides"},
    {MR_PEER_FAILED, "MR_PEER_FAILED", "the peer reported an error of its own",
     "the peer's log and its own completions"},
    {MR_FLUSHED, "MR_FLUSHED", "ended because an earlier request failed or the connection closed",
     "the first failed completion of this stream, and the connection's last event"},
    {MR_CLOSED, "MR_CLOSED", "the connection was closed",
     "which side closed: MR_EVENT_CLOSED without an own mr_close means the peer"},
    {MR_PEER_GONE, "MR_PEER_GONE", "the peer's process has ended or was restarted",
     "whether the peer's process runs; then connect again"},
    {MR_NOT_TRUSTED, "MR_NOT_TRUSTED", "the two sides do not trust each other's keys",
     "the key files and pinned keys of both sides; mr_last_error says what is missing"},
    {MR_TIMEOUT, "MR_TIMEOUT", "the time given to the call is over", "a longer timeout"},
    {MR_EMPTY, "MR_EMPTY", "there is nothing to fetch", "nothing to do: wait and fetch again"},
    {MR_BUSY, "MR_BUSY", "posted work still needs it",
     "poll the completions of everything posted with it, or mr_abort the connection"},
    {MR_WOKEN, "MR_WOKEN", "mr_context_wake was called", "what the program woke itself for"},
    {MR_FORKED, "MR_FORKED", "the context belongs to the parent process",
     "open a context in the child"},
    {MR_NO_MEMORY, "MR_NO_MEMORY", "the process has no memory left",
     "limits of the process (ulimit -v, cgroup) and the settings max_..."},
    {MR_SYSTEM, "MR_SYSTEM", "a system call failed",
     "mr_last_error: it names the call, the error and the remedy"},
};

const StatusRow* find(int status) {
  for (const StatusRow& row : kRows) {
    if (row.value == status) return &row;
  }
  return nullptr;
}

}  // namespace

const StatusRow* status_rows(size_t& count) {
  count = std::size(kRows);
  return kRows;
}

mr_status to_c(Status status) {
  switch (status) {  // No default: the compiler names what is missing.
    case Status::kOk:
      return MR_OK;
    case Status::kFull:
      return MR_FULL;
    case Status::kInvalid:
      return MR_INVALID;
    case Status::kUnknownHandle:
      return MR_UNKNOWN_HANDLE;
    case Status::kNotConnected:
      return MR_NOT_CONNECTED;
    case Status::kUnreachable:
      return MR_UNREACHABLE;
    case Status::kUnresponsive:
      return MR_UNRESPONSIVE;
    case Status::kRefused:
      return MR_REFUSED;
    case Status::kMismatch:
      return MR_MISMATCH;
    case Status::kNotReady:
      return MR_NOT_READY;
    case Status::kAccess:
      return MR_ACCESS;
    case Status::kLength:
      return MR_LENGTH;
    case Status::kUnsupported:
      return MR_UNSUPPORTED;
    case Status::kPeerFailed:
      return MR_PEER_FAILED;
    case Status::kFlushed:
      return MR_FLUSHED;
    case Status::kClosed:
      return MR_CLOSED;
    case Status::kPeerGone:
      return MR_PEER_GONE;
    case Status::kNotTrusted:
      return MR_NOT_TRUSTED;
    case Status::kCount:
      break;
  }
  return MR_PEER_FAILED;
}

}  // namespace metaroce::api::native

using metaroce::api::native::StatusRow;

extern "C" {

const char* mr_status_name(int status) {
  const StatusRow* row = metaroce::api::native::find(status);
  return row == nullptr ? "(no status)" : row->name;
}

const char* mr_status_text(int status) {
  const StatusRow* row = metaroce::api::native::find(status);
  return row == nullptr ? "a number that is no status of this version" : row->text;
}

const char* mr_status_check(int status) {
  const StatusRow* row = metaroce::api::native::find(status);
  return row == nullptr ? "the version of the library (mr_version)" : row->check;
}

const char* mr_version(void) { return MR_VERSION; }

uint32_t mr_version_number(void) {
  return MR_VERSION_MAJOR << 16 | MR_VERSION_MINOR << 8 | MR_VERSION_PATCH;
}

}  // extern "C"
