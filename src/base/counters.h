// Counters of the engine. Plain integers: one engine belongs to one thread.
#pragma once

#include <cstdint>

namespace metaroce {

// name, unit, meaning; the tables of spec/11 are written from them (spec/telemetry.py).
// MR-WIRE-062
#define MR_PATH_COUNTERS(X)                                                                  \
  X(tx_packets, "packets", "sequenced packets sent")                                         \
  X(tx_bytes, "bytes", "payload sent, repairs and copies included")                          \
  X(tx_new, "packets", "data packets sent for the first time")                               \
  X(tx_repair, "packets", "data packets sent again")                                         \
  X(tx_copies, "packets", "idle copies sent")                                                \
  X(tx_control, "packets", "control and VOID packets sent, repetitions included")            \
  X(tx_probes, "packets", "probes sent")                                                     \
  X(tx_padded, "packets", "of the probes: padded ones, whose fate is followed")              \
  X(tx_acks, "packets", "acknowledgements sent")                                             \
  X(acked, "sequences", "seen acknowledged")                                                 \
  X(acked_late, "sequences", "of these: judged lost before")                                 \
  X(lost, "sequences", "judged lost")                                                        \
  X(lost_padded, "sequences", "padded probes judged lost")                                   \
  X(spurious, "sequences", "judged lost that arrived after all, by what the peer counts too") \
  X(rx_packets, "packets", "sequenced packets received")                                     \
  X(rx_bytes, "bytes", "payload accepted")                                                   \
  X(rx_accepted, "packets", "data packets accepted")                                         \
  X(rx_duplicates, "packets", "packets whose CPSN was already decided")                      \
  X(rx_refused, "packets", "data packets refused")                                           \
  X(rx_control, "packets", "control packets decided, and VOID packets")                      \
  X(rx_probes, "packets", "probes received")                                                 \
  X(rx_late, "packets", "arrived below the base or behind a gap")                            \
  X(rx_ce, "packets", "received with a congestion mark, each sequence once")                 \
  X(rx_acks, "packets", "acknowledgements received")                                         \
  X(ce_reported, "packets", "congestion marks that the peer counted on this path")           \
  X(suspects, "times", "the path became suspect")                                            \
  X(deaths, "times", "the path was declared dead")                                           \
  X(mtu_fallback, "times", "the packet size of the path had to shrink")

struct PathCounters {
#define X(name, unit, meaning) uint64_t name = 0;
  MR_PATH_COUNTERS(X)
#undef X
};

#define MR_CONNECTION_COUNTERS(X)                                                            \
  X(messages_sent, "messages", "accepted by the peer as a whole")                            \
  X(messages_received, "messages", "delivered in order")                                     \
  X(bytes_sent, "bytes", "payload accepted by the peer")                                     \
  X(bytes_received, "bytes", "payload accepted and placed")                                  \
  X(cpsn_stalls, "times", "sending stopped on the CPSN window")                              \
  X(credit_stalls, "times", "a stream stopped for want of credit")                           \
  X(refusals, "packets", "refused by the peer")                                              \
  X(voids, "packets", "VOID packets sent")                                                   \
  X(backstops, "times", "the backstop timer fired")

struct ConnectionCounters {
#define X(name, unit, meaning) uint64_t name = 0;
  MR_CONNECTION_COUNTERS(X)
#undef X
};

#define MR_ENDPOINT_COUNTERS(X)                                                              \
  X(rx_datagrams, "packets", "verified packets that reached the engine")                     \
  X(rx_setup, "packets", "of these: of the set-up, and UNKNOWN_CONNECTION, taken")           \
  X(rx_dropped, "packets", "of these: dropped, the sum of all drop reasons")                 \
  X(tx_datagrams, "packets", "packets handed to the driver")                                 \
  X(tx_setup, "packets", "of these: of the set-up, and UNKNOWN_CONNECTION")                  \
  X(connections_opened, "times", "a connection was made, either way, finished or not")       \
  X(connections_gone, "times", "a connection was removed")

struct EndpointCounters {
#define X(name, unit, meaning) uint64_t name = 0;
  MR_ENDPOINT_COUNTERS(X)
#undef X
};

inline void add(PathCounters& sum, const PathCounters& c) {
#define X(name, unit, meaning) sum.name += c.name;
  MR_PATH_COUNTERS(X)
#undef X
}
inline void add(ConnectionCounters& sum, const ConnectionCounters& c) {
#define X(name, unit, meaning) sum.name += c.name;
  MR_CONNECTION_COUNTERS(X)
#undef X
}

}  // namespace metaroce
