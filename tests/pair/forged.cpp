#include "tests/pair/forged.h"

#include <numeric>

#include "base/rng.h"
#include "tests/pair/wire_peer.h"

namespace metaroce::pair {
namespace {

using ByteVector = std::vector<std::byte>;

/// One of each kind that names a connection, as the peer would send it next.
std::vector<ByteVector> templates(WirePeer& p) {
  std::vector<ByteVector> all;
  wire::Sequenced s = p.next();
  s.cpsn = WirePeer::kStartCpsn + 1;
  wire::DataPacket d = *wire::decode_data(p.write(1, 1, 0));
  d.s = s;
  all.push_back(WirePeer::with_payload(d, 256, 0xEE));
  d.opcode = wire::Opcode::kSend;
  all.push_back(WirePeer::with_payload(d, 64, 0xEE));
  for (const auto op : {wire::ControlOpcode::kClose, wire::ControlOpcode::kReset,
                        wire::ControlOpcode::kPathOpen, wire::ControlOpcode::kCredit}) {
    wire::ControlPacket c;
    c.s = s;
    c.opcode = op;
    c.path = 3;
    c.generation = 9;
    all.push_back(WirePeer::bytes_of(c));
  }
  wire::ProbePacket probe;
  probe.s = s;
  all.push_back(WirePeer::bytes_of(probe));
  wire::VoidPacket v;
  v.s = s;
  all.push_back(WirePeer::bytes_of(v));
  wire::AckPacket a = p.acknowledge(0, 1);
  all.push_back(WirePeer::bytes_of(a));
  a.is_long = true;
  all.push_back(WirePeer::bytes_of(a));
  wire::HelloPacket accept = p.hello;
  accept.is_accept = true;
  accept.connection = p.id();
  accept.echoed_nonce = 1;
  all.push_back(WirePeer::bytes_of(accept));
  all.push_back(WirePeer::bytes_of(wire::ConfirmPacket{p.id(), 1}));
  all.push_back(WirePeer::bytes_of(wire::CookiePacket{p.id(), 1, {}}));
  all.push_back(WirePeer::bytes_of(wire::RefusePacket{p.id(), 1, 3, 0, 1}));
  all.push_back(WirePeer::bytes_of(wire::UnknownConnectionPacket{WirePeer::kId, 0}));
  return all;
}

void put(ByteVector& bytes, size_t word, uint32_t value) {
  if (bytes.size() >= 4 * word + 4) wire::store32(bytes.data() + 4 * word, value);
}

/// Every word that a sequence, CPSN, nonce, MAC or echoed sequence stands in.
void scatter(ByteVector& bytes, Rng& rng) {
  for (const size_t word : {2u, 3u, 4u}) put(bytes, word, rng.next32());
}

}  // namespace

ForgedResult send_forged(uint64_t count, uint64_t seed) {
  WirePeer p;
  ForgedResult r;
  if (!p.open()) return r;
  // A connection in use: something received, something sent.
  p.give(p.write(0, 0, 64));
  p.post(p.request(engine::Operation::kWrite, 1, 2000));
  p.run(microseconds(50));
  p.events();
  std::vector<ByteVector> kinds = templates(p);
  Rng rng(seed);
  const auto drops = [&] {
    const auto d = p.engine().drops();
    return std::accumulate(d.begin(), d.end(), uint64_t{0});
  };
  const uint64_t state = p.engine().state_hash();
  const uint64_t before = drops();
  std::vector<engine::TxRun> runs(4);
  ByteVector bytes;
  for (uint64_t i = 0; i < count; ++i) {
    const ByteVector& right = kinds[rng.below(kinds.size())];
    bytes.assign(right.begin(), right.end());
    if (rng.chance(1u << 31)) {
      uint32_t id = rng.next32();
      // Half of them guess the index right; none the 16 random bits, which is what is asked here.
      if (rng.chance(1u << 31)) id = (wire::load32(right.data() + 4) & 0xFFFF0000u) | (id & 0xFFFF);
      if (id == wire::load32(right.data() + 4)) id ^= 1;
      put(bytes, 1, id);
    } else {
      scatter(bytes, rng);
    }
    const engine::RxPacket rx{bytes, Ecn::kEct0, 0, plane_address(0, 1, 50'000)};
    engine::Placement placement;
    r.placements += p.engine().on_packets(p.now, {&rx, 1}, {&placement, 1});
    r.bytes += bytes.size();
    ++r.sent;
    p.now = p.now + nanoseconds(300);
    if (i % 64 != 63) continue;
    for (size_t n = runs.size(); n == runs.size();) {
      n = p.engine().poll_transmit(p.now, runs);
      for (size_t k = 0; k < n; ++k) {
        // What the connection sends of its own is no answer.
        if (runs[k].connection != 0) continue;
        ++r.answers;
        r.answer_bytes += runs[k].header_length[0];
      }
    }
  }
  r.dropped = drops() - before;
  r.state_unchanged = p.engine().state_hash() == state;
  r.events = p.events().size();
  r.still_alive = p.give(p.write(2, 2, 64));
  return r;
}

}  // namespace metaroce::pair
