#include "telemetry/conservation.h"

#include <fmt/format.h>

#include <array>

namespace metaroce::telemetry {
namespace {

constexpr size_t kConnections = 4096;

class Books {
 public:
  void expect(const char* where, uint32_t connection, int path, const char* equation,
              uint64_t left, uint64_t right) {
    if (left == right) return;
    std::string place = where;
    if (connection != 0) place += fmt::format(" {:08x}", connection);
    if (path >= 0) place += fmt::format(" path {}", path);
    wrong.push_back(fmt::format("{}: {}: {} != {}", place, equation, left, right));
  }
  std::vector<std::string> wrong;
};

void check_path(Books& books, uint32_t connection, const engine::PathStatus& p) {
  const PathCounters& c = p.counters;
  // MR-TEL-010
  books.expect("path", connection, p.id,
               "tx_packets = tx_new + tx_repair + tx_copies + tx_control + tx_probes",
               c.tx_packets,
               c.tx_new + c.tx_repair + c.tx_copies + c.tx_control + c.tx_probes);
  // MR-TEL-011
  books.expect("path", connection, p.id,
               "tx_packets - tx_probes + tx_padded = "
               "acked - acked_late + lost + lost_padded + in flight",
               c.tx_packets - c.tx_probes + c.tx_padded,
               c.acked - c.acked_late + c.lost + c.lost_padded + p.in_flight_packets);
  // MR-TEL-012
  books.expect("path", connection, p.id,
               "rx_packets = rx_accepted + rx_duplicates + rx_refused + rx_control + rx_probes",
               c.rx_packets,
               c.rx_accepted + c.rx_duplicates + c.rx_refused + c.rx_control + c.rx_probes);
}

void check_connection(Books& books, const engine::Engine& engine, uint32_t connection) {
  std::array<engine::PathStatus, kMaxPaths> paths;
  engine::ConnectionStatus status;
  if (!engine.connection_status(connection, status)) return;
  const size_t n = engine.path_status(connection, paths);
  uint64_t rx_bytes = 0;
  uint64_t in_flight = 0;
  for (size_t i = 0; i < n; ++i) {
    check_path(books, connection, paths[i]);
    rx_bytes += paths[i].counters.rx_bytes;
    in_flight += paths[i].in_flight;
  }
  // MR-TEL-013
  books.expect("connection", connection, -1, "bytes_received = sum of rx_bytes",
               status.counters.bytes_received, rx_bytes);
  // MR-TEL-014
  books.expect("connection", connection, -1, "bytes in flight = sum over its paths",
               status.in_flight_bytes, in_flight);
}

}  // namespace

std::vector<std::string> check_path(uint32_t connection, const engine::PathStatus& path) {
  Books books;
  check_path(books, connection, path);
  return std::move(books.wrong);
}

std::vector<std::string> check_conservation(const engine::Engine& engine) {
  Books books;
  static thread_local std::array<engine::ConnectionHandle, kConnections> handles;
  const size_t n = std::min(engine.connections(handles), handles.size());
  for (size_t i = 0; i < n; ++i) check_connection(books, engine, handles[i]);
  const engine::EngineTotals t = engine.totals();
  uint64_t drops = 0;
  for (const uint64_t d : engine.drops()) drops += d;
  // MR-TEL-015
  books.expect("endpoint", 0, -1, "rx_dropped = sum of drop_*", t.endpoint.rx_dropped, drops);
  // MR-TEL-016
  books.expect("endpoint", 0, -1,
               "rx_datagrams = rx_setup + rx_dropped + sum of rx_packets + sum of rx_acks",
               t.endpoint.rx_datagrams, t.endpoint.rx_setup + t.endpoint.rx_dropped +
                                            t.paths.rx_packets + t.paths.rx_acks);
  // MR-TEL-017
  books.expect("endpoint", 0, -1,
               "tx_datagrams = tx_setup + sum of tx_packets + sum of tx_acks",
               t.endpoint.tx_datagrams,
               t.endpoint.tx_setup + t.paths.tx_packets + t.paths.tx_acks);
  return std::move(books.wrong);
}

}  // namespace metaroce::telemetry
