// What all connections of one engine share: settings, pools, regions, counters.
#pragma once

#include <array>
#include <vector>

#include "base/events.h"
#include "base/ring.h"
#include "base/rng.h"
#include "base/settings.h"
#include "connection/io.h"
#include "connection/path_table.h"
#include "connection/send_window.h"
#include "memory/regions.h"
#include "message/receiver.h"
#include "message/sender.h"
#include "secure/config.h"
#include "wire/control_packet.h"

namespace metaroce::connection {

/// Control packets of one connection that may be on their way at once.
inline constexpr uint32_t kControlsPerConnection = 64;

struct Shared {
  Shared(const Settings& values, std::vector<SocketAddress> addresses, std::vector<uint16_t> mtus,
         Rng random)
      : settings(values),
        local(std::move(addresses)),
        plane_mtu(std::move(mtus)),
        rng(random),
        sent(values.max_active_paths),
        chunks(values.max_active_paths * 2 + values.cpsn_window / kChunkEntries * 2),
        controls(kControlsPerConnection * 2 + values.max_connections * 8),
        sends(values),
        receives(values),
        regions(values.max_regions, random),
        events(values.max_connections * 4 + 16),
        path_events(1024),
        atomics(values.max_connections) {
    plane_mtu.resize(local.size(), 1500);
    plane_up.fill(true);
  }

  void drop(wire::DropReason reason) {
    ++drops[static_cast<size_t>(reason)];
    ++counters.rx_dropped;
    telemetry.emit(EventKind::packet_dropped, 0, 0xFF, static_cast<uint64_t>(reason));
  }

  Settings settings;
  std::vector<SocketAddress> local;
  std::vector<uint16_t> plane_mtu;
  Rng rng;
  Slab<path::SentWindow> sent;
  PathPool paths;  ///< of connections that do not rest
  Slab<SendChunk> chunks;
  Slab<wire::ControlPacket> controls;  ///< control packets whose fate is open
  message::SendPools sends;
  message::ReceivePools receives;
  memory::Regions regions;
  Ring<ConnectionEvent> events;
  Ring<PathEvent> path_events;  ///< apart, so that flapping paths never push out the others
  uint32_t path_events_missed = 0;
  Ring<ConnectionHandle> atomics;  ///< connections with atomics whose turn has come
  std::array<bool, kMaxPlanes> plane_up{};
  std::array<uint64_t, static_cast<size_t>(wire::DropReason::kCount)> drops{};
  uint64_t dropped = 0;  ///< sum of drops
  uint32_t next_port = 0;
  secure::Config security;
  uint16_t versions = 1;  ///< of the protocol, bit v = version v
  EventSource telemetry;
  EndpointCounters counters;
  Time key_guesses_from{0};  ///< begin of the second that is counted (MR-SEC-013)
  uint32_t key_guesses = 0;
  PathCounters gone_paths;               ///< of connections that were removed
  ConnectionCounters gone_connections;
};

}  // namespace metaroce::connection
