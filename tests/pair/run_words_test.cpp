// The packet after an accepted one, with one thing about it changed: whatever it is, handling the
// two as a run (setting whole_runs) must end as handling each alone.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/covers.h"
#include "tests/pair/wire_peer.h"

namespace metaroce::pair {
namespace {

struct Outcome {
  std::vector<std::string> placements;
  std::vector<uint64_t> drops;
  uint64_t state = 0;
  uint64_t delivered = 0;  ///< messages
  std::vector<std::vector<std::byte>> sent;

  bool operator==(const Outcome&) const = default;
};

/// What is changed of the third packet of a message of four.
struct Change {
  const char* name;
  std::function<void(wire::DataPacket&)> change;
  uint32_t length = 1000;
  Ecn ecn = Ecn::kEct0;
  bool taken = true;  ///< its bytes are placed
};

wire::DataPacket middle(WirePeer& peer, uint32_t i, wire::Opcode opcode) {
  wire::DataPacket d;
  d.s = peer.next();
  d.s.cpsn = WirePeer::kStartCpsn + i;
  d.opcode = opcode;
  d.message_flags = i == 0 ? wire::message_flag::kFirst : 0;
  d.offset = i * 1000;
  d.key = peer.region().key;
  // The message would end 500 bytes before the region does.
  d.address = peer.region().remote_base + (1 << 16) - 4500 + i * 1000;
  return d;
}

Outcome run(const Change& c, bool whole, wire::Opcode opcode) {
  Settings s = WirePeer::small_settings();
  s.whole_runs = whole ? 1 : 0;
  WirePeer peer(s);
  EXPECT_TRUE(peer.open());
  std::vector<std::vector<std::byte>> packets;
  for (uint32_t i = 0; i < 3; ++i) {
    wire::DataPacket d = middle(peer, i, opcode);
    if (i == 2) c.change(d);
    packets.push_back(WirePeer::with_payload(d, i == 2 ? c.length : 1000, 0xA0 + i));
  }
  peer.give_together(packets, c.ecn);
  // What comes after finds the same state: the fourth packet, the third as it should have been, and
  // the LAST, which ends the message exactly when the changed one was not counted for it.
  for (uint32_t i = 3; i < 6; ++i) {
    wire::DataPacket d = middle(peer, i, opcode);
    if (i > 3) {
      const uint32_t back = i == 4 ? 2000 : 1000;
      d.offset -= back;
      d.address -= back;
    }
    if (i == 5) d.message_flags = wire::message_flag::kLast;
    packets.assign(1,
                   WirePeer::with_payload(d, i == 5 ? 500 : 1000, static_cast<uint8_t>(0xA0 + i)));
    peer.give_together(packets, Ecn::kEct0);
  }
  Outcome out;
  for (const auto& p : peer.placements) {
    out.placements.push_back(std::to_string(p.rest.size()) + ":" + std::to_string(p.packet) + "+" +
                             std::to_string(p.payload_begin) + " " + std::to_string(p.length) +
                             " at " + std::to_string(p.offset));
  }
  for (const auto& sent : peer.run(microseconds(30))) out.sent.push_back(sent.bytes);
  out.drops.assign(peer.engine().drops().begin(), peer.engine().drops().end());
  out.state = peer.engine().state_hash();
  engine::ConnectionStatus status;
  EXPECT_TRUE(peer.engine().connection_status(peer.id(), status));
  out.delivered = status.counters.messages_received;
  return out;
}

const std::vector<Change>& changes() {
  using D = wire::DataPacket;
  static const std::vector<Change> all = {
      {"nothing", [](D&) {}},
      {"longer", [](D&) {}, 1400},
      {"shorter", [](D&) {}, 16},
      {"empty", [](D&) {}, 0, Ecn::kEct0, false},
      {"beyond the region", [](D&) {}, 2501, Ecn::kEct0, false},
      {"marked", [](D&) {}, 1000, Ecn::kCe},
      {"asks for an ACK", [](D& d) { d.s.flags |= wire::flag::kAckRequest; }},
      {"a repair", [](D& d) { d.s.flags |= wire::flag::kRetransmission; }},
      {"LAST", [](D& d) { d.message_flags |= wire::message_flag::kLast; }},
      {"FIRST", [](D& d) { d.message_flags |= wire::message_flag::kFirst; }},
      {"another message", [](D& d) { ++d.msn; }},
      {"another stream", [](D& d) { d.stream = 7; }},
      {"another kind", [](D& d) { d.opcode = wire::Opcode::kSend; }, 1000, Ecn::kEct0, false},
      {"another key", [](D& d) { d.key ^= 1; }, 1000, Ecn::kEct0, false},
      {"another address", [](D& d) { d.address -= 8; }},
      {"another offset", [](D& d) { d.offset += 4; }},
      {"beyond the largest message", [](D& d) { d.offset = 0x7FFFFFFF; }, 1000, Ecn::kEct0, false},
      {"a gap in the path", [](D& d) { ++d.s.path_seq; }},
      {"a sequence again", [](D& d) { --d.s.path_seq; }},
      {"another path",
       [](D& d) {
         d.s = {.path = 1,
                .connection = d.s.connection,
                .path_seq = WirePeer::kStartSeq + (1u << 24),
                .cpsn = d.s.cpsn};
       }},
      {"a CPSN left out", [](D& d) { ++d.s.cpsn; }},
      {"a CPSN again", [](D& d) { --d.s.cpsn; }, 1000, Ecn::kEct0, false},
      {"another connection", [](D& d) { d.s.connection ^= 1; }, 1000, Ecn::kEct0, false},
  };
  return all;
}

TEST(RunWords, WhateverFollowsEndsAsIfItCameAlone) {
  MR_COVERS("MR-CPSN-005");
  MR_COVERS("MR-MEM-003");
  uint64_t delivered = 0;
  for (const wire::Opcode opcode : {wire::Opcode::kWrite, wire::Opcode::kWriteImm}) {
    for (const Change& c : changes()) {
      const Outcome alone = run(c, false, opcode);
      const Outcome whole = run(c, true, opcode);
      EXPECT_EQ(alone.placements, whole.placements) << c.name;
      EXPECT_EQ(alone.drops, whole.drops) << c.name;
      EXPECT_EQ(alone.state, whole.state) << c.name;
      EXPECT_EQ(alone.delivered, whole.delivered) << c.name;
      delivered += whole.delivered;
      EXPECT_EQ(alone.sent, whole.sent) << c.name;
      // Four packets, of which the third is the one that was changed.
      EXPECT_GE(whole.placements.size(), c.taken ? 3u : 2u) << c.name;
    }
  }
  EXPECT_GE(delivered, 5u) << "the end shows what was counted for the message";
}

}  // namespace
}  // namespace metaroce::pair
