// Every cell of spec/states.toml: a connection in that state gets that packet.
#include <gtest/gtest.h>

#include <toml++/toml.h>
#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "base/covers.h"
#include "tests/pair/wire_peer.h"

namespace metaroce::pair {
namespace {

using connection::ConnectionState;
using wire::DropReason;
using wire::PacketType;
using ByteVector = std::vector<std::byte>;

const std::map<std::string, DropReason> kReasons = {
    {"UNKNOWN_CONNECTION", DropReason::kUnknownConnection},
    {"NO_STATE", DropReason::kNoState},
    {"NOT_CONFIRMED", DropReason::kNotConfirmed}};

const std::map<std::string, PacketType> kTypes = {
    {"ACCEPT", PacketType::kAccept},    {"CONFIRM", PacketType::kConfirm},
    {"HELLO", PacketType::kHello},      {"ACK", PacketType::kAck},
    {"ACK_LONG", PacketType::kAckLong}, {"HOST_PROBE", PacketType::kHostProbe},
    {"PROBE", PacketType::kProbe},      {"UNKNOWN_CONNECTION", PacketType::kUnknownConnection}};

/// A connection in one of the states, and the packets that are right for it.
class Subject {
 public:
  explicit Subject(const std::string& state) : state_(state), p(WirePeer::small_settings()) {
    if (state == "hello_sent") ask();
    if (state == "half_open") {
      EXPECT_TRUE(p.say_hello());
    }
    if (state == "open_initiator" || state == "closing" || state == "time_wait") {
      EXPECT_TRUE(p.be_connected());
      nonce_ = p.engine_hello.nonce;
    }
    if (state == "open_responder") {
      EXPECT_TRUE(p.open());
    }
    id_ = p.id() != 0 ? p.id() : id_;
    if (is_up()) fill();
    if (state == "closing" || state == "time_wait") {
      if (state == "time_wait") {
        p.give(p.control(wire::ControlOpcode::kClose, 1));
      } else {
        p.engine().close(p.now, id_, 0);
      }
      note(p.poll());
      p.run(microseconds(state == "time_wait" ? 5 : 0));  // its last ACK is out
    }
    p.events();
    before_ = drops();
  }

  ByteVector packet(const std::string& kind) {
    if (kind == "DATA") return p.write(5, 1, 32);
    if (kind == "DATA_AGAIN") return p.write(0, 0, 64);
    if (kind == "CONTROL") {
      auto c = p.control(wire::ControlOpcode::kCredit, 6);
      c.value = 1;
      return WirePeer::bytes_of(c);
    }
    if (kind == "CLOSE") return WirePeer::bytes_of(p.control(wire::ControlOpcode::kClose, 7));
    if (kind == "PROBE") {
      wire::ProbePacket probe;
      probe.s = p.next();
      probe.s.cpsn = WirePeer::kStartCpsn;
      return WirePeer::bytes_of(probe);
    }
    if (kind == "VOID") {
      wire::VoidPacket v;
      v.s = p.next();
      v.s.cpsn = WirePeer::kStartCpsn + 8;
      return WirePeer::bytes_of(v);
    }
    if (kind.starts_with("ACK")) return ack(kind);
    return setup_packet(kind);
  }

  std::vector<WirePeer::Sent> give(const std::string& kind) {
    const ByteVector bytes = with_id(packet(kind), kind);
    p.give(bytes, 0, Ecn::kEct0, wire::kBasePort);
    return p.run(nanoseconds(1));
  }
  uint64_t dropped(DropReason r) const { return p.dropped(r) - before_[static_cast<size_t>(r)]; }
  uint64_t dropped_in_all() const {
    uint64_t n = 0;
    for (size_t i = 0; i < before_.size(); ++i) n += dropped(static_cast<DropReason>(i));
    return n;
  }
  /// The connection's state; of "none" that of the connection the packet made, if any.
  std::string state_now() {
    engine::ConnectionStatus s;
    uint32_t id = id_;
    if (id == 0) id = made_;
    if (id == 0 || !p.engine().connection_status(id, s)) return "none";
    switch (s.state) {
      case ConnectionState::kHelloSent:
        return "hello_sent";
      case ConnectionState::kAccepting:
        return "half_open";
      case ConnectionState::kOpen:
        return "open";
      case ConnectionState::kClosing:
        return "closing";
      case ConnectionState::kTimeWait:
        return "time_wait";
      case ConnectionState::kDead:
        return "none";
    }
    return "?";
  }
  void note_made(const std::vector<WirePeer::Sent>& sent) {
    for (const auto& a : WirePeer::only<wire::HelloPacket>(sent)) {
      if (a.is_accept) made_ = a.own_connection;
    }
  }

 private:
  bool is_up() const {
    return state_.starts_with("open") || state_ == "closing" || state_ == "time_wait";
  }

  void ask() {
    EXPECT_TRUE(p.engine().connect(p.now, {{plane_address(0, 1, wire::kBasePort)}}));
    const auto sent = p.poll();
    own_hello_ = sent.at(0).bytes;
    const auto hello = *wire::decode_hello(own_hello_);
    id_ = hello.own_connection;
    nonce_ = hello.nonce;
  }
  // A packet of the peer that was decided, and one of the engine that was sent.
  void fill() {
    EXPECT_TRUE(p.give(p.write(0, 0, 64)));
    EXPECT_EQ(p.post(p.request(engine::Operation::kWrite, 1, 64)), Status::kOk);
    note(p.poll());
    p.run(microseconds(5));
  }
  void note(const std::vector<WirePeer::Sent>& sent) {
    for (const auto& s : sent) {
      if (s.type() > PacketType::kVoid) continue;
      sent_path_ = std::to_integer<uint8_t>(s.bytes[2]);
      sent_seq_ = s.word(2);
    }
  }
  ByteVector ack(const std::string& kind) {
    if (kind.starts_with("ACK_WIDE")) {
      wire::AckWidePacket w;
      w.f.connection = id_;
      w.has_refused = kind == "ACK_WIDE_REFUSED";
      return WirePeer::bytes_of(w);
    }
    wire::AckPacket a = p.acknowledge(sent_path_, 0);
    a.f.connection = id_;
    a.f.base = sent_seq_ + 1;
    a.is_long = kind == "ACK_LONG";
    return WirePeer::bytes_of(a);
  }
  ByteVector setup_packet(const std::string& kind) {
    const uint64_t own = nonce_ != 0 ? nonce_ : 5000;
    wire::HelloPacket h = p.hello;
    if (kind == "HELLO" || kind == "HELLO_LOWER") {
      h.nonce = kind == "HELLO" ? own + 1 : own - 1;
      h.own_connection = WirePeer::kId + 0x10000;
      return WirePeer::bytes_of(h);
    }
    if (kind == "HELLO_AGAIN") return again();
    if (kind == "COOKIE") return WirePeer::bytes_of(wire::CookiePacket{id_, own, {}});
    if (kind == "ACCEPT") {
      if (!p.accept_bytes().empty() && p.engine_hello.nonce != 0) return p.accept_bytes();
      h.is_accept = true;
      h.connection = id_;
      h.echoed_nonce = own;
      return WirePeer::bytes_of(h);
    }
    if (kind == "CONFIRM") {
      if (state_ == "half_open" || state_ == "open_responder")
        return WirePeer::bytes_of(p.confirm());
      return WirePeer::bytes_of(wire::ConfirmPacket{id_, 1});
    }
    if (kind == "HOST_PROBE") return WirePeer::bytes_of(wire::HostProbePacket{true, 9});
    if (kind == "UNKNOWN_CONNECTION") {
      return WirePeer::bytes_of(wire::UnknownConnectionPacket{WirePeer::kId, sent_seq_});
    }
    return WirePeer::bytes_of(wire::RefusePacket{id_, own, 3, 0, 1});
  }
  ByteVector again() {
    if (state_ == "hello_sent") return own_hello_;
    if (!p.hello_bytes().empty()) return p.hello_bytes();
    return WirePeer::bytes_of(p.hello);
  }
  /// Where there is no connection, any id is as wrong as another.
  ByteVector with_id(ByteVector bytes, const std::string& kind) const {
    if (kind.starts_with("HELLO") || kind == "HOST_PROBE" || kind == "UNKNOWN_CONNECTION") {
      return bytes;
    }
    wire::store32(bytes.data() + 4, id_ != 0 ? id_ : 0x0003'4321u);
    return bytes;
  }
  std::vector<uint64_t> drops() {
    const auto d = p.engine().drops();
    return {d.begin(), d.end()};
  }

  std::string state_;

 public:
  WirePeer p;

 private:
  uint32_t id_ = 0;
  uint32_t made_ = 0;
  uint64_t nonce_ = 0;
  ByteVector own_hello_;
  uint8_t sent_path_ = 0;
  uint32_t sent_seq_ = 0;
  std::vector<uint64_t> before_;
};

struct Cell {
  std::string state, kind, does, answer, after;
};

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  const toml::table table = toml::parse_file(MR_SOURCE_DIR "/spec/states.toml");
  for (const auto& [state, row] : *table["states"].as_table()) {
    for (const auto& [kind, value] : *row.as_table()) {
      const toml::array& a = *value.as_array();
      cells.push_back({std::string(state.str()), std::string(kind.str()),
                       a[0].value<std::string>().value(), a[1].value<std::string>().value(),
                       a[2].value<std::string>().value()});
    }
  }
  return cells;
}

class LifecycleStates : public ::testing::TestWithParam<Cell> {};

TEST_P(LifecycleStates, TheCellHolds) {
  MR_COVERS("MR-CONN-014");
  MR_COVERS("MR-CONN-023");
  MR_COVERS("MR-CONN-031");
  const Cell& cell = GetParam();
  Subject subject(cell.state);
  if (cell.state != "none") {
    const std::string start = cell.state.starts_with("open") ? "open" : cell.state;
    ASSERT_EQ(subject.state_now(), start);
  }
  const auto sent = subject.give(cell.kind);
  if (cell.does == "use") {
    EXPECT_EQ(subject.dropped_in_all(), 0u);
  } else {
    EXPECT_EQ(subject.dropped(kReasons.at(cell.does.substr(5))), 1u) << cell.does;
    EXPECT_EQ(subject.dropped_in_all(), 1u);
  }
  if (cell.answer == "-") {
    // A connection that has just been opened or freed goes on with its own work.
    if (cell.after == cell.state) {
      EXPECT_TRUE(sent.empty()) << static_cast<int>(sent[0].type());
    }
  } else {
    const PacketType wanted = kTypes.at(cell.answer);
    EXPECT_TRUE(std::any_of(sent.begin(), sent.end(),
                            [wanted](const auto& s) { return s.type() == wanted; }));
  }
  subject.note_made(sent);
  EXPECT_EQ(subject.state_now(), cell.after);
}

INSTANTIATE_TEST_SUITE_P(Every, LifecycleStates, ::testing::ValuesIn(all_cells()),
                         [](const auto& info) { return info.param.state + "_" + info.param.kind; });

TEST(LifecycleStatesTable, TheIsComplete) {
  const auto cells = all_cells();
  std::map<std::string, int> states;
  std::map<std::string, int> kinds;
  for (const Cell& c : cells) {
    ++states[c.state];
    ++kinds[c.kind];
  }
  EXPECT_EQ(states.size(), 7u);
  EXPECT_EQ(kinds.size(), 19u);
  EXPECT_EQ(cells.size(), states.size() * kinds.size());
}

}  // namespace
}  // namespace metaroce::pair
