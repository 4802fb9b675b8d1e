#include "tests/pair/network.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "wire/common.h"
#include "wire/types.h"

namespace metaroce::pair {

using wire::PacketType;

namespace {

constexpr uint32_t kTableSize = 4096;  // of links; a power of two
constexpr int64_t kPsPerNs = 1000;
constexpr uint64_t kPsFraction = 1024;  // of ps_per_byte_: no floating point, no 128-bit division

PacketType type_of(const std::byte* header) {
  return static_cast<PacketType>(static_cast<uint8_t>(header[0]) & 0x3F);
}

bool is_sequenced(PacketType type) {
  return type == PacketType::kData || type == PacketType::kControl || type == PacketType::kProbe ||
         type == PacketType::kVoid;
}

uint64_t combine(uint64_t a, uint64_t b) { return std::min(kCertain, a + b); }

}  // namespace

SocketAddress plane_address(uint32_t plane, int side, uint16_t port) {
  SocketAddress a;
  a.bytes[0] = 10;
  a.bytes[2] = static_cast<uint8_t>(plane);
  a.bytes[3] = static_cast<uint8_t>(side + 1);
  a.port = port;
  a.family = 4;
  return a;
}

namespace {
constexpr uint64_t Tally::*kTallyMembers[] = {
    &Tally::sent,         &Tally::bytes,       &Tally::delivered,        &Tally::lost,
    &Tally::queue_drops,  &Tally::dark_drops,  &Tally::mtu_drops,        &Tally::misrouted,
    &Tally::crc_errors,   &Tally::duplicates,  &Tally::queue_marks,      &Tally::random_marks,
    &Tally::reordered,    &Tally::late,        &Tally::rehashes,         &Tally::data_new,
    &Tally::data_repairs, &Tally::data_copies, &Tally::spurious_repairs, &Tally::probes,
    &Tally::acks,         &Tally::controls,    &Tally::handshakes};
static_assert(std::size(kTallyMembers) * sizeof(uint64_t) == sizeof(Tally));
}  // namespace

void Tally::add(const Tally& o) {
  for (const auto member : kTallyMembers) this->*member += o.*member;
}

Tally Tally::since(const Tally& earlier) const {
  Tally result = *this;
  for (const auto member : kTallyMembers) result.*member -= earlier.*member;
  return result;
}

Network::Network(const NetworkConfig& config, Options options, Rng rng, EventQueue& events)
    : config_(config),
      options_(options),
      rng_(rng),
      events_(events),
      pool_(std::max<size_t>(config.mtu, engine::kRunHeaderBytes)),
      table_(kTableSize, 0),
      ps_per_byte_(8'000'000'000'000ull * kPsFraction / config.rate_bps) {
  MR_ASSERT(config.planes >= 1 && config.planes <= kMaxPlanes && config.rate_bps > 0);
  // Four windows: an entry is reused long after the last copy of its CPSN has gone.
  for (auto& t : truth_) t.resize(options.cpsn_window * 4u);
  if (config.shared_rate) queues_.resize(config.planes * 2u);
}

// ---- Links and their impairments ---------------------------------------------------------------

uint32_t Network::link_of(int side, uint32_t plane, uint16_t port) {
  const uint32_t key = static_cast<uint32_t>(side) << 20 | plane << 16 | port;
  uint32_t slot = (key * 0x9e3779b1u) >> 20;
  for (;; slot = (slot + 1) & (kTableSize - 1)) {
    const uint32_t entry = table_[slot];
    if (entry == 0) break;
    const Link& link = links_[entry - 1];
    if (link.port == port && link.plane == plane && link.side == side) return entry - 1;
  }
  const uint32_t index = make_link(side, plane, port);
  table_[slot] = index + 1;
  return index;
}

uint32_t Network::make_link(int side, uint32_t plane, uint16_t port) {
  MR_ASSERT(links_.size() < kTableSize / 2);
  Link link;
  link.side = static_cast<uint8_t>(side);
  link.plane = static_cast<uint8_t>(plane);
  link.port = port;
  link.rng = rng_.fork("link", static_cast<uint64_t>(side) << 32 | plane << 16 | port);
  link.base_delay = config_.delay;
  if (config_.delay_spread.ns > 0)
    link.base_delay += nanoseconds(
        static_cast<int64_t>(link.rng.below(static_cast<uint64_t>(config_.delay_spread.ns) + 1)));
  link.delay = link.base_delay;
  if (config_.shared_rate) {
    link.queue = plane * 2 + static_cast<uint32_t>(side);
  } else {
    link.queue = static_cast<uint32_t>(queues_.size());
    queues_.emplace_back();
  }
  links_.push_back(link);
  refresh(Time{0}, links_.back());
  return static_cast<uint32_t>(links_.size() - 1);
}

void Network::add(const Impairment& impairment) {
  impairments_.push_back(impairment);
  events_.push(impairment.begin, EventKind::kNetwork, 0);
  if (impairment.end < kNever) events_.push(impairment.end, EventKind::kNetwork, 0);
}

void Network::clear(Time now) {
  for (Impairment& i : impairments_)
    if (i.end > now) i.end = now;
  update(now);
}

void Network::update(Time now) {
  for (Link& link : links_) refresh(now, link);
}

void Network::refresh(Time now, Link& link) {
  const bool was_rehashing = link.effects.rehash_period.ns > 0;
  const bool was_delayed = link.effects.has_delay;
  link.effects = Effects{};
  for (const Impairment& i : impairments_) {
    if (now < i.begin || now >= i.end) continue;
    if (i.direction != Direction::kBoth && static_cast<int>(i.direction) != link.side) continue;
    if (i.plane >= 0 && i.plane != link.plane) continue;
    if (i.port >= 0 && i.port != link.port) continue;
    apply(i, link);
  }
  Effects& e = link.effects;
  e.any = (e.loss_data | e.loss_acks | e.burst_enter | e.duplicate | e.reorder | e.corrupt |
           e.mark) != 0;
  if (e.rehash_period.ns > 0 && !was_rehashing) {
    const auto period = static_cast<uint64_t>(e.rehash_period.ns);
    link.next_rehash = now + nanoseconds(static_cast<int64_t>(link.rng.below(period)));
  } else if (e.rehash_period.ns == 0 && was_rehashing) {
    link.next_rehash = kNever;
    link.delay = link.base_delay;
  }
  if (e.has_delay && !was_delayed) {
    const auto span = static_cast<uint64_t>(e.delay_max.ns - e.delay_min.ns) + 1;
    link.delay = e.delay_min + nanoseconds(static_cast<int64_t>(link.rng.below(span)));
  } else if (!e.has_delay && was_delayed) {
    link.delay = link.base_delay;
  }
}

void Network::apply(const Impairment& i, Link& link) {
  Effects& e = link.effects;
  switch (i.kind) {
    case ImpairmentKind::kLoss:
      if (i.data) e.loss_data = combine(e.loss_data, i.probability);
      if (i.acks) e.loss_acks = combine(e.loss_acks, i.probability);
      break;
    case ImpairmentKind::kBurst:
      e.burst_enter = i.probability;
      e.burst_exit = i.exit;
      break;
    case ImpairmentKind::kDuplicate:
      e.duplicate = combine(e.duplicate, i.probability);
      e.duplicate_max = i.max;
      break;
    case ImpairmentKind::kReorder:
      e.reorder = combine(e.reorder, i.probability);
      e.reorder_min = i.min;
      e.reorder_max = i.max;
      break;
    case ImpairmentKind::kCorrupt:
      e.corrupt = combine(e.corrupt, i.probability);
      break;
    case ImpairmentKind::kMark:
      e.mark = combine(e.mark, i.probability);
      break;
    case ImpairmentKind::kDark:
      e.dark_data |= i.data;
      e.dark_acks |= i.acks;
      break;
    case ImpairmentKind::kRehash:
      e.rehash_period = i.period;
      e.rehash_min = i.min;
      e.rehash_max = i.max;
      break;
    case ImpairmentKind::kDelay:
      e.has_delay = true;
      e.delay_min = i.min;
      e.delay_max = i.max;
      break;
    case ImpairmentKind::kMtu:
      e.mtu = e.mtu == 0 ? i.value : std::min(e.mtu, i.value);
      break;
    case ImpairmentKind::kPortChange:
      break;  // Pair asks the engine for it
  }
}

// ---- The truth about repairs -------------------------------------------------------------------

Network::Truth& Network::truth(uint8_t side, uint32_t cpsn) {
  auto& table = truth_[side];
  Truth& t = table[cpsn % table.size()];
  if (t.cpsn != cpsn) t = Truth{cpsn, 0, 0};
  return t;
}

void Network::classify(Time now, Link& link, FlyingPacket& packet, const std::byte* header) {
  const PacketType type = type_of(header);
  Tally& tally = link.tally;
  packet.sequenced = is_sequenced(type);
  packet.is_data = type == PacketType::kData;
  if (packet.sequenced) packet.path_seq = wire::load32(header + 8);
  switch (type) {
    case PacketType::kData: {
      packet.cpsn = wire::load32(header + 16);
      Truth& t = truth(link.side, packet.cpsn);
      const bool copy = (static_cast<uint8_t>(header[1]) & wire::flag::kCopy) != 0;
      if (copy) {
        ++tally.data_copies;
      } else if (t.transmissions == 0) {
        ++tally.data_new;
      } else {
        ++tally.data_repairs;
        if (t.alive > 0) ++tally.spurious_repairs;
      }
      ++t.transmissions;
      break;
    }
    case PacketType::kProbe:
      ++tally.probes;
      if (link.plane == watch_plane_ && link.side == 0) {
        if (now < watch_from_) watch_.last_probe_before = now;
        else if (watch_.first_probe_after.ns < 0) watch_.first_probe_after = now;
      }
      break;
    case PacketType::kControl:
    case PacketType::kVoid:
      ++tally.controls;
      break;
    case PacketType::kAck:
    case PacketType::kAckLong:
    case PacketType::kAckWide:
    case PacketType::kAckWideRefused:
      ++tally.acks;
      break;
    default:
      ++tally.handshakes;
  }
}

// ---- Sending -----------------------------------------------------------------------------------

void Network::send(Time now, int side, const engine::TxRun& run) {
  const std::byte* header = run.headers;
  for (uint32_t i = 0; i < run.count; ++i) {
    const uint32_t header_length = run.header_length[i];
    const uint32_t payload = run.payload_length[i];
    const std::byte* const begin = header;
    header += header_length + run.trailer;
    MR_ASSERT(header <= run.headers + engine::kRunHeaderBytes);
    MR_ASSERT(header_length >= 8 && run.plane < config_.planes);
    const uint32_t link_index = link_of(side, run.plane, run.from.port);
    Link& link = links_[link_index];
    const uint32_t wire_bytes = header_length + payload + run.trailer + kOverheadBytes;
    ++link.tally.sent;
    link.tally.bytes += wire_bytes;
    hash_packet(now, link_index, begin, header_length);
    const uint32_t index = pool_.take();
    FlyingPacket& packet = pool_.meta(index);
    packet = FlyingPacket{};
    packet.from = run.from;
    packet.sealed = run.session != nullptr;
    packet.length = header_length + payload + (packet.sealed ? run.trailer : 0u);
    packet.link = link_index;
    packet.plane = run.plane;
    packet.to_side = static_cast<uint8_t>(1 - side);
    packet.ecn = run.ecn;
    classify(now, link, packet, begin);
    if (packet.length > pool_.capacity()) {
      ++link.tally.mtu_drops;
      pool_.give_back(index);
      continue;
    }
    std::byte* const out = pool_.data(index);
    std::memcpy(out, begin, header_length);
    if (options_.copy_payload && payload > 0) {
      if (run.payload[i] != nullptr) std::memcpy(out + header_length, run.payload[i], payload);
      else std::memset(out + header_length, 0, payload);
    }
    if (packet.sealed) {
      std::memcpy(out + header_length + payload, begin + header_length, run.trailer);
    }
    const SocketAddress& moved = moved_[run.plane][static_cast<size_t>(1 - side)];
    const bool routed = run.to.same_host(
        moved.family != 0 ? moved : plane_address(run.plane, 1 - side, 0));
    if (!routed) ++link.tally.misrouted;
    send_one(now, link, index, wire_bytes, !routed);
  }
}

/// True when the packet enters the queue; `leaves_ns` is when its last bit has left.
bool Network::enqueue(Time now, Link& link, FlyingPacket& packet, uint32_t wire_bytes,
                      int64_t& leaves_ns) {
  Queue& queue = queues_[link.queue];
  const int64_t now_ps = now.ns * kPsPerNs;
  const int64_t wait_ps = std::max<int64_t>(queue.busy_until_ps - now_ps, 0);
  const auto backlog = static_cast<uint64_t>(wait_ps) * kPsFraction / ps_per_byte_;
  if (backlog + wire_bytes > config_.queue_bytes) {
    ++link.tally.queue_drops;
    return false;
  }
  if (config_.mark_bytes > 0 && backlog > config_.mark_bytes && packet.ecn != Ecn::kNotEct) {
    packet.ecn = Ecn::kCe;
    ++link.tally.queue_marks;
  }
  const auto takes_ps = static_cast<int64_t>(wire_bytes * ps_per_byte_ / kPsFraction);
  queue.busy_until_ps = now_ps + wait_ps + takes_ps;
  leaves_ns = (queue.busy_until_ps + kPsPerNs - 1) / kPsPerNs;
  return true;
}

bool Network::is_lost(Link& link, const FlyingPacket& packet) {
  const Effects& e = link.effects;
  const uint64_t loss = packet.sequenced ? e.loss_data : e.loss_acks;
  bool lost = loss > 0 && link.rng.chance(loss);
  if (e.burst_enter > 0) {
    if (link.rng.chance(link.burst_bad ? e.burst_exit : e.burst_enter))
      link.burst_bad = !link.burst_bad;
    lost = lost || link.burst_bad;
  }
  return lost;
}

void Network::send_one(Time now, Link& link, uint32_t index, uint32_t wire_bytes, bool lost) {
  FlyingPacket& packet = pool_.meta(index);
  const Effects& e = link.effects;
  const uint32_t ip_bytes = wire_bytes - (kOverheadBytes - kIpUdpBytes);
  int64_t leaves_ns = 0;
  if (!lost && (ip_bytes > config_.mtu || (e.mtu > 0 && ip_bytes > e.mtu))) {
    ++link.tally.mtu_drops;
    lost = true;
  }
  if (!lost && (packet.sequenced ? e.dark_data : e.dark_acks)) {
    ++link.tally.dark_drops;
    lost = true;
  }
  if (!lost) lost = !enqueue(now, link, packet, wire_bytes, leaves_ns);
  if (!lost && e.any) {
    if (is_lost(link, packet)) {
      ++link.tally.lost;
      lost = true;
    } else if (e.corrupt > 0 && link.rng.chance(e.corrupt)) {
      packet.damaged = true;
    }
  }
  if (lost) {
    mix(1);
    pool_.give_back(index);
    return;
  }
  schedule(now, link, index, leaves_ns);
}

void Network::schedule(Time now, Link& link, uint32_t index, int64_t leaves_ns) {
  FlyingPacket& packet = pool_.meta(index);
  const Effects& e = link.effects;
  while (now >= link.next_rehash) {
    const auto span = static_cast<uint64_t>(e.rehash_max.ns - e.rehash_min.ns) + 1;
    link.delay = e.rehash_min + nanoseconds(static_cast<int64_t>(link.rng.below(span)));
    link.next_rehash = link.next_rehash + e.rehash_period;
    ++link.tally.rehashes;
  }
  if (e.mark > 0 && packet.ecn != Ecn::kNotEct && link.rng.chance(e.mark)) {
    packet.ecn = Ecn::kCe;
    ++link.tally.random_marks;
  }
  Time arrival = Time{leaves_ns} + link.delay;
  if (e.reorder > 0 && link.rng.chance(e.reorder)) {
    const auto span = static_cast<uint64_t>(e.reorder_max.ns - e.reorder_min.ns) + 1;
    arrival =
        arrival + e.reorder_min + nanoseconds(static_cast<int64_t>(link.rng.below(span)));
    ++link.tally.reordered;
  }
  if (packet.is_data && !packet.damaged) ++truth(link.side, packet.cpsn).alive;
  events_.push(arrival, EventKind::kArrival, index);
  if (e.duplicate > 0 && link.rng.chance(e.duplicate)) duplicate(link, index, arrival);
}

void Network::duplicate(Link& link, uint32_t index, Time arrival) {
  const auto span = static_cast<uint64_t>(link.effects.duplicate_max.ns) + 1;
  const Time at = arrival + nanoseconds(static_cast<int64_t>(link.rng.below(span)));
  const uint32_t copy = pool_.take();
  pool_.meta(copy) = pool_.meta(index);
  const size_t length = options_.copy_payload ? pool_.meta(index).length
                                              : std::min<size_t>(pool_.meta(index).length,
                                                                 engine::kRunHeaderBytes);
  std::memcpy(pool_.data(copy), pool_.data(index), length);
  ++link.tally.duplicates;
  events_.push(at, EventKind::kArrival, copy);
}

bool Network::arrive(Time now, uint32_t index) {
  FlyingPacket& packet = pool_.meta(index);
  Link& link = links_[packet.link];
  const Effects& e = link.effects;
  if (packet.sequenced ? e.dark_data : e.dark_acks) {
    ++link.tally.dark_drops;
    if (packet.is_data && !packet.damaged) {
      Truth& t = truth(link.side, packet.cpsn);
      if (t.alive > 0) --t.alive;
    }
  } else if (packet.damaged) {
    ++link.tally.crc_errors;
  } else {
    ++link.tally.delivered;
    if (packet.sequenced) {
      Top& top = tops_[link.side][static_cast<uint8_t>(pool_.data(index)[2])];
      if (top.any && static_cast<int32_t>(packet.path_seq - top.path_seq) < 0) {
        ++link.tally.late;
      } else {
        top = {packet.path_seq, true};
      }
      if (packet.is_data && link.plane == watch_plane_ && link.side == 0 && now >= watch_from_ &&
          watch_.first_data_arrived.ns < 0)
        watch_.first_data_arrived = now;
    }
    mix(static_cast<uint64_t>(now.ns) << 16 | packet.link);
    return true;
  }
  mix(static_cast<uint64_t>(now.ns) << 16 | packet.link | 0x8000u);
  pool_.give_back(index);
  return false;
}

// ---- Looking in --------------------------------------------------------------------------------

void Network::hash_packet(Time now, uint32_t link, const std::byte* header, size_t length) {
  mix(static_cast<uint64_t>(now.ns) << 12 ^ link);
  size_t i = 0;
  for (; i + 8 <= length; i += 8) mix(wire::load64(header + i));
  uint64_t rest = length;
  for (; i < length; ++i) rest = rest << 8 | static_cast<uint8_t>(header[i]);
  mix(rest);
}

Tally Network::tally() const {
  Tally total;
  for (const Link& link : links_) total.add(link.tally);
  return total;
}

Tally Network::tally(int side) const {
  Tally total;
  for (const Link& link : links_)
    if (link.side == side) total.add(link.tally);
  return total;
}

Tally Network::tally(int side, uint32_t plane, uint16_t port) const {
  for (const Link& link : links_)
    if (link.side == side && link.plane == plane && link.port == port) return link.tally;
  return {};
}

Tally Network::plane_tally(int side, uint32_t plane) const {
  Tally total;
  for (const Link& link : links_)
    if (link.side == side && link.plane == plane) total.add(link.tally);
  return total;
}

void Network::watch_plane(uint32_t plane, Time from) {
  watch_plane_ = static_cast<int>(plane);
  watch_from_ = from;
  watch_ = PlaneWatch{};
}

}  // namespace metaroce::pair
