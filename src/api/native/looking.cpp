// Figures of connections, paths and the context.
#include <fmt/core.h>

#include <array>

#include "api/native/context.h"
#include "api/native/versioned.h"
#include "driver/common/socket_address.h"
#include "driver/udp/udp_options.h"
#include "secure/cipher.h"
#include "wire/types.h"

namespace metaroce::api::native {
namespace {

struct CounterName {
  const char* name;
  const char* meaning;
};

constexpr CounterName kConnectionNames[] = {
#define X(name, unit, meaning) {#name, meaning},
    MR_CONNECTION_COUNTERS(X)};
constexpr CounterName kPathNames[] = {MR_PATH_COUNTERS(X)};
#undef X
constexpr CounterName kSocketNames[] = {
#define X(name, meaning) {#name, meaning},
    MR_UDP_COUNTERS(X)
#undef X
};
// In the order of wire::DropReason, without kNone.
constexpr CounterName kDropNames[] = {
    {"too_short", "shorter than the header its type and opcode ask for"},
    {"bad_version", "of another version of the protocol"},
    {"bad_type", "of a type this version does not know"},
    {"bad_opcode", "with an opcode this version does not know"},
    {"bad_length", "longer than its kind allows, or a length field that points outside"},
    {"bad_field", "a value outside its valid range"},
    {"bad_tlv", "a malformed or unknown critical parameter"},
    {"unknown_connection", "for a connection that does not exist"},
    {"unknown_path", "for a path that does not exist"},
    {"path_window", "path sequence too far from the base"},
    {"cpsn_window", "older than the duplicate filter reaches"},
    {"ack_invalid", "acknowledges what was never sent"},
    {"not_confirmed", "data before the set-up was confirmed"},
    {"no_state", "not expected in the state of the connection"},
    {"table_full", "no room for a new connection"},
    {"bad_tag", "of a secured connection, and not sealed by its peer"},
    {"key_guess", "names an unknown key, too many of which came before"},
};
static_assert(std::size(kDropNames) + 1 == static_cast<size_t>(wire::DropReason::kCount),
              "a new reason needs a name");

std::span<const CounterName> names(int group) {
  switch (group) {
    case MR_COUNTERS_CONNECTION:
      return kConnectionNames;
    case MR_COUNTERS_PATH:
      return kPathNames;
    case MR_COUNTERS_SOCKET:
      return kSocketNames;
    case MR_COUNTERS_DROP:
      return kDropNames;
    default:
      return {};
  }
}

template <class Counters, size_t N>
std::array<uint64_t, N> as_array(const Counters& counters, const CounterName (&)[N]) {
  static_assert(sizeof counters == N * sizeof(uint64_t), "counters are plain 64-bit integers");
  std::array<uint64_t, N> values;
  std::memcpy(values.data(), &counters, sizeof values);
  return values;
}

size_t give(std::span<const uint64_t> from, uint64_t* out, size_t count) {
  const size_t n = std::min(from.size(), count);
  std::copy_n(from.begin(), n, out);
  return n;
}

std::vector<PathStatus> paths_of(Context& c, mr_connection connection) {
  std::vector<PathStatus> paths(kMaxPaths);
  paths.resize(c.endpoint().path_status(connection, paths));
  return paths;
}

mr_status read_counters(Context& c, int group, mr_connection connection, uint32_t path,
                        uint64_t* values, size_t count, size_t& got) {
  if (names(group).empty() || (values == nullptr && count != 0)) {
    return c.fail(MR_INVALID, fmt::format("group is {}; it must be 0 to {}, and values be given",
                                          group, +MR_COUNTERS_DROP));
  }
  if (group == MR_COUNTERS_SOCKET) {
    got = give(as_array(c.endpoint().udp_counters(), kSocketNames), values, count);
    return MR_OK;
  }
  if (group == MR_COUNTERS_DROP) {
    got = give(c.endpoint().drops().subspan(1), values, count);
    return MR_OK;
  }
  ConnectionStatus status;
  if (c.find(connection) == nullptr || !c.endpoint().connection_status(connection, status)) {
    return c.unknown(connection);
  }
  if (group == MR_COUNTERS_CONNECTION) {
    got = give(as_array(status.counters, kConnectionNames), values, count);
    return MR_OK;
  }
  const auto paths = paths_of(c, connection);
  if (path >= paths.size()) {
    return c.fail(MR_INVALID, fmt::format("path is {}; the connection has {}", path, paths.size()));
  }
  got = give(as_array(paths[path].counters, kPathNames), values, count);
  return MR_OK;
}

mr_path_info path_info(const PathStatus& s) {
  mr_path_info out{};
  out.path = s.id;
  out.plane = s.plane;
  out.state = static_cast<uint32_t>(s.state);
  out.source_port = s.source_port;
  out.mtu = s.pmtu;
  out.window = s.window;
  out.in_flight = s.in_flight;
  out.rtt_ns = s.srtt.ns;
  out.least_rtt_ns = s.min_rtt.ns;
  out.packets_sent = s.counters.tx_packets;
  out.bytes_sent = s.counters.tx_bytes;
  out.packets_received = s.counters.rx_packets;
  out.bytes_received = s.counters.rx_bytes;
  out.lost = s.counters.lost;
  out.repaired = s.counters.tx_repair;
  return out;
}

}  // namespace
}  // namespace metaroce::api::native

namespace native = metaroce::api::native;
using native::Context;
using native::guarded;

extern "C" {

mr_status mr_connection_get(mr_context* context, mr_connection connection,
                            mr_connection_info* info) {
  return guarded(context, [&](Context& c) {
    if (info == nullptr || info->size < sizeof info->size) {
      return c.fail(MR_INVALID,
                    "info is NULL or its size is not set; it must be "
                    "sizeof(mr_connection_info)");
    }
    metaroce::api::ConnectionStatus s;
    if (c.find(connection) == nullptr || !c.endpoint().connection_status(connection, s)) {
      return c.unknown(connection);
    }
    mr_connection_info out{};
    out.paths = s.paths;
    out.planes = s.planes;
    out.payload = s.payload;
    out.in_flight_packets = s.in_flight_packets;
    out.window = s.window;
    out.messages_sent = s.counters.messages_sent;
    out.messages_received = s.counters.messages_received;
    out.bytes_sent = s.counters.bytes_sent;
    out.bytes_received = s.counters.bytes_received;
    native::give_text(metaroce::driver::to_string(s.peer), out.peer, sizeof out.peer);
    if (s.suite != 0) {
      native::give_text(to_string(static_cast<metaroce::secure::Suite>(s.suite)), out.suite,
                        sizeof out.suite);
      native::give_text(s.peer_name, out.peer_key_name, sizeof out.peer_key_name);
    }
    native::give_sized(out, info);
    return MR_OK;
  });
}

mr_status mr_paths_get(mr_context* context, mr_connection connection, mr_path_info* paths,
                       size_t count, size_t each, size_t* got) {
  if (got != nullptr) *got = 0;
  return guarded(context, [&](Context& c) {
    if (got == nullptr || each < sizeof(uint32_t) || (paths == nullptr && count != 0)) {
      return c.fail(MR_INVALID, fmt::format("paths and got must be given, and each be "
                                            "sizeof(mr_path_info), {} in this version",
                                            sizeof *paths));
    }
    if (c.find(connection) == nullptr) return c.unknown(connection);
    for (const auto& status : native::paths_of(c, connection)) {
      if (*got == count) break;
      native::give_struct(native::path_info(status),
                          reinterpret_cast<std::byte*>(paths) + *got * each, each);
      ++*got;
    }
    return MR_OK;
  });
}

const char* mr_counter_name(int group, size_t index) {
  const auto list = native::names(group);
  return index < list.size() ? list[index].name : nullptr;
}

const char* mr_counter_meaning(int group, size_t index) {
  const auto list = native::names(group);
  return index < list.size() ? list[index].meaning : nullptr;
}

mr_status mr_counters_get(mr_context* context, int group, mr_connection connection, uint32_t path,
                          uint64_t* values, size_t count, size_t* got) {
  size_t n = 0;
  const mr_status status = guarded(context, [&](Context& c) {
    return native::read_counters(c, group, connection, path, values, count, n);
  });
  if (got != nullptr) *got = n;
  return status;
}

}  // extern "C"
