// Counters of the engine. Plain integers: one engine belongs to one thread.
#pragma once

#include <cstdint>

namespace metaroce {

// name, meaning
#define MR_PATH_COUNTERS(X)                                                       \
  X(tx_packets, "sequenced packets sent")                                         \
  X(tx_bytes, "payload bytes sent")                                               \
  X(tx_new, "data packets sent for the first time")                               \
  X(tx_repair, "data packets sent again")                                         \
  X(tx_copies, "idle copies sent")                                                \
  X(tx_probes, "probes sent")                                                     \
  X(tx_acks, "acknowledgements sent")                                             \
  X(acked, "sequences seen acknowledged")                                         \
  X(lost, "sequences judged lost")                                                \
  X(spurious, "sequences judged lost that arrived after all")                     \
  X(rx_packets, "sequenced packets received")                                     \
  X(rx_bytes, "payload bytes accepted")                                           \
  X(rx_duplicates, "packets whose CPSN was already decided")                      \
  X(rx_refused, "packets refused")                                                \
  X(rx_late, "packets that arrived below the base or behind a gap")               \
  X(rx_ce, "packets received with a congestion mark")                             \
  X(rx_acks, "acknowledgements received")                                         \
  X(suspects, "times the path became suspect")                                    \
  X(deaths, "times the path was declared dead")                                   \
  X(mtu_fallback, "times the packet size of the path had to shrink")

struct PathCounters {
#define X(name, meaning) uint64_t name = 0;
  MR_PATH_COUNTERS(X)
#undef X
};

#define MR_CONNECTION_COUNTERS(X)                                                 \
  X(messages_sent, "messages accepted by the peer")                               \
  X(messages_received, "messages delivered in order")                             \
  X(bytes_sent, "payload bytes accepted by the peer")                             \
  X(bytes_received, "payload bytes placed")                                       \
  X(cpsn_stalls, "times sending stopped on the CPSN window")                      \
  X(credit_stalls, "times a stream stopped for want of credit")                   \
  X(refusals, "packets the peer refused")                                         \
  X(voids, "VOID packets sent")                                                   \
  X(backstops, "times the backstop timer fired")

struct ConnectionCounters {
#define X(name, meaning) uint64_t name = 0;
  MR_CONNECTION_COUNTERS(X)
#undef X
};

}  // namespace metaroce
