// Two engines joined by a network that the input drives: a program of operations of 8 bytes each.
// Packets are dropped, repeated, held back, changed and made up; whatever comes, an engine stays
// within its memory, ends each request at most once and in order, and never spins. While nothing
// was changed or made up, every byte must also be right and placed once.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "fuzz/made_up.h"

// What libFuzzer and the address sanitizer bring along; absent in builds that only replay.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);
extern "C" __attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes();

namespace {

using namespace metaroce;
using engine::Completion;
using engine::Operation;
using wire::store32;
using namespace fuzzing;

constexpr size_t kOpBytes = 8;
constexpr size_t kMaxOps = 400;
constexpr uint32_t kSlots = 8;
constexpr uint32_t kSlotBytes = 2048;
constexpr size_t kMostFlying = 600;
constexpr size_t kHistory = 64;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "engine_fuzz: %s\n", what);
  std::abort();
}

const std::byte* pattern() {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> b(kRegionBytes + kStreams * kSlots * kSlotBytes);
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<std::byte>((i * 2654435761u) >> 13);
    return b;
  }();
  return bytes.data();
}

struct Flying {
  std::vector<std::byte> bytes;
  SocketAddress from;
  uint8_t plane = 0;
  Ecn ecn = Ecn::kEct0;
};

/// One request that was posted, by its id.
struct Posted {
  Operation operation = Operation::kWrite;
  uint16_t stream = 0;
  uint64_t offset = 0;  ///< in the region or, of sends and receives, among the slots
  uint64_t length = 0;
  bool done = false;
};

struct Side {
  std::unique_ptr<engine::Engine> engine;
  std::vector<std::byte> region, closed_region, slots;
  std::vector<bool> placed;
  memory::RegionInfo info, closed_info;
  engine::ConnectionHandle connection = 0;
  std::vector<Posted> posted;
  uint64_t next_free = 0;         ///< of the peer's region
  uint32_t sends[kStreams] = {};  ///< receives of the peer that were asked for
  uint32_t receives[kStreams] = {};
  bool slot_open[kStreams * kSlots] = {};
  bool slot_immediate[kStreams * kSlots] = {};  ///< takes a Write with immediate from the peer
  uint64_t last_done[2][kStreams] = {};         ///< id + 1, sends and receives
  std::vector<Flying> in;                       ///< on the way to this side
  std::vector<Flying> history;
  Seen seen;
};

class World {
 public:
  explicit World(const uint8_t* config) : planes_(1 + config[0] % 3) {
    Rng rng(config[4] | 1u);
    for (int s = 0; s < 2; ++s) make_side(s, config, rng);
    if ((config[3] & 1) == 0) connect(0);
  }

  void execute(const Op& op) {
    const int s = op.a & 1;
    switch (op.kind % kKindsOfOp) {
      case kRun:
        return run(op.b);
      case kDeliver:
        return deliver(s, op.b, 1 + op.c % 16u, op.d);
      case kTime:
        return advance(op);
      case kDisturb:
        return disturb(sides_[s].in, op);
      case kMutate:
        if (!sides_[s].in.empty()) mutate(sides_[s].in[op.b % sides_[s].in.size()], op);
        return;
      case kReplay:
        return replay(s, op);
      case kMakeUp:
        return make_up(s, op);
      case kWrite:
        return post_write(s, op);
      case kSend:
        return post_send(s, op);
      case kReceive:
        return post_receive(s, op);
      case kClose:
        sides_[s].engine->close(now_, sides_[s].connection, op.b);
        break;
      case kPlane:
        sides_[s].engine->on_plane_state(now_, op.b % 17, (op.c & 1) != 0);
        break;
      case kHint:
        sides_[s].engine->on_network_hint(now_, sides_[s].connection, op.b,
                                          static_cast<engine::NetworkHint>(op.c % 4), op.d * 16u);
        break;
      case kPort:
        sides_[s].engine->change_port(now_, sides_[s].connection, op.b % 8,
                                      static_cast<uint16_t>(40000 + op.c));
        break;
      case kConnect:
        exact_ = false;  // receives are numbered anew
        connect(s);
        break;
    }
    pump(s);
  }

 private:
  void make_side(int index, const uint8_t* config, Rng& rng) {
    Side& s = sides_[index];
    engine::EngineConfig ec;
    Settings& v = ec.settings;
    v.max_connections = 3;
    v.max_streams = 8;
    v.max_regions = 4;
    v.max_sends = 24;
    v.max_receives = 24;
    v.max_open_messages = 16;
    v.max_retries_queued = 64;
    v.max_active_paths = 8 + config[1] / 64;
    v.paths_per_plane = 1 + config[1] % 3;
    v.cpsn_window = 1024;
    v.message_span = 2 + config[2] % 16;
    v.max_run = 1 + (config[2] >> 4);
    if (v.max_run > kMaxRun) v.max_run = kMaxRun;
    v.rest_after = (config[3] & 4) != 0 ? 50'000 : 0;
    v.timer_tick = 100;
    v.ack_delay = 2000;
    v.initial_rtt = 20'000;
    v.hello_interval = 100'000;
    v.pmtu_wait = 100'000;
    v.rto_min = 100'000;
    v.death_timeout = 50'000'000;
    for (uint32_t p = 0; p < planes_; ++p) {
      ec.local.push_back(address(index, p, wire::kBasePort));
      ec.plane_mtu.push_back((config[3] & 2) != 0 ? 4500 : 1500);
    }
    ec.accept = true;
    s.engine = std::make_unique<engine::Engine>(ec, rng.fork("side", index));
    s.region.resize(kRegionBytes);
    s.placed.resize(kRegionBytes);
    s.closed_region.resize(64);
    s.slots.resize(kStreams * kSlots * kSlotBytes);
    memory::Regions& regions = s.engine->regions();
    s.info =
        *regions.add_at(s.region.data(), kRegionBytes, memory::access::kRemoteWrite, kRemoteBase);
    s.closed_info = *regions.add(s.closed_region.data(), 64, memory::access::kRemoteRead);
  }

  void connect(int s) {
    engine::ConnectRequest request;
    for (uint32_t p = 0; p < planes_; ++p)
      request.peer.push_back(address(1 - s, p, wire::kBasePort));
    const auto handle = sides_[s].engine->connect(now_, request);
    if (handle) sides_[s].connection = *handle;
    pump(s);
  }

  // ---- The network -----------------------------------------------------------------------------

  void pump(int s) {
    for (int i = 0;; ++i) {
      require(i < 1000, "deadlines of one instant without end");
      transmit(s);
      collect(s);
      if (sides_[s].engine->next_deadline() > now_) return;
      sides_[s].engine->on_deadline(now_);
    }
  }

  void transmit(int s) {
    engine::TxRun runs[6];
    for (int calls = 0;; ++calls) {
      require(calls < 4000, "packets of one instant without end");
      const size_t n = sides_[s].engine->poll_transmit(now_, runs);
      require(n <= std::size(runs), "more runs than asked for");
      for (size_t i = 0; i < n; ++i) take_run(s, runs[i]);
      if (n < std::size(runs)) return;
    }
  }

  void take_run(int s, const engine::TxRun& run) {
    require(run.count >= 1 && run.count <= kMaxRun, "packets of a run");
    require(run.plane < planes_, "plane of a run");
    const std::byte* header = run.headers;
    for (uint32_t i = 0; i < run.count; ++i) {
      const size_t length = run.header_length[i];
      require(header + length + run.trailer <= run.headers + engine::kRunHeaderBytes,
              "headers of a run");
      Flying packet;
      packet.bytes.assign(header, header + length);
      header += length + run.trailer;
      packet.bytes.resize(length + run.payload_length[i]);
      if (run.payload[i] != nullptr) {
        const std::byte* end = pattern() + kRegionBytes + kStreams * kSlots * kSlotBytes;
        require(run.payload[i] >= pattern() && run.payload[i] + run.payload_length[i] <= end,
                "payload outside of what was posted");
        std::memcpy(packet.bytes.data() + length, run.payload[i], run.payload_length[i]);
      }
      require(wire::decode(packet.bytes).has_value(), "sends what it would not read");
      packet.from = run.from;
      packet.plane = run.plane;
      packet.ecn = run.ecn;
      learn(sides_[s].seen, packet.bytes);
      Side& to = sides_[1 - s];
      if (to.history.size() < kHistory) {
        to.history.push_back(packet);
      } else {
        to.history[history_at_++ % kHistory] = packet;
      }
      if (to.in.size() < kMostFlying) to.in.push_back(std::move(packet));
    }
  }

  void deliver(int s, uint32_t first, size_t count, uint8_t marks) {
    Side& to = sides_[s];
    if (to.in.empty()) return pump(s);
    first %= to.in.size();
    count = std::min(count, to.in.size() - first);
    const auto begin = to.in.begin() + first;
    std::vector<Flying> batch(std::make_move_iterator(begin),
                              std::make_move_iterator(begin + static_cast<ptrdiff_t>(count)));
    to.in.erase(begin, begin + static_cast<ptrdiff_t>(count));
    for (size_t i = 0; i < batch.size(); ++i) {
      if ((marks >> (i % 8) & 1) != 0) batch[i].ecn = Ecn::kCe;
    }
    receive(s, batch);
  }

  void receive(int s, const std::vector<Flying>& batch) {
    std::vector<engine::RxPacket> packets;
    for (const Flying& f : batch) packets.push_back({f.bytes, f.ecn, f.plane, f.from});
    std::vector<engine::Placement> placements(batch.size());
    const size_t n = sides_[s].engine->on_packets(now_, packets, placements);
    require(n <= batch.size(), "more placements than packets");
    for (size_t i = 0; i < n; ++i) {
      require(placements[i].packet < batch.size(), "placement of no packet");
      place(sides_[s], placements[i], batch[placements[i].packet].bytes);
    }
    pump(s);
  }

  void place(Side& s, const engine::Placement& p, const std::vector<std::byte>& packet) {
    require(p.length > 0 && p.payload_begin + uint64_t{p.length} <= packet.size(),
            "placement outside of its packet");
    if (p.region == engine::kReceiveBuffer) {
      require(p.address >= s.slots.data() && p.address < s.slots.data() + s.slots.size(),
              "placement outside of all receives");
      const auto at = static_cast<size_t>(p.address - s.slots.data());
      require(at % kSlotBytes + p.length <= kSlotBytes, "placement beyond its receive");
      require(s.slot_open[at / kSlotBytes], "placement in a receive that is not posted");
    } else {
      require(p.region == s.info.index, "placement in a region that peers may not write");
      require(p.offset <= kRegionBytes && p.length <= kRegionBytes - p.offset &&
                  p.address == s.region.data() + p.offset,
              "placement outside of its region");
      for (uint64_t i = p.offset; exact_ && i < p.offset + p.length; ++i) {
        require(!s.placed[i], "a byte placed twice");
        s.placed[i] = true;
      }
    }
    std::memcpy(p.address, packet.data() + p.payload_begin, p.length);
  }

  void run(uint32_t rounds) {
    for (uint32_t i = 0; i < rounds; ++i) {
      const bool quiet = sides_[0].in.empty() && sides_[1].in.empty();
      if (quiet) {
        const Time next =
            std::min(sides_[0].engine->next_deadline(), sides_[1].engine->next_deadline());
        if (next == kNever) return;
        now_ = std::max(next, now_);
      } else {
        now_ = now_ + microseconds(5);
      }
      for (int s = 0; s < 2; ++s) {
        const size_t waiting = sides_[s].in.size();
        for (size_t n = 0; n < waiting && !sides_[s].in.empty(); n += 16) deliver(s, 0, 16, 0);
        pump(s);
      }
    }
  }

  void advance(const Op& op) {
    const Time next =
        std::min(sides_[0].engine->next_deadline(), sides_[1].engine->next_deadline());
    if ((op.b & 1) != 0 && next != kNever) {
      now_ = std::max(now_, next);
    } else {
      now_ = now_ + nanoseconds((64ll + op.c) << (op.d % 26));
    }
    pump(0);
    pump(1);
  }

  void disturb(std::vector<Flying>& in, const Op& op) {
    if (in.empty()) return;
    const size_t i = op.b % in.size();
    switch (op.c % 4) {
      case 0:
        in.erase(in.begin() + static_cast<ptrdiff_t>(i));
        return;
      case 1:
        in.clear();
        return;
      case 2:
        if (in.size() < kMostFlying) in.push_back(Flying(in[i]));
        return;
      case 3:
        std::rotate(in.begin(), in.begin() + static_cast<ptrdiff_t>(i), in.end());
        return;
    }
  }

  void mutate(Flying& packet, const Op& op) {
    exact_ = false;
    if (packet.bytes.size() < 8) return;
    const size_t words = std::min<size_t>(packet.bytes.size() / 4, 40);
    std::byte* at = packet.bytes.data() + op.c % words * 4;
    const uint32_t old = wire::load32(at);
    switch (op.d % 6) {
      case 0:
        return store32(at, old + static_cast<uint32_t>(static_cast<int8_t>(op.e)));
      case 1:
        return store32(at, old ^ 1u << (op.e & 31));
      case 2:
        return store32(at, uint32_t{op.e} << 24 | op.f << 16 | op.g << 8 | op.f);
      case 3:
        return store32(at, old + (uint32_t{op.e} << 8));
      case 4:
        return packet.bytes.resize(packet.bytes.size() - op.e % packet.bytes.size());
      case 5:
        return packet.bytes.resize(packet.bytes.size() + op.e % 64);
    }
  }

  void replay(int s, const Op& op) {
    Side& to = sides_[s];
    if (to.history.empty()) return;
    Flying copy = to.history[op.b % to.history.size()];
    if ((op.g & 1) != 0) mutate(copy, op);
    receive(s, {copy});
  }

  // ---- Packets that nobody sent ----------------------------------------------------------------

  /// To side `s`, near what its peer would send now.
  void make_up(int s, const Op& op) {
    exact_ = false;
    const Side& side = sides_[s];
    const Target to{sides_[1 - s].seen, side.seen, side.info.key, side.closed_info.key,
                    side.connection,    1 - s,     planes_};
    Flying f;
    f.bytes.resize(wire::kMaxHandshake + 64);
    f.bytes.resize(write_packet(op, to, f.bytes.data()));
    if (op.b % 24 < 10) f.bytes.resize(f.bytes.size() + extra_payload(op));
    f.plane = static_cast<uint8_t>(op.g % planes_);
    f.from = address(1 - s, f.plane, static_cast<uint16_t>(33000 + op.g));
    f.ecn = (op.g & 0x80) != 0 ? Ecn::kCe : Ecn::kEct0;
    receive(s, {f});
  }

  // ---- Requests --------------------------------------------------------------------------------

  void post(int s, engine::WorkRequest& r, const Posted& record) {
    Side& side = sides_[s];
    r.id = side.posted.size();
    r.connection = side.connection;
    Status status;
    if (side.engine->post(now_, {&r, 1}, status) == 1) side.posted.push_back(record);
    pump(s);
  }

  void post_write(int s, const Op& op) {
    Side& side = sides_[s];
    engine::WorkRequest r;
    r.stream = op.b % kStreams;
    r.operation = (op.d & 1) != 0 ? Operation::kWriteImm : Operation::kWrite;
    r.length = kLengths[op.c % std::size(kLengths)] + op.e % 16;
    if (side.next_free + r.length > kRegionBytes) return;
    const uint64_t at = side.next_free;
    r.local = pattern() + at;
    r.remote_key = sides_[1 - s].info.key;
    r.remote_address = kRemoteBase + at;
    if (op.f == 255) r.remote_key += op.g;              // refused: key
    if (op.f == 254) r.remote_address += kRegionBytes;  // refused: bounds
    if (op.f == 253) r.remote_key = sides_[1 - s].closed_info.key;
    const bool takes = r.operation == Operation::kWriteImm;
    if (takes && side.sends[r.stream] >= kSlots) return;
    const size_t before = side.posted.size();
    if (takes) sides_[1 - s].slot_immediate[r.stream * kSlots + side.sends[r.stream]] = true;
    side.next_free += r.length;
    if (takes) ++side.sends[r.stream];
    post(s, r, {r.operation, r.stream, at, r.length, false});
    if (takes && side.posted.size() == before) exact_ = false;  // the numbering is off by one now
  }

  void post_send(int s, const Op& op) {
    Side& side = sides_[s];
    engine::WorkRequest r;
    r.stream = op.b % kStreams;
    if (side.sends[r.stream] >= kSlots) return;
    r.operation = (op.d & 1) != 0 ? Operation::kSendImm : Operation::kSend;
    r.solicited = (op.d & 2) != 0;
    r.length = kLengths[op.c % 9];
    const uint64_t at = (uint64_t{r.stream} * kSlots + side.sends[r.stream]) * kSlotBytes;
    r.local = pattern() + at;
    const size_t before = side.posted.size();
    ++side.sends[r.stream];
    post(s, r, {r.operation, r.stream, at, r.length, false});
    if (side.posted.size() == before) exact_ = false;
  }

  void post_receive(int s, const Op& op) {
    Side& side = sides_[s];
    engine::ReceiveRequest r;
    r.stream = op.b % kStreams;
    if (side.receives[r.stream] >= kSlots) return;
    const uint32_t slot = r.stream * kSlots + side.receives[r.stream];
    r.id = side.posted.size();
    r.connection = side.connection;
    r.buffer = side.slots.data() + slot * kSlotBytes;
    r.length = kSlotBytes;
    Status status;
    if (side.engine->post_receives(now_, {&r, 1}, status) == 1) {
      ++side.receives[r.stream];
      side.slot_open[slot] = true;
      side.posted.push_back({Operation::kReceive, r.stream, slot * kSlotBytes, kSlotBytes, false});
    }
    pump(s);
  }

  void collect(int s) {
    Side& side = sides_[s];
    Completion done[8];
    for (size_t n = side.engine->poll_completions(done); n > 0;
         n = side.engine->poll_completions(done)) {
      for (size_t i = 0; i < n; ++i) check_completion(s, done[i]);
    }
    engine::ConnectionEvent events[4];
    for (size_t n = side.engine->poll_events(events); n > 0; n = side.engine->poll_events(events)) {
      for (size_t i = 0; i < n; ++i) {
        if (events[i].kind != engine::ConnectionEventKind::kAccepted) continue;
        if (side.connection != 0) exact_ = false;
        side.connection = events[i].connection;
      }
    }
  }

  void check_completion(int s, const Completion& c) {
    Side& side = sides_[s];
    require(c.id < side.posted.size(), "a completion that nobody asked for");
    Posted& p = side.posted[c.id];
    require(!p.done, "a request completed twice");
    require(p.operation == c.operation && p.stream == c.stream, "a completion of something else");
    p.done = true;
    const bool receive = c.operation == Operation::kReceive;
    uint64_t& last = side.last_done[receive ? 1 : 0][c.stream];
    require(c.id + 1 > last || !exact_, "completions out of order");
    last = c.id + 1;
    if (receive) side.slot_open[p.offset / kSlotBytes] = false;
    if (!exact_ || c.status != Status::kOk) return;
    const std::byte* expected = pattern() + p.offset;
    if (receive) {
      if (side.slot_immediate[p.offset / kSlotBytes]) return;
      require(c.bytes <= kSlotBytes, "more bytes than the receive holds");
      require(std::memcmp(side.slots.data() + p.offset, expected, c.bytes) == 0,
              "wrong bytes in a receive");
    } else if (c.operation == Operation::kWrite || c.operation == Operation::kWriteImm) {
      require(std::memcmp(sides_[1 - s].region.data() + p.offset, expected, p.length) == 0,
              "a write completed before its bytes were there");
    }
  }

  uint32_t planes_;
  Time now_{1'000'000};
  bool exact_ = true;
  size_t history_at_ = 0;
  Side sides_[2];
};

size_t allocated() {
  return __sanitizer_get_current_allocated_bytes != nullptr
             ? __sanitizer_get_current_allocated_bytes()
             : 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kOpBytes) return 0;
  const size_t before = allocated();
  World world(data);
  for (size_t at = kOpBytes, n = 0; at + kOpBytes <= size && n < kMaxOps; at += kOpBytes, ++n) {
    Op op;
    std::memcpy(&op, data + at, kOpBytes);
    world.execute(op);
  }
  require(allocated() < before + (32u << 20), "memory grows with the input");
  return 0;
}

/// Works on whole operations, so that most inputs stay programs that get far.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most,
                                          unsigned int seed) {
  Rng rng(seed);
  if (size < kOpBytes || (LLVMFuzzerMutate != nullptr && rng.below(16) == 0)) {
    return LLVMFuzzerMutate != nullptr ? LLVMFuzzerMutate(data, size, most) : size;
  }
  size_t ops = size / kOpBytes;  // the first is the configuration
  for (uint64_t changes = 1 + rng.below(4); changes > 0; --changes) {
    uint8_t* const at = data + rng.below(ops) * kOpBytes;
    switch (rng.below(5)) {
      case 0:
        if (at == data || ops < 3) break;
        std::memmove(at, at + kOpBytes, static_cast<size_t>(data + ops * kOpBytes - at) - kOpBytes);
        --ops;
        break;
      case 1:
      case 2: {
        if ((ops + 1) * kOpBytes > most) break;
        uint8_t op[kOpBytes];
        for (uint8_t& byte : op) byte = static_cast<uint8_t>(rng.next());
        op[0] = static_cast<uint8_t>(rng.below(kKindsOfOp));
        if (rng.below(3) == 0) op[0] = kMakeUp;
        if (rng.below(4) == 0) std::memcpy(op, data + rng.below(ops) * kOpBytes, kOpBytes);
        uint8_t* const next = at + kOpBytes;
        std::memmove(next + kOpBytes, next, static_cast<size_t>(data + ops * kOpBytes - next));
        std::memcpy(next, op, kOpBytes);
        ++ops;
        break;
      }
      case 3:
        at[rng.below(kOpBytes)] = static_cast<uint8_t>(rng.next());
        break;
      case 4:
        at[rng.below(kOpBytes)] ^= static_cast<uint8_t>(1u << rng.below(8));
        break;
    }
  }
  return ops * kOpBytes;
}
