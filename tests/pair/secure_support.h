// Keys for tests, and a net of nodes that have them.
#pragma once

#include "secure/x25519.h"
#include "tests/pair/mini_net.h"
#include "wire/packet.h"

namespace metaroce::pair {

inline secure::Secret test_secret(uint64_t seed) {
  secure::Secret s;
  Rng(seed).fill(s.bytes());
  return s;
}

inline secure::Config psk_config(uint64_t key = 1, const std::string& name = "lab",
                                 secure::Policy policy = secure::Policy::kRequired) {
  secure::Config c;
  c.policy = policy;
  c.psks.push_back({name, test_secret(key)});
  return c;
}

inline secure::OwnKey own_key(uint64_t seed, const std::string& name) {
  secure::OwnKey own{name, test_secret(seed), {}};
  own.public_key = secure::x25519_public(own.private_key);
  return own;
}

/// Own key `own`, pinned keys of the others.
inline secure::Config x25519_config(uint64_t own, std::initializer_list<uint64_t> peers,
                                    secure::Policy policy = secure::Policy::kRequired) {
  secure::Config c;
  c.policy = policy;
  c.own.push_back(own_key(own, "host-" + std::to_string(own)));
  for (const uint64_t p : peers) {
    c.peers.push_back({"host-" + std::to_string(p), own_key(p, "").public_key});
  }
  return c;
}

inline wire::PacketType type_of_packet(const std::vector<std::byte>& bytes) {
  return static_cast<wire::PacketType>(static_cast<uint8_t>(bytes[0]) & 0x3F);
}

/// Two nodes, 0 asks 1; node 1 has a region that 0 may write, without memory of its own.
class SecureNet : public MiniNet {
 public:
  SecureNet(const secure::Config& asks, const secure::Config& answers,
            Options options = MiniNet::Options{})
      : MiniNet(options) {
    add(false, nullptr, 1, asks);
    add(true, nullptr, 1, answers);
    region = *(*this)[1].regions().add_at(nullptr, 1 << 20, memory::access::kRemoteWrite, 0x10000);
    back = *(*this)[0].regions().add_at(nullptr, 1 << 20, memory::access::kRemoteWrite, 0x10000);
    node(0).memory.resize(1 << 20);
    node(1).memory.resize(1 << 20);
    data.resize(1 << 20);
    Rng rng(4711);
    rng.fill(data);
  }
  /// True when both sides say that they are connected.
  bool open(const std::string& identity = "", const std::string& peer_key = "") {
    handle = connect(0, 1, identity, peer_key);
    return handle != 0 && run_until(
                              [this] {
                                return count(0, engine::ConnectionEventKind::kConnected) > 0 &&
                                       count(1, engine::ConnectionEventKind::kAccepted) > 0;
                              },
                              seconds(6));
  }
  /// How the attempt of node 0 ended; kOk while it did not fail.
  Status failure(uint32_t* detail = nullptr) {
    for (const auto& e : node(0).events) {
      if (e.kind != engine::ConnectionEventKind::kFailed) continue;
      if (detail != nullptr) *detail = e.detail >> 24;
      return e.status;
    }
    return Status::kOk;
  }
  engine::ConnectionHandle answered() {
    for (const auto& e : node(1).events) {
      if (e.kind == engine::ConnectionEventKind::kAccepted) return e.connection;
    }
    return 0;
  }
  engine::ConnectionStatus status(uint32_t n) {
    engine::ConnectionStatus s;
    (*this)[n].connection_status(n == 0 ? handle : answered(), s);
    return s;
  }
  /// Writes data[at, at + length) to the same place of the other side; true when posted.
  bool post_write(uint32_t from, uint64_t id, uint64_t at, uint64_t length) {
    engine::WorkRequest r;
    r.id = id;
    r.connection = from == 0 ? handle : answered();
    r.operation = engine::Operation::kWrite;
    r.local = data.data() + at;
    r.length = length;
    r.remote_address = 0x10000 + at;
    r.remote_key = from == 0 ? region.key : back.key;
    Status status = Status::kOk;
    return (*this)[from].post(now, {&r, 1}, status) == 1;
  }
  /// Writes and waits; true when it completed well and the right bytes are there.
  bool write(uint32_t from, uint64_t at, uint64_t length, Duration limit = seconds(5)) {
    const size_t before = node(from).completions.size();
    if (!post_write(from, ++last_id, at, length)) return false;
    run_until([&] { return node(from).completions.size() > before; }, limit);
    if (node(from).completions.size() <= before) return false;
    const auto there = node(1 - from).memory.begin() + static_cast<std::ptrdiff_t>(at);
    return node(from).completions.back().status == Status::kOk &&
           std::equal(there, there + static_cast<std::ptrdiff_t>(length),
                      data.begin() + static_cast<std::ptrdiff_t>(at));
  }
  uint64_t dropped(uint32_t n, wire::DropReason reason) {
    return (*this)[n].drops()[static_cast<size_t>(reason)];
  }

  memory::RegionInfo region;
  memory::RegionInfo back;
  std::vector<std::byte> data;
  engine::ConnectionHandle handle = 0;
  uint64_t last_id = 0;
};

}  // namespace metaroce::pair
