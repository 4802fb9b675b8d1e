#include "lab/wire_link.h"

#include <netinet/in.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace metaroce::lab {

namespace {

constexpr uint32_t kEthernet = 14;
constexpr uint32_t kIp4 = 20, kIp6 = 40, kUdp = 8, kTcp = 20;
constexpr uint8_t kEct1 = 1, kEct0 = 2, kCe = 3;

uint32_t byte_at(const WirePacket& p, size_t i) { return std::to_integer<uint32_t>(p.bytes[i]); }
uint32_t word_at(const WirePacket& p, size_t i) { return byte_at(p, i) << 8 | byte_at(p, i + 1); }
void put_byte(WirePacket& p, size_t i, uint32_t value) {
  p.bytes[i] = static_cast<std::byte>(value);
}
void put_word(WirePacket& p, size_t i, uint32_t value) {
  put_byte(p, i, value >> 8 & 0xFF);
  put_byte(p, i + 1, value & 0xFF);
}

/// Where things stand in a packet; 0 for what is not there.
struct Layers {
  uint8_t version = 0;   ///< 4 or 6, with its header whole
  uint8_t protocol = 0;  ///< UDP or TCP with its header whole; not in fragments, and not behind
                         ///< extension headers
  bool plain = false;    ///< the IP header has no options
  uint32_t transport = 0;
  uint32_t payload = 0;
  uint32_t end = 0;  ///< of the IP packet; Ethernet may have padded it
};

void find_transport(const WirePacket& p, uint32_t protocol, Layers& at) {
  if (protocol == IPPROTO_UDP && at.transport + kUdp <= at.end) {
    at.payload = at.transport + kUdp;
  } else if (protocol == IPPROTO_TCP && at.transport + kTcp <= at.end) {
    const uint32_t header = (byte_at(p, at.transport + 12) >> 4) * 4;
    if (header < kTcp || at.transport + header > at.end) return;
    at.payload = at.transport + header;
  } else {
    return;
  }
  at.protocol = static_cast<uint8_t>(protocol);
}

Layers layers_of(const WirePacket& p) {
  Layers at;
  const size_t size = p.bytes.size();
  const uint32_t type = size >= kEthernet ? word_at(p, 12) : 0;
  if (type == 0x0800 && size >= kEthernet + kIp4 && byte_at(p, kEthernet) >> 4 == 4) {
    const uint32_t header = (byte_at(p, kEthernet) & 0xF) * 4;
    const uint32_t length = word_at(p, kEthernet + 2);
    if (header < kIp4 || kEthernet + header > size) return at;
    at.version = 4;
    const bool fragment = (word_at(p, kEthernet + 6) & 0x3FFF) != 0;
    if (length < header || kEthernet + length > size || fragment) return at;
    at.plain = header == kIp4;
    at.transport = kEthernet + header;
    at.end = kEthernet + length;
    find_transport(p, byte_at(p, kEthernet + 9), at);
  } else if (type == 0x86DD && size >= kEthernet + kIp6 && byte_at(p, kEthernet) >> 4 == 6) {
    at.version = 6;
    at.plain = true;
    at.transport = kEthernet + kIp6;
    at.end = at.transport + word_at(p, kEthernet + 4);
    if (at.end <= size) find_transport(p, byte_at(p, kEthernet + 6), at);
  }
  return at;
}

/// Ones' complement sum, not folded.
uint64_t sum_of(const WirePacket& p, size_t from, size_t to) {
  uint64_t sum = 0;
  for (; from + 1 < to; from += 2) sum += word_at(p, from);
  if (from < to) sum += byte_at(p, from) << 8;
  return sum;
}

uint32_t folded(uint64_t sum) {
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint32_t>(sum);
}

/// The traffic class, DSCP and ECN.
uint32_t class_of(const WirePacket& p, uint8_t version) {
  return version == 4 ? byte_at(p, kEthernet + 1) : word_at(p, kEthernet) >> 4 & 0xFF;
}

/// A checksum that was right stays right, and a wrong one wrong (RFC 1624).
void put_class(WirePacket& p, uint8_t version, uint32_t value) {
  const uint32_t before = word_at(p, kEthernet);
  if (version == 6) return put_word(p, kEthernet, (before & 0xF00F) | value << 4);
  put_byte(p, kEthernet + 1, value);
  const uint32_t sum = (~word_at(p, kEthernet + 10) & 0xFFFF) + (~before & 0xFFFF);
  put_word(p, kEthernet + 10, ~folded(sum + word_at(p, kEthernet)) & 0xFFFF);
}

bool bleach(WirePacket& p) {
  const uint8_t version = layers_of(p).version;
  if (version == 0) return false;
  const uint32_t before = class_of(p, version);
  if ((before & kCe) == 0) return false;
  put_class(p, version, before & ~uint32_t{kCe});
  return true;
}

bool mark(WirePacket& p) {
  const uint8_t version = layers_of(p).version;
  if (version == 0) return false;
  const uint32_t before = class_of(p, version);
  if ((before & kCe) != kEct0 && (before & kCe) != kEct1) return false;
  put_class(p, version, before | kCe);
  return true;
}

/// As a switch trims: headers and the beginning of the payload, valid in themselves. Checksums are
/// written in full, as what the kernel meant to fill in covers bytes that are gone.
bool trim(WirePacket& p) {
  const Layers at = layers_of(p);
  if (at.protocol != IPPROTO_UDP || !at.plain) return false;
  const uint32_t end = std::min(at.end, at.payload + WireLink::kTrimmedPayload);
  p.bytes.resize(end);
  p.vnet = {};
  put_class(p, at.version, uint32_t{WireLink::kTrimmedDscp} << 2 | (class_of(p, at.version) & kCe));
  const uint32_t length = end - at.transport;
  uint64_t sum = uint64_t{IPPROTO_UDP} + length;
  if (at.version == 4) {
    put_word(p, kEthernet + 2, end - kEthernet);
    put_word(p, kEthernet + 10, 0);
    put_word(p, kEthernet + 10, ~folded(sum_of(p, kEthernet, at.transport)) & 0xFFFF);
    sum += sum_of(p, kEthernet + 12, at.transport);
  } else {
    put_word(p, kEthernet + 4, length);
    sum += sum_of(p, kEthernet + 8, at.transport);
  }
  put_word(p, at.transport + 4, length);
  put_word(p, at.transport + 6, 0);
  const uint32_t check = ~folded(sum + sum_of(p, at.transport, end)) & 0xFFFF;
  put_word(p, at.transport + 6, check == 0 ? 0xFFFF : check);
  return true;
}

}  // namespace

void WireLink::set(const LinkRules& rules) {
  // A part of a nanosecond has its meaning with its rate only.
  if (rules.rate_bps != rules_.rate_bps) busy_rest_ = 0;
  if (rules.burst_in_ppm == 0) in_burst_ = false;
  rules_ = rules;
}

bool WireLink::is_dark(Time now) const {
  if (rules_.dark) return true;
  return rules_.flap_ms != 0 && now.ns / milliseconds(rules_.flap_ms).ns % 2 != 0;
}

bool WireLink::is_lost() {
  // Both are asked of every packet: a burst goes on, whoever else loses packets.
  const bool alone = chance(rules_.loss_ppm);
  if (rules_.burst_in_ppm != 0) {
    if (chance(in_burst_ ? rules_.burst_out_ppm : rules_.burst_in_ppm)) in_burst_ = !in_burst_;
  }
  return alone || in_burst_;
}

/// Never in a header: that packet would go elsewhere or nowhere, which is another fault. The
/// checksum is left, and with it the question whether anybody looks at it.
bool WireLink::corrupt(WirePacket& packet) {
  const Layers at = layers_of(packet);
  if (at.protocol == 0 || at.payload == at.end) return false;
  const uint64_t bit = rng_.below(uint64_t{at.end - at.payload} * 8);
  packet.bytes[at.payload + bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  return true;
}

bool WireLink::has_room(size_t bytes) const {
  return in_order_.size() + late_.size() < kMostPackets && held_bytes_ + bytes <= kMostBytes;
}

Time WireLink::serialise(Time now, uint32_t bytes) {
  if (busy_until_ < now) {
    busy_until_ = now;
    busy_rest_ = 0;
  }
  // The rest is carried on: at 100 Gbit/s a nanosecond is a tenth of a small packet.
  const uint64_t work = uint64_t{bytes} * 8 * 1'000'000'000 + busy_rest_;
  busy_until_.ns += static_cast<int64_t>(work / rules_.rate_bps);
  busy_rest_ = work % rules_.rate_bps;
  queue_.push_back({busy_until_, bytes});
  queued_bytes_ += bytes;
  return busy_until_;
}

WireLink::Queueing WireLink::queue(Time now, WirePacket& packet, Time& leaves) {
  while (!queue_.empty() && queue_.front().until <= now) {
    queued_bytes_ -= queue_.front().bytes;
    queue_.pop_front();
  }
  leaves = now;
  if (rules_.rate_bps == 0) return Queueing::kPassed;
  const uint64_t limit = queue_of(rules_);
  Queueing fate = Queueing::kPassed;
  if (queued_bytes_ + packet.bytes.size() > limit) {
    // Headers have room of their own: as long as one full queue again.
    if (!rules_.trim || !trim(packet) || queued_bytes_ + packet.bytes.size() > 2 * limit) {
      return Queueing::kFull;
    }
    fate = Queueing::kTrimmed;
  } else if (rules_.mark_bytes != 0 && queued_bytes_ > rules_.mark_bytes && mark(packet)) {
    fate = Queueing::kMarked;
  }
  leaves = serialise(now, static_cast<uint32_t>(packet.bytes.size()));
  return fate;
}

void WireLink::hold(std::deque<Held>& where, Time due, WirePacket&& packet) {
  held_bytes_ += packet.bytes.size();
  where.push_back({due, std::move(packet)});
}

void WireLink::offer(Time now, std::span<const std::byte> bytes, const VnetHeader& vnet) {
  ++counts_.seen;
  if (is_dark(now)) {
    ++counts_.dark;
    return;
  }
  if (is_lost()) {
    ++counts_.lost;
    return;
  }
  if (bytes.size() > kMostPacket || !has_room(bytes.size())) {
    ++counts_.full;
    return;
  }
  WirePacket packet{vnet, {bytes.begin(), bytes.end()}, false};
  const bool bleached = rules_.bleach && bleach(packet);
  const bool corrupted = chance(rules_.corrupt_ppm) && corrupt(packet);
  Time due;
  const Queueing fate = queue(now, packet, due);
  if (fate == Queueing::kFull) {
    ++counts_.full;
    return;
  }
  ++counts_.passed;
  counts_.bleached += bleached;
  counts_.corrupted += corrupted;
  counts_.marked += fate == Queueing::kMarked;
  counts_.trimmed += fate == Queueing::kTrimmed;

  due = due + microseconds(rules_.delay_us);
  if (rules_.jitter_us != 0) {
    const auto most = static_cast<uint64_t>(microseconds(rules_.jitter_us).ns);
    due = due + nanoseconds(static_cast<int64_t>(rng_.below(most + 1)));
  }
  if (!in_order_.empty()) due = std::max(due, in_order_.back().due);
  const bool late = chance(rules_.reorder_ppm);
  counts_.late += late;
  std::deque<Held>& where = late ? late_ : in_order_;
  if (late) {
    due = due + microseconds(rules_.late_us);
    if (!late_.empty()) due = std::max(due, late_.back().due);
  }
  const bool twice = chance(rules_.duplicate_ppm);
  WirePacket copy;
  if (twice) copy = {packet.vnet, packet.bytes, true};
  hold(where, due, std::move(packet));
  if (twice && has_room(copy.bytes.size())) {
    ++counts_.duplicated;
    hold(where, due, std::move(copy));
  }
}

Time WireLink::next_departure() const {
  const Time first = in_order_.empty() ? kNever : in_order_.front().due;
  return late_.empty() ? first : earlier(first, late_.front().due);
}

std::optional<WirePacket> WireLink::take(Time now) {
  const Time due = next_departure();
  if (due > now || due == kNever) return std::nullopt;
  const bool ordered = !in_order_.empty() && in_order_.front().due == due;
  std::deque<Held>& from = ordered ? in_order_ : late_;
  std::optional<WirePacket> packet(std::move(from.front().packet));
  from.pop_front();
  MR_DASSERT(held_bytes_ >= packet->bytes.size());
  held_bytes_ -= packet->bytes.size();
  return packet;
}

void WireLink::refused(const WirePacket& packet) {
  if (packet.copy) {
    --counts_.duplicated;
    return;
  }
  --counts_.passed;
  ++counts_.full;
}

void WireLink::overrun(uint64_t packets) {
  counts_.seen += packets;
  counts_.full += packets;
}

}  // namespace metaroce::lab
