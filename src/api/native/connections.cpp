// Connections, streams and events.
#include <fmt/core.h>

#include <algorithm>

#include "api/native/context.h"
#include "api/native/versioned.h"
#include "driver/common/resolve.h"
#include "driver/common/socket_address.h"

namespace metaroce::api::native {
namespace {

constexpr size_t kMostPathEvents = 1024;

static_assert(MR_PATH_CLOSED == static_cast<int>(engine::PathState::kClosed));

mr_event_kind event_kind(ConnectionEventKind kind) {
  switch (kind) {  // No default: the compiler names what is missing.
    case ConnectionEventKind::kAccepted:
      return MR_EVENT_ACCEPTED;
    case ConnectionEventKind::kConnected:
      return MR_EVENT_CONNECTED;
    case ConnectionEventKind::kPathsOpen:
      return MR_EVENT_PATHS_OPEN;
    case ConnectionEventKind::kFailed:
      return MR_EVENT_FAILED;
    case ConnectionEventKind::kClosed:
      return MR_EVENT_CLOSED;
    case ConnectionEventKind::kLost:
      return MR_EVENT_LOST;
    case ConnectionEventKind::kQueueLow:
      return MR_EVENT_QUEUE_LOW;
  }
  return MR_EVENT_LOST;
}

bool is_end(ConnectionEventKind kind) {
  return kind == ConnectionEventKind::kFailed || kind == ConnectionEventKind::kClosed ||
         kind == ConnectionEventKind::kLost;
}

template <size_t N>
void put(const std::string& text, char (&out)[N]) {
  give_text(text, out, N);
}

/// The peers of a connect as addresses; looks names up, so it is done outside the lock.
mr_status resolve_peers(const mr_connect_options& options, const std::vector<SocketAddress>& local,
                        std::vector<SocketAddress>& out, std::string& error) {
  if (options.peers == nullptr || options.peer_count == 0 || options.peer_count > kMaxPlanes) {
    error = fmt::format("peer_count is {}; peers must hold 1 to {} addresses", options.peer_count,
                        kMaxPlanes);
    return MR_INVALID;
  }
  const uint16_t port = options.port == 0 ? wire::kBasePort : options.port;
  for (size_t i = 0; i < options.peer_count; ++i) {
    if (options.peers[i] == nullptr) {
      error = fmt::format("peers[{}] is NULL; write \"HOST\" or \"HOST:PORT\"", i);
      return MR_INVALID;
    }
    // A wildcard of family 6 reaches IPv4 peers too.
    const SocketAddress& plane = local[std::min(i, local.size() - 1)];
    const bool any = plane.family == 6 && driver::is_wildcard(plane);
    const auto family = any                 ? driver::Family::kAny
                        : plane.family == 6 ? driver::Family::kIpv6
                                            : driver::Family::kIpv4;
    const auto found = driver::resolve(options.peers[i], port, family);
    if (!found) {
      error = fmt::format("peers[{}]: {}", i, found.error().text);
      return MR_INVALID;
    }
    out.push_back(found->front());
  }
  return MR_OK;
}

mr_status start(Context& c, const std::vector<SocketAddress>& peers, const KeyNames& keys,
                mr_connection& out) {
  const auto made = c.endpoint().start_connect(peers, keys);
  if (!made) return c.fail(to_c(made.error().status), made.error().text);
  c.add(*made, peers.front(), driver::now());
  out = *made;
  return MR_OK;
}

mr_status wait_connected(Context& c, mr_connection connection, int64_t timeout_ns) {
  using Stage = ConnectionRecord::Stage;
  const Time begin = driver::now();
  c.find(connection)->waited = true;
  c.wait(after(timeout_ns), false, [&] {
    const ConnectionRecord* r = c.find(connection);
    return r == nullptr || r->stage != Stage::kConnecting;
  });
  ConnectionRecord* r = c.find(connection);
  if (r == nullptr) return c.unknown(connection);
  if (r->stage == Stage::kOpen) {
    r->waited = false;
    return MR_OK;
  }
  const bool late = r->stage == Stage::kConnecting;
  const Status status = late                       ? Status::kUnresponsive
                        : r->status == Status::kOk ? Status::kClosed
                                                   : r->status;
  const Error error = c.endpoint().connect_error(r->peer, status, driver::now() - begin, r->detail);
  if (late) c.endpoint().close(connection);
  c.forget(connection);
  return c.fail(to_c(status), error.text);
}

mr_status open_stream(Context& c, mr_connection connection, uint32_t wanted, uint16_t* stream) {
  ConnectionRecord* r = c.find(connection);
  if (r == nullptr || r->stage == ConnectionRecord::Stage::kEnded) return c.unknown(connection);
  auto& streams = r->streams;
  uint32_t id = wanted;
  if (wanted == MR_ANY_STREAM) {
    id = 0;
    for (const StreamRecord& s : streams) {
      if (s.id != id) break;
      ++id;
    }
  }
  if (id > 0xFFFF) {
    return c.fail(
        wanted == MR_ANY_STREAM ? MR_FULL : MR_INVALID,
        wanted == MR_ANY_STREAM
            ? std::string("all 65536 stream numbers of the connection were used")
            : fmt::format("stream is {}; it must be 0 to 65535 or MR_ANY_STREAM", wanted));
  }
  const auto at = std::lower_bound(streams.begin(), streams.end(), id,
                                   [](const StreamRecord& s, uint32_t n) { return s.id < n; });
  if (at != streams.end() && at->id == id) {
    return c.fail(MR_INVALID, fmt::format("stream {} was opened before; a number serves once", id));
  }
  StreamRecord record;
  record.id = static_cast<uint16_t>(id);
  streams.insert(at, record);
  if (stream != nullptr) *stream = record.id;
  return MR_OK;
}

mr_status close_stream(Context& c, mr_connection connection, uint16_t stream) {
  if (c.find(connection) == nullptr) return c.unknown(connection);
  StreamRecord* s = c.find_stream(connection, stream);
  if (s == nullptr) {
    return c.fail(MR_UNKNOWN_HANDLE, fmt::format("stream {} is not open", stream));
  }
  if (s->posted != 0) {
    return c.fail(MR_BUSY, fmt::format("{} posted requests use stream {}; poll their completions "
                                       "first",
                                       s->posted, stream));
  }
  s->open = false;
  return MR_OK;
}

mr_status set_stream(Context& c, mr_connection connection, uint16_t stream,
                     const mr_stream_options* options) {
  if (c.find(connection) == nullptr) return c.unknown(connection);
  const StreamRecord* s = c.find_stream(connection, stream);
  if (s == nullptr) {
    return c.fail(MR_UNKNOWN_HANDLE, fmt::format("stream {} is not open", stream));
  }
  if (s->posted != 0) {
    return c.fail(MR_INVALID, fmt::format("{} posted requests use stream {}; its options are set "
                                          "before anything is posted",
                                          s->posted, stream));
  }
  mr_stream_options in;
  constexpr size_t kLeast = offsetof(mr_stream_options, in_order);
  if (options == nullptr || options->size < kLeast ||
      !take_struct(options, options->size, kLeast, in)) {
    return c.fail(MR_INVALID,
                  "options is NULL, its size is not set, or fields that this version "
                  "does not know are not 0");
  }
  if (in.rnr_retry > MR_RETRY_FOR_EVER || in.in_order > 1) {
    return c.fail(MR_INVALID, fmt::format("rnr_retry is {} and in_order is {}; they must be 0 to "
                                          "7, and 0 or 1",
                                          in.rnr_retry, in.in_order));
  }
  const Status status = c.endpoint().set_stream_options(
      connection, stream, {static_cast<uint8_t>(in.rnr_retry), in.in_order != 0, in.shared_queue});
  if (status == Status::kInvalid) {
    return c.fail(MR_INVALID, fmt::format("receives were posted on stream {} before; set its "
                                          "options first",
                                          stream));
  }
  if (status == Status::kUnknownHandle) {
    return c.fail(MR_UNKNOWN_HANDLE, fmt::format("there is no queue {}", in.shared_queue));
  }
  if (status == Status::kFull) {
    return c.fail(MR_FULL, fmt::format("all {} stream records are in use; raise max_streams",
                                       c.settings().max_streams));
  }
  return native::to_c(status);
}

mr_status end_stream(Context& c, mr_connection connection, uint16_t stream, bool reset) {
  if (c.find(connection) == nullptr) return c.unknown(connection);
  if (c.find_stream(connection, stream) == nullptr) {
    return c.fail(MR_UNKNOWN_HANDLE, fmt::format("stream {} is not open", stream));
  }
  const Status status = reset ? c.endpoint().reset_stream(connection, stream)
                              : c.endpoint().drain_stream(connection, stream);
  if (status != Status::kFull) return native::to_c(status);
  return c.fail(MR_FULL, fmt::format("all {} stream records are in use, so the peer cannot be told "
                                     "of the end of stream {}; raise max_streams",
                                     c.settings().max_streams, stream));
}

}  // namespace

ConnectionRecord* Context::find(ConnectionHandle connection) {
  if (last_record_ != nullptr && last_connection_ == connection) return last_record_;
  const auto found = connections_.find(connection);
  if (found == connections_.end() || found->second.aborted) return nullptr;
  last_connection_ = connection;
  last_record_ = &found->second;  // stays where it is until it is erased
  return last_record_;
}

mr_status Context::unknown(ConnectionHandle connection) {
  return fail(
      MR_UNKNOWN_HANDLE,
      fmt::format("there is no connection {:#x} (any more); its event said why", connection));
}

StreamRecord* Context::find_stream(ConnectionHandle connection, uint16_t stream) {
  ConnectionRecord* r = find(connection);
  if (r == nullptr) return nullptr;
  const auto at = std::lower_bound(r->streams.begin(), r->streams.end(), stream,
                                   [](const StreamRecord& s, uint16_t n) { return s.id < n; });
  return at != r->streams.end() && at->id == stream && at->open ? &*at : nullptr;
}

ConnectionRecord& Context::add(ConnectionHandle connection, const SocketAddress& peer, Time now) {
  last_record_ = nullptr;
  ConnectionRecord& r = connections_[connection];
  r = ConnectionRecord{};
  r.peer = peer;
  r.since = now;
  return r;
}

void Context::forget(ConnectionHandle connection) {
  last_record_ = nullptr;
  disown(connection);
  std::erase_if(events_, [&](const auto& e) { return e.first.connection == connection; });
  std::erase_if(path_events_, [&](const PathEvent& e) { return e.connection == connection; });
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  if (found->second.stage == ConnectionRecord::Stage::kEnded) {
    connections_.erase(found);
  } else {
    found->second.aborted = true;  // until its end comes, so that nothing of it is told
  }
}

void Context::drain_events() {
  using Stage = ConnectionRecord::Stage;
  ConnectionEvent e;
  while (endpoint_->next_event(e)) {
    const Time now = driver::now();
    if (e.kind == ConnectionEventKind::kQueueLow) {  // of no connection
      events_.emplace_back(e, Duration{});
      continue;
    }
    if (e.kind == ConnectionEventKind::kAccepted)
      add(e.connection, e.peer, now).stage = Stage::kOpen;
    const auto found = connections_.find(e.connection);
    if (found == connections_.end()) continue;
    ConnectionRecord& r = found->second;
    if (r.aborted) {
      if (is_end(e.kind)) connections_.erase(found);
      continue;
    }
    const bool setup = r.stage == Stage::kConnecting;
    if (e.kind == ConnectionEventKind::kConnected) r.stage = Stage::kOpen;
    if (is_end(e.kind)) {
      r.stage = Stage::kEnded;
      r.status = e.status;
      r.detail = e.detail;
    }
    if (!setup || !r.waited) events_.emplace_back(e, now - r.since);
  }
  drain_path_events();
}

void Context::drain_path_events() {
  PathEvent batch[16];
  size_t n = 0;
  do {
    n = endpoint_->poll_path_events(batch);
    for (size_t i = 0; i < n; ++i) {
      const auto found = connections_.find(batch[i].connection);
      if (found == connections_.end() || found->second.aborted) continue;
      if (path_events_.size() == kMostPathEvents) {
        path_events_.pop_front();
        ++path_events_missed_;
      }
      path_events_missed_ += batch[i].missed;
      path_events_.push_back(batch[i]);
    }
  } while (n == std::size(batch));
}

bool Context::take_accepted(ConnectionHandle& out) {
  const auto found = std::find_if(events_.begin(), events_.end(), [](const auto& e) {
    return e.first.kind == ConnectionEventKind::kAccepted;
  });
  if (found == events_.end()) return false;
  out = found->first.connection;
  events_.erase(found);
  return true;
}

void Context::describe(const ConnectionEvent& e, Duration took, mr_event& out) const {
  const std::string who = driver::to_string(e.peer);
  out.kind = event_kind(e.kind);
  out.connection = e.connection;
  out.status = native::to_c(e.status);
  put(who, out.peer);
  switch (e.kind) {
    case ConnectionEventKind::kAccepted:
      return put(who + " connected", out.text);
    case ConnectionEventKind::kConnected:
      return put("connected to " + who, out.text);
    case ConnectionEventKind::kPathsOpen:
      return put("every path to " + who + " is open", out.text);
    case ConnectionEventKind::kFailed:
      return put(endpoint_->connect_error(e.peer, e.status, took, e.detail).text, out.text);
    case ConnectionEventKind::kClosed:
    case ConnectionEventKind::kLost:
      return put(describe_loss(e, nanoseconds(settings_.death_timeout)), out.text);
    case ConnectionEventKind::kQueueLow:
      out.queue = e.detail;
      return put("shared queue " + std::to_string(e.detail) + " has few receives left", out.text);
  }
}

bool Context::next_event(mr_event& out) {
  if (!events_.empty()) {
    const auto [event, took] = events_.front();
    events_.pop_front();
    describe(event, took, out);
    if (is_end(event.kind)) {
      last_record_ = nullptr;
      const auto found = connections_.find(event.connection);
      if (found != connections_.end() && found->second.stage == ConnectionRecord::Stage::kEnded) {
        connections_.erase(found);
      }
    }
    return true;
  }
  if (path_events_.empty()) return false;
  const PathEvent event = path_events_.front();
  path_events_.pop_front();
  out.kind = MR_EVENT_PATH;
  out.connection = event.connection;
  out.path = event.path;
  out.plane = event.plane;
  out.old_state = static_cast<uint32_t>(event.from);
  out.new_state = static_cast<uint32_t>(event.to);
  out.missed = std::exchange(path_events_missed_, 0);
  const auto found = connections_.find(event.connection);
  const std::string who = found == connections_.end() ? "" : driver::to_string(found->second.peer);
  put(who, out.peer);
  put(fmt::format("path {} to {} on plane {} was {} and is {}", event.path, who, event.plane,
                  engine::to_string(event.from), engine::to_string(event.to)),
      out.text);
  return true;
}

namespace {

/// What mr_connect_start and mr_connect have in common.
mr_status connect(mr_context* context, const mr_connect_options* options, int64_t timeout_ns,
                  bool wait, mr_connection* connection) noexcept {
  if (context == nullptr) return MR_INVALID;
  if (!context->ours()) return MR_FORKED;
  mr_connect_options ours{};
  std::vector<SocketAddress> peers;
  KeyNames keys;
  std::string error;
  mr_status status = MR_OK;
  try {
    if (connection == nullptr || options == nullptr ||
        !take_struct(options, options->size, offsetof(mr_connect_options, port), ours)) {
      error = fmt::format(
          "connection and options must be given, with options.size = "
          "sizeof(mr_connect_options), {} in this version, and fields that this "
          "version does not know 0",
          sizeof ours);
      status = MR_INVALID;
    } else {
      // The addresses of a context never change, so no lock is needed for them.
      status = resolve_peers(ours, context->endpoint().local(), peers, error);
      if (ours.identity != nullptr) keys.identity = ours.identity;
      if (ours.peer_key_name != nullptr) keys.peer_key = ours.peer_key_name;
    }
  } catch (...) {
    return MR_NO_MEMORY;
  }
  return guarded(context, [&](Context& c) {
    if (status != MR_OK) return c.fail(status, error);
    const mr_status started = start(c, peers, keys, *connection);
    return started != MR_OK || !wait ? started : wait_connected(c, *connection, timeout_ns);
  });
}

}  // namespace
}  // namespace metaroce::api::native

namespace native = metaroce::api::native;
using native::Context;
using native::guarded;

extern "C" {

mr_status mr_connect_start(mr_context* context, const mr_connect_options* options,
                           mr_connection* connection) {
  return native::connect(context, options, 0, false, connection);
}

mr_status mr_connect(mr_context* context, const mr_connect_options* options, int64_t timeout_ns,
                     mr_connection* connection) {
  return native::connect(context, options, timeout_ns, true, connection);
}

mr_status mr_accept(mr_context* context, int64_t timeout_ns, mr_connection* connection) {
  return guarded(context, [&](Context& c) {
    if (connection == nullptr) return c.fail(MR_INVALID, "connection is NULL");
    if (!c.accepts()) {
      return c.fail(MR_INVALID, "the context was opened without MR_CONTEXT_ACCEPT in its flags");
    }
    const bool accepted =
        c.wait(native::after(timeout_ns), false, [&] { return c.take_accepted(*connection); });
    if (accepted) return MR_OK;
    return c.fail(MR_TIMEOUT, fmt::format("nobody connected to UDP port {} within {} ms",
                                          c.endpoint().port(), timeout_ns / 1'000'000));
  });
}

mr_status mr_close(mr_context* context, mr_connection connection, uint32_t code) {
  return guarded(context, [&](Context& c) {
    if (c.find(connection) == nullptr) return c.unknown(connection);
    c.endpoint().close(connection, code);
    return MR_OK;
  });
}

mr_status mr_abort(mr_context* context, mr_connection connection, uint32_t code) {
  return guarded(context, [&](Context& c) {
    if (c.find(connection) == nullptr) return c.unknown(connection);
    c.endpoint().close(connection, code);
    c.forget(connection);
    return MR_OK;
  });
}

mr_status mr_stream_open(mr_context* context, mr_connection connection, uint32_t wanted,
                         uint16_t* stream) {
  return guarded(context,
                 [&](Context& c) { return native::open_stream(c, connection, wanted, stream); });
}

mr_status mr_stream_close(mr_context* context, mr_connection connection, uint16_t stream) {
  return guarded(context, [&](Context& c) { return native::close_stream(c, connection, stream); });
}

mr_status mr_stream_set(mr_context* context, mr_connection connection, uint16_t stream,
                        const mr_stream_options* options) {
  return guarded(context,
                 [&](Context& c) { return native::set_stream(c, connection, stream, options); });
}

mr_status mr_stream_reset(mr_context* context, mr_connection connection, uint16_t stream) {
  return guarded(context,
                 [&](Context& c) { return native::end_stream(c, connection, stream, true); });
}

mr_status mr_stream_drain(mr_context* context, mr_connection connection, uint16_t stream) {
  return guarded(context,
                 [&](Context& c) { return native::end_stream(c, connection, stream, false); });
}

mr_status mr_connection_set_domain(mr_context* context, mr_connection connection, uint32_t domain) {
  return guarded(context, [&](Context& c) {
    if (c.find(connection) == nullptr) return c.unknown(connection);
    return native::to_c(c.endpoint().set_domain(connection, domain));
  });
}

mr_status mr_next_event(mr_context* context, mr_event* event) {
  return guarded(context, [&](Context& c) {
    if (event == nullptr || event->size < offsetof(mr_event, path)) {
      return c.fail(MR_INVALID,
                    "event is NULL or its size is not set; it must be "
                    "sizeof(mr_event)");
    }
    mr_event out{};
    if (!c.next_event(out)) return MR_EMPTY;
    native::give_sized(out, event);
    return MR_OK;
  });
}

}  // extern "C"
