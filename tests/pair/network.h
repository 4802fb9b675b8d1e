// A simulated network between two endpoints, A (side 0) and B (side 1), in virtual time.
//
// A packet leaves over the link of its (side, plane, source port): queue with tail drop and marks,
// serialisation at the link's rate, then the impairments that are active, then the one-way delay.
// Every random decision comes from a generator that belongs to the link, in the order of the
// link's packets: what happens on one path never changes the luck of another.
#pragma once

#include <array>
#include <vector>

#include "base/rng.h"
#include "engine/api.h"
#include "tests/pair/event_queue.h"
#include "tests/pair/impairment.h"
#include "tests/pair/packet_pool.h"

namespace metaroce::pair {

inline constexpr uint32_t kOverheadBytes = 42;  ///< Ethernet, IPv4 and UDP around each packet
inline constexpr uint32_t kIpUdpBytes = 28;

/// 10.0.plane.(side + 1), with the given port.
SocketAddress plane_address(uint32_t plane, int side, uint16_t port);

class Network {
 public:
  struct Options {
    bool copy_payload = false;   ///< false: only headers travel, payload bytes are garbage
    uint32_t cpsn_window = 4096;
  };

  Network(const NetworkConfig& config, Options options, Rng rng, EventQueue& events);

  /// Adds one; its times are absolute and may lie in the past.
  void add(const Impairment& impairment);
  /// From now on the side is found at this address of the plane only.
  void move(uint32_t plane, int side, const SocketAddress& address) {
    moved_[plane][static_cast<size_t>(side)] = address;
  }
  /// Ends the impairments that are active, now.
  void clear(Time now);
  /// To be called when an EventKind::kNetwork fires.
  void update(Time now);

  /// Sends every packet of a run that `side` handed over; one of a secured connection is sealed.
  void send(Time now, int side, const engine::TxRun& run);

  /// To be called when an EventKind::kArrival fires: false when the packet did not make it (dark or
  /// damaged) and is already released; else the caller reads it and calls release.
  bool arrive(Time now, uint32_t packet);
  FlyingPacket& packet(uint32_t index) { return pool_.meta(index); }
  std::byte* bytes(uint32_t index) { return pool_.data(index); }
  void release(uint32_t index) { pool_.give_back(index); }

  /// Sum over planes, ports and both directions, or one direction.
  Tally tally() const;
  Tally tally(int side) const;
  /// Of one path, both kinds of packets, in the direction away from `side`.
  Tally tally(int side, uint32_t plane, uint16_t port) const;
  /// Of one plane, in the direction away from `side`.
  Tally plane_tally(int side, uint32_t plane) const;

  /// A hash over every packet sent: time, link, header bytes and fate.
  uint64_t hash() const { return hash_; }
  void mix(uint64_t value) { hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15ull + (hash_ >> 29); }

  /// Time of the last packet of this type that side sent on the plane, and of the first DATA that
  /// arrived there at or after watch_from(); {-1} when there was none.
  struct PlaneWatch {
    Time last_probe_before{-1};
    Time first_probe_after{-1};
    Time first_data_arrived{-1};
  };
  void watch_plane(uint32_t plane, Time from);
  const PlaneWatch& watched() const { return watch_; }

 private:
  /// The impairments of one link, added up.
  struct Effects {
    uint64_t loss_data = 0;
    uint64_t loss_acks = 0;
    uint64_t burst_enter = 0;
    uint64_t burst_exit = 0;
    uint64_t duplicate = 0;
    uint64_t reorder = 0;
    uint64_t corrupt = 0;
    uint64_t mark = 0;
    Duration duplicate_max;
    Duration reorder_min;
    Duration reorder_max;
    Duration rehash_period;
    Duration rehash_min;
    Duration rehash_max;
    Duration delay_min;
    Duration delay_max;
    uint32_t mtu = 0;
    bool has_delay = false;
    bool dark_data = false;
    bool dark_acks = false;
    bool any = false;  ///< something random is active
  };

  struct Link {
    uint8_t side = 0;
    uint8_t plane = 0;
    uint16_t port = 0;
    bool burst_bad = false;
    uint32_t queue = 0;
    Duration base_delay;
    Duration delay;
    Time next_rehash = kNever;
    Effects effects;
    Rng rng;
    Tally tally;
  };

  struct Queue {
    int64_t busy_until_ps = 0;
  };

  /// What arrived of one path, whatever its source port was.
  struct Top {
    uint32_t path_seq = 0;
    bool any = false;
  };

  /// What became of the transmissions of one CPSN.
  struct Truth {
    uint32_t cpsn = 0;
    uint16_t alive = 0;  ///< in flight and going to arrive, or arrived
    uint16_t transmissions = 0;
  };

  uint32_t link_of(int side, uint32_t plane, uint16_t port);
  uint32_t make_link(int side, uint32_t plane, uint16_t port);
  void refresh(Time now, Link& link);
  void apply(const Impairment& impairment, Link& link);
  void send_one(Time now, Link& link, uint32_t index, uint32_t wire_bytes, bool lost);
  bool enqueue(Time now, Link& link, FlyingPacket& packet, uint32_t wire_bytes, int64_t& leaves_ns);
  bool is_lost(Link& link, const FlyingPacket& packet);
  void schedule(Time now, Link& link, uint32_t index, int64_t leaves_ns);
  void duplicate(Link& link, uint32_t index, Time arrival);
  void classify(Time now, Link& link, FlyingPacket& packet, const std::byte* header);
  Truth& truth(uint8_t side, uint32_t cpsn);
  void hash_packet(Time now, uint32_t link, const std::byte* header, size_t length);

  NetworkConfig config_;
  Options options_;
  Rng rng_;
  EventQueue& events_;
  PacketPool pool_;
  std::vector<Link> links_;
  std::vector<Queue> queues_;
  std::vector<uint32_t> table_;  ///< open addressing: link index + 1
  uint64_t ps_per_byte_;         ///< in units of 1/1024 ps
  std::vector<Impairment> impairments_;
  std::array<std::array<SocketAddress, 2>, kMaxPlanes> moved_{};
  std::array<std::vector<Truth>, 2> truth_;
  std::array<std::array<Top, kMaxPaths>, 2> tops_;  ///< by sending side and path id
  uint64_t hash_ = 0x6d657461ull;
  int watch_plane_ = -1;
  Time watch_from_ = kNever;
  PlaneWatch watch_;
};

}  // namespace metaroce::pair
