// Packets that nobody sent, near enough to what an engine expects to get far into it.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/engine.h"
#include "wire/packet.h"

namespace metaroce::fuzzing {

inline constexpr uint32_t kStreams = 3;
inline constexpr uint64_t kRegionBytes = 64 << 10;
inline constexpr uint64_t kRemoteBase = 0x10'0000'0000ull;
inline constexpr uint64_t kLengths[] = {0,    1,    15,   16,   200,  1200,
                                        1408, 2048, 2049, 4096, 9000, 16000};

struct Op {
  uint8_t kind, a, b, c, d, e, f, g;
};
enum : uint8_t {
  kRun,
  kDeliver,
  kTime,
  kDisturb,
  kMutate,
  kReplay,
  kMakeUp,
  kWrite,
  kSend,
  kReceive,
  kClose,
  kPlane,
  kHint,
  kPort,
  kConnect,
  kKindsOfOp
};

/// What was last seen of the packets that a side sent: made-up packets stay near it.
struct Seen {
  uint32_t peer_id = 0;  ///< the connection id its packets carry: the peer's
  uint32_t seq[8] = {};
  uint32_t base[8] = {};  ///< of its ACKs
  uint32_t cpsn = 0;
  uint32_t counter = 0;
  uint32_t stamp = 0;
  uint64_t nonce = 0;
  uint32_t msn[kStreams] = {};
};

/// Whom a made-up packet is for.
struct Target {
  const Seen& like;  ///< what its peer sent
  const Seen& own;   ///< what it sent itself
  uint32_t key;
  uint32_t closed_key;
  engine::ConnectionHandle connection;
  int peer_side;
  uint32_t planes;
};

inline SocketAddress address(int side, uint32_t plane, uint16_t port) {
  SocketAddress a;
  a.family = 4;
  a.port = port;
  a.bytes = {10, 0, static_cast<uint8_t>(plane), static_cast<uint8_t>(side + 1)};
  return a;
}

inline void learn(Seen& seen, const std::vector<std::byte>& bytes) {
  const auto packet = wire::decode(bytes);
  const auto sequenced = [&](const wire::Sequenced& s, bool with_cpsn) {
    seen.peer_id = s.connection;
    seen.seq[s.path & 7] = s.path_seq;
    seen.stamp = s.stamp;
    if (with_cpsn) seen.cpsn = s.cpsn;
  };
  if (const auto* d = std::get_if<wire::DataPacket>(&*packet)) {
    sequenced(d->s, true);
    if (d->stream < kStreams) seen.msn[d->stream] = d->msn;
  } else if (const auto* c = std::get_if<wire::ControlPacket>(&*packet)) {
    sequenced(c->s, true);
    if (c->opcode == wire::ControlOpcode::kPathOpen) seen.seq[c->path & 7] = c->start - 1;
  } else if (const auto* p = std::get_if<wire::ProbePacket>(&*packet)) {
    sequenced(p->s, false);
  } else if (const auto* v = std::get_if<wire::VoidPacket>(&*packet)) {
    sequenced(v->s, false);
  } else if (const auto* a = std::get_if<wire::AckPacket>(&*packet)) {
    seen.peer_id = a->f.connection;
    seen.counter = a->f.counter;
    seen.base[a->f.path & 7] = a->f.base;
  } else if (const auto* h = std::get_if<wire::HelloPacket>(&*packet)) {
    seen.peer_id = h->connection;
    seen.nonce = h->nonce;
    seen.cpsn = h->start_cpsn - 1;
    for (uint32_t i = 0; i < 8; ++i) seen.seq[i] = h->start_seq + (i << 24) - 1;
  }
}

inline size_t extra_payload(const Op& op) {
  const auto opcode = static_cast<wire::Opcode>(1 + op.b % 24);
  if (opcode == wire::Opcode::kReadRequest || opcode == wire::Opcode::kFetchAdd ||
      opcode == wire::Opcode::kCompareSwap) {
    return 0;
  }
  return opcode == wire::Opcode::kAtomicResponse ? 8 : kLengths[op.f % 7];
}

inline wire::Sequenced near(const Op& op, const Seen& like) {
  wire::Sequenced s;
  s.flags = op.e & wire::kFlagMask;
  s.path = op.g & 7;
  s.connection = like.peer_id;
  s.path_seq = like.seq[s.path] + 1 + static_cast<uint32_t>(static_cast<int8_t>(op.c) / 2);
  s.floor = (op.c & 1) != 0 ? op.f : 0;
  s.stamp = like.stamp + op.e;
  s.cpsn = like.cpsn + 1 + static_cast<uint32_t>(static_cast<int8_t>(op.d) * (op.e & 8 ? 7 : 1));
  s.epoch = op.f >> 6;
  return s;
}

inline size_t write_data(const Op& op, const Target& to, std::byte* out) {
  wire::DataPacket p;
  p.s = near(op, to.like);
  p.opcode = static_cast<wire::Opcode>(1 + op.b % 24);
  p.stream = op.f % (kStreams + 1);
  p.message_flags = op.e & 0x1F;
  p.msn = to.like.msn[p.stream % kStreams] + op.f / 32;
  p.offset = (op.e & 0x20) != 0 ? op.c * 16u : 0;
  const bool closed = (op.g & 0x40) != 0;
  p.key = (closed ? to.closed_key : to.key) + (op.g >> 3 & 1);
  p.address = kRemoteBase + (op.g & 0x20 ? kRegionBytes - op.d : op.d * 64u);
  p.rq_seq = op.d % 4;
  p.immediate = op.c;
  p.read_length = op.c;
  return encode(p, out);
}

inline size_t write_control(uint8_t opcode, const Op& op, const Target& to, std::byte* out) {
  wire::ControlPacket p;
  p.s = near(op, to.like);
  p.opcode = static_cast<wire::ControlOpcode>(opcode);
  p.stream = op.f % 4;
  p.generation = op.f % 5;
  p.value = op.e;
  p.path = op.e % 16 == 15 ? op.f : op.e % 16;
  p.plane = op.f % (to.planes + 1);
  p.start = to.like.seq[p.path & 7] + op.f;
  p.address[0] = p.address[1] = address(op.f & 1, p.plane, wire::kBasePort);
  p.reason = static_cast<wire::Refusal>(op.e % 14);
  return encode(p, out);
}

/// Acknowledges what `s` itself sent.
inline size_t write_ack(const Op& op, const Target& to, std::byte* out) {
  wire::AckPacket p;
  p.f.path = op.g & 7;
  p.f.connection = to.like.peer_id;
  p.f.counter = to.like.counter + 1 + static_cast<uint32_t>(static_cast<int8_t>(op.d) / 8);
  p.f.base = to.own.seq[p.f.path] + 1 - op.c;
  const uint32_t room = to.own.seq[p.f.path] + 1 - p.f.base + (op.e & 1);
  for (uint32_t i = 0; i < room && i < 256; ++i) {
    if (((op.d ^ i * 37) & (op.e >> 4)) == 0) p.map.set(i);
    if (((op.f ^ i * 11) & 7) == 0 && (op.e & 2) != 0 && p.map.test(i)) p.refused.set(i);
  }
  p.is_long = p.refused.any() || (op.e & 4) != 0;
  p.f.status = op.f & 15;
  p.f.stamp = to.own.stamp - op.f;
  p.f.delay = op.e & 8 ? op.d : 1;
  p.f.ce_count = op.f / 16;
  p.f.hint = op.g & 0x80 ? op.c : wire::kHintNoLimit;
  p.f.stream = op.f % kStreams;
  p.f.limit = op.c;
  p.f.reason = static_cast<wire::Refusal>(op.f % 15);
  p.f.refusal_delay = op.d;
  p.f.refusal_stream = op.f % kStreams;
  if ((op.g & 0x60) != 0x60) return encode(p, out);
  wire::AckWidePacket wide;
  wide.f = p.f;
  wide.map[0] = p.map.raw(0);
  wide.refused[0] = p.refused.raw(0);
  wide.has_refused = p.refused.any();
  return encode(wide, out);
}

inline size_t write_hello(const Op& op, const Target& to, std::byte* out) {
  wire::HelloPacket p;
  p.is_accept = (op.c & 1) != 0;
  p.connection = p.is_accept ? to.connection : 0;
  p.own_connection = to.like.peer_id + op.d;
  p.nonce = (op.c & 2) != 0 ? to.like.nonce : op.d;
  p.echoed_nonce = to.own.nonce;
  p.start_seq = op.e << 24;
  p.start_cpsn = op.f << 24;
  p.paths = (op.c & 4) != 0 ? op.f : 1 + op.f % 4;
  p.params.versions = (op.c & 8) != 0 ? op.f : 1;
  p.params.cpsn_window_log2 = 10 + op.e % 11;
  p.params.max_paths = static_cast<uint8_t>(1 + op.d % 255);
  p.params.span = static_cast<uint16_t>(1 + op.e);
  p.params.inflight_packets = op.c;
  p.params.pmtu = static_cast<uint16_t>(op.f * 64);
  for (uint32_t i = 0; i < op.e % 17u; ++i)
    p.params.planes[i] = address(to.peer_side, i, wire::kBasePort);
  return encode(p, out);
}

inline size_t write_rare(const Op& op, const Target& to, std::byte* out) {
  switch (op.c % 4) {
    case 0: {
      wire::CookiePacket p;
      p.connection = to.connection;
      p.nonce = to.own.nonce + op.d / 128;
      p.cookie.fill(static_cast<std::byte>(op.e));
      return encode(p, out);
    }
    case 1:
      return encode(wire::ConfirmPacket{to.connection, op.d}, out);
    case 2:
      return encode(wire::HostProbePacket{(op.d & 1) != 0, op.e}, out);
    default:
      return encode(wire::UnknownConnectionPacket{to.own.peer_id + op.d / 128, to.like.seq[0]},
                    out);
  }
}

inline size_t write_packet(const Op& op, const Target& to, std::byte* out) {
  const uint32_t kind = op.b % 24;
  if (kind < 10) return write_data(op, to, out);
  if (kind < 19) return write_control(static_cast<uint8_t>(kind - 9), op, to, out);
  switch (kind) {
    case 19:
      return encode(wire::ProbePacket{near(op, to.like), static_cast<uint16_t>(op.f % 5)}, out);
    case 20:
      return encode(wire::VoidPacket{near(op, to.like)}, out);
    case 21:
      return write_ack(op, to, out);
    case 22:
      return write_hello(op, to, out);
    default:
      return write_rare(op, to, out);
  }
}

}  // namespace metaroce::fuzzing
