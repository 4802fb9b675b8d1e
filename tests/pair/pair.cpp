#include "tests/pair/pair.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/assert.h"
#include "driver/common/trailer.h"
#include "wire/types.h"

namespace metaroce::pair {

using engine::Completion;
using engine::ConnectionEvent;
using engine::ConnectionEventKind;
using engine::Operation;

namespace {

constexpr size_t kBatch = 64;            // packets that arrive at one instant, handed over together
constexpr uint32_t kLookAtBooks = 1024;  // pumps between two looks
constexpr size_t kRuns = 16;             // runs asked for at once
constexpr uint32_t kStuckAfter = 100'000;  // deadlines of one instant that mean "never ends"

std::shared_ptr<const Pattern> pattern_for(uint64_t longest) {
  // Benches make thousands of pairs; the pattern depends on nothing but its length.
  static thread_local std::shared_ptr<const Pattern> cached;
  static thread_local uint64_t cached_length = 0;
  if (!cached || cached_length < longest) {
    cached = std::make_shared<const Pattern>(longest);
    cached_length = longest;
  }
  return cached;
}

}  // namespace

Settings pair_settings() {
  Settings s;
  s.max_connections = 2;
  s.max_streams = 256;
  s.max_regions = 16;
  s.max_sends = 1024;
  s.max_receives = 2048;
  s.max_open_messages = 1024;
  s.max_active_paths = 40;
  s.max_retries_queued = 2048;
  s.timer_tick = 100;
  s.max_run = 1;  // packet by packet, as silicon sprays; the socket tests send in runs
  s.ack_delay = 2'000;
  s.ack_every = 4;
  s.initial_rtt = 10'000;
  s.pmtu_wait = 200'000;
  s.hello_interval = 100'000;
  s.connect_timeout = 1'000'000'000;
  s.death_timeout = 500'000'000;
  s.rto_min = 100'000;
  // The queue may hold 4 BDP: below that the fabric's marks speak, not the RTT.
  s.rtt_noise = 2000;
  return s;
}

Pair::Pair(const PairConfig& config)
    : config_(config),
      network_(config.network,
               {.copy_payload = config.real_memory, .cpsn_window = config.settings.cpsn_window},
               Rng(config.seed).fork("network"), events_),
      pattern_(pattern_for(
          config.real_memory ? std::max(config.longest_message, config.receive_slot_bytes) : 0)),
      runs_(kRuns) {
  set_assert_context(config.seed, 0);
  Rng rng(config.seed);
  for (int side = 0; side < 2; ++side) make_side(side, rng);
}

void Pair::check_books() {
  if (!wrong_books_.empty()) return;  // the first tells the most
  for (int side = 0; side < 2; ++side) {
    if (sides_[side].engine == nullptr) continue;
    for (const std::string& wrong : telemetry::check_conservation(*sides_[side].engine)) {
      wrong_books_.push_back("side " + std::to_string(side) + " at " + std::to_string(now_.ns) +
                             " ns: " + wrong);
    }
  }
}

std::vector<std::string> Pair::take_wrong_books() {
  check_books();
  return std::exchange(wrong_books_, {});
}

Pair::~Pair() {
  check_books();
  for (const std::string& wrong : wrong_books_) std::fprintf(stderr, "%s\n", wrong.c_str());
  MR_ASSERT(wrong_books_.empty());
  for (Side& s : sides_) {
    if (s.recorder != nullptr) s.recorder->finish(s.engine->state_hash());
  }
}

void Pair::make_side(int side, Rng& rng) {
  Side& s = sides_[side];
  engine::EngineConfig ec;
  ec.settings = config_.settings;
  for (uint32_t p = 0; p < config_.network.planes; ++p) {
    ec.local.push_back(plane_address(p, side, wire::kBasePort));
    ec.plane_mtu.push_back(static_cast<uint16_t>(config_.network.mtu));
  }
  ec.accept = side == 1;
  ec.security = config_.security[static_cast<size_t>(side)];
  ec.events = config_.events[static_cast<size_t>(side)];
  const Rng own = rng.fork("engine", static_cast<uint64_t>(side));
  s.engine = std::make_unique<engine::Engine>(ec, own);
  if (!config_.record[side].empty()) {
    auto made = telemetry::Recorder::create(config_.record[side], ec, own);
    MR_ASSERT(made.has_value());
    s.recorder = std::move(*made);
  }
  s.region = std::make_unique<Arena>(config_.region_bytes, config_.real_memory);
  s.receives = std::make_unique<Arena>(
      config_.receive_slot_bytes * config_.receive_slots * config_.receive_streams,
      config_.real_memory);
  auto info = tapped(side).add_region(s.region->base(), s.region->length(),
                                      memory::access::kRemoteWrite, 0x10'0000'0000ull);
  MR_ASSERT(info.has_value());
  s.info = *info;
}

bool Pair::connect(Duration limit, bool both) {
  engine::ConnectRequest request;
  for (uint32_t p = 0; p < config_.network.planes; ++p)
    request.peer.push_back(plane_address(p, 1, wire::kBasePort));
  request.identity = config_.identity;
  request.peer_key = config_.peer_key;
  auto handle = tapped(0).connect(now_, request);
  if (!handle) return false;
  sides_[0].connection = *handle;
  pump(0);
  return run_until(
      [&] {
        return sides_[0].paths_open && sides_[1].connection != 0 && (!both || sides_[1].paths_open);
      },
      limit);
}

// ---- The loop ----------------------------------------------------------------------------------

bool Pair::run_until(const std::function<bool()>& done, Duration limit) {
  const Time end = now_ + limit;
  while (!done()) {
    if (stuck_ || events_.next_time() > end) {
      if (!stuck_) now_ = end;
      return false;
    }
    step();
  }
  return true;
}

void Pair::run_for(Duration duration) {
  run_until([] { return false; }, duration);
}

void Pair::at(Time time, std::function<void()> action) {
  actions_.push_back(std::move(action));
  events_.push(time < now_ ? now_ : time, EventKind::kUser,
               static_cast<uint32_t>(actions_.size() - 1));
}

void Pair::step() {
  const Event event = events_.pop();
  same_instant_ = event.time > now_.ns ? 0 : same_instant_ + 1;
  if (same_instant_ > kStuckAfter) stuck_ = true;
  MR_ASSERT(event.time >= now_.ns || event.kind == EventKind::kNetwork);
  if (event.time > now_.ns) now_ = Time{event.time};
  switch (event.kind) {
    case EventKind::kArrival:
      arrivals(event);
      break;
    case EventKind::kDeadline:
      deadline(static_cast<int>(event.argument));
      break;
    case EventKind::kNetwork:
      network_.update(now_);
      break;
    case EventKind::kUser: {
      const auto action = std::move(actions_[event.argument]);
      action();
      break;
    }
  }
}

void Pair::arrivals(const Event& first) {
  engine::RxPacket packets[kBatch];
  engine::Placement placements[kBatch];
  uint32_t indexes[kBatch];
  size_t n = 0;
  const int side = network_.packet(first.argument).to_side;
  uint32_t index = first.argument;
  for (;;) {
    ++packet_events_;
    if (network_.arrive(now_, index)) {
      const FlyingPacket& p = network_.packet(index);
      size_t body = p.length;
      const engine::Opening opened =
          sides_[side].engine->open(now_, {network_.bytes(index), p.length}, p.from, p.plane, body);
      // What is sealed and not opened would fail its CRC.
      const bool good =
          opened == engine::Opening::kPlain ? !p.sealed : opened == engine::Opening::kOpened;
      if (good) {
        indexes[n] = index;
        packets[n] = {.bytes = {network_.bytes(index), body},
                      .ecn = p.ecn,
                      .plane = p.plane,
                      .from = p.from,
                      .sealed = opened == engine::Opening::kOpened};
        if (on_packet) on_packet(side, packets[n]);
        ++n;
      } else {
        network_.release(index);
      }
    }
    if (n == kBatch || events_.empty()) break;
    const Event& next = events_.top();
    if (next.time != now_.ns || next.kind != EventKind::kArrival) break;
    if (network_.packet(next.argument).to_side != side) break;
    index = events_.pop().argument;
  }
  if (n == 0) return;
  // As a driver's: what an earlier call left there must not matter.
  static const message::Segment stale[] = {{nullptr, 7}};
  for (size_t i = 0; i < n; ++i) placements[i] = {.length = 3, .rest = stale, .first = 1};
  const size_t placed = tapped(side).on_packets(now_, {packets, n}, {placements, n});
  MR_ASSERT(placed <= n);
  for (size_t i = 0; i < placed; ++i) {
    MR_ASSERT(placements[i].packet < n);
    place(side, packets[placements[i].packet], placements[i]);
  }
  for (size_t i = 0; i < n; ++i) network_.release(indexes[i]);
  pump(side);
}

void Pair::deadline(int side) {
  Side& s = sides_[side];
  if (now_ != s.armed) return;  // a stale event: another one stands for the deadline
  s.armed = kNever;
  if (s.engine->next_deadline() <= now_) tapped(side).on_deadline(now_);
  pump(side);
}

void Pair::place(int side, const engine::RxPacket& packet, const engine::Placement& placement) {
  Side& s = sides_[side];
  const uint64_t end = uint64_t{placement.payload_begin} + placement.length;
  if (end > packet.bytes.size()) {
    ++s.counts.stray_placements;
    return;
  }
  s.counts.placed_bytes += placement.length;
  if (on_place) return on_place(side, packet, placement);
  if (!config_.real_memory) {
    if (placement.region != engine::kReceiveBuffer &&
        (placement.region != s.info.index ||
         placement.offset + placement.length > s.region->length()))
      ++s.counts.stray_placements;
    return;
  }
  if (placement.length == 0) return;
  if (!placement.rest.empty()) {  // of one piece are all receives and Reads of this pair
    ++s.counts.stray_placements;
    return;
  }
  Arena& arena = placement.region == engine::kReceiveBuffer ? *s.receives : *s.region;
  if (!arena.contains(placement.address, placement.length) ||
      (placement.region != engine::kReceiveBuffer &&
       placement.address != arena.base() + placement.offset)) {
    ++s.counts.stray_placements;
    return;
  }
  const std::byte* data = packet.bytes.data() + placement.payload_begin;
  const auto offset = static_cast<uint64_t>(placement.address - arena.base());
  s.counts.wrong_bytes += pattern_->wrong(offset, data, placement.length);
  std::copy_n(data, placement.length, placement.address);
}

void Pair::pump(int side) {
  Side& s = sides_[side];
  drain_completions(side);
  for (;;) {
    const size_t n = tapped(side).poll_transmit(now_, runs_);
    for (size_t i = 0; i < n; ++i) {
      packet_events_ += runs_[i].count;
      if (on_run) on_run(side, runs_[i]);
      if (runs_[i].session != nullptr) {
        sealed_.resize(std::max(sealed_.size(), driver::payload_bytes(runs_[i])));
        driver::seal_run(runs_[i], sealed_);
      }
      network_.send(now_, side, runs_[i]);
    }
    if (n < runs_.size()) break;
  }
  drain_completions(side);
  if (on_pump) on_pump(side);
  drain_events(side);
  if (++pumps_ % kLookAtBooks == 0) check_books();
  const Time next = std::max(s.engine->next_deadline(), now_);
  if (next < s.armed) {
    s.armed = next;
    events_.push(next, EventKind::kDeadline, static_cast<uint32_t>(side));
  }
}

void Pair::drain_completions(int side) {
  Side& s = sides_[side];
  Completion out[kBatch];
  for (;;) {
    const size_t n = tapped(side).poll_completions(out);
    for (size_t i = 0; i < n; ++i) {
      const Completion& c = out[i];
      if (c.status != Status::kOk) ++s.counts.failed;
      if (c.operation == Operation::kReceive) {
        ++s.counts.received;
        s.counts.last_received = now_;
      } else {
        ++s.counts.completions;
        s.counts.last_completion = now_;
      }
      network_.mix(c.id << 8 | static_cast<uint64_t>(c.status));
      network_.mix(c.bytes << 32 | c.immediate);
      if (on_completion) on_completion(side, c);
    }
    if (n < kBatch) return;
  }
}

void Pair::drain_events(int side) {
  Side& s = sides_[side];
  ConnectionEvent out[8];
  for (;;) {
    const size_t n = tapped(side).poll_events(out);
    for (size_t i = 0; i < n; ++i) {
      network_.mix(static_cast<uint64_t>(out[i].kind) << 8 | static_cast<uint64_t>(out[i].status));
      switch (out[i].kind) {
        case ConnectionEventKind::kAccepted:
          s.connection = out[i].connection;
          break;
        case ConnectionEventKind::kConnected:
        case ConnectionEventKind::kQueueLow:
          break;
        case ConnectionEventKind::kPathsOpen:
          s.paths_open = true;
          break;
        case ConnectionEventKind::kFailed:
        case ConnectionEventKind::kClosed:
        case ConnectionEventKind::kLost:
          s.lost = true;
          s.loss_status = out[i].status;
          break;
      }
    }
    if (n < std::size(out)) return;
  }
}

// ---- Work --------------------------------------------------------------------------------------

Status Pair::post(int side, const engine::WorkRequest& request) {
  Status status = Status::kOk;
  const size_t taken = tapped(side).post(now_, {&request, 1}, status);
  if (taken == 1) status = Status::kOk;
  pump(side);
  return status;
}

Status Pair::write(int side, uint16_t stream, uint64_t id, uint64_t offset, uint64_t length) {
  engine::WorkRequest r;
  r.id = id;
  r.connection = sides_[side].connection;
  r.stream = stream;
  r.operation = Operation::kWrite;
  r.local = config_.real_memory ? pattern_->source(offset) : nullptr;
  r.length = length;
  r.remote_address = sides_[1 - side].info.remote_base + offset;
  r.remote_key = sides_[1 - side].info.key;
  return post(side, r);
}

Status Pair::write_imm(int side, uint16_t stream, uint64_t id, uint64_t offset, uint64_t length,
                       uint32_t immediate) {
  engine::WorkRequest r;
  r.id = id;
  r.connection = sides_[side].connection;
  r.stream = stream;
  r.operation = Operation::kWriteImm;
  r.local = config_.real_memory ? pattern_->source(offset) : nullptr;
  r.length = length;
  r.remote_address = sides_[1 - side].info.remote_base + offset;
  r.remote_key = sides_[1 - side].info.key;
  r.immediate = immediate;
  return post(side, r);
}

uint64_t Pair::slot_offset(uint16_t stream, uint64_t number) const {
  const uint64_t slot = number % config_.receive_slots;
  return (stream % config_.receive_streams * config_.receive_slots + slot) *
         config_.receive_slot_bytes;
}

Status Pair::send(int side, uint16_t stream, uint64_t id, uint64_t number, uint64_t length,
                  bool with_immediate) {
  engine::WorkRequest r;
  r.id = id;
  r.connection = sides_[side].connection;
  r.stream = stream;
  r.operation = with_immediate ? Operation::kSendImm : Operation::kSend;
  r.local = config_.real_memory ? pattern_->source(slot_offset(stream, number)) : nullptr;
  r.length = length;
  r.immediate = static_cast<uint32_t>(number);
  return post(side, r);
}

Status Pair::receive(int side, uint16_t stream, uint64_t id, uint64_t number) {
  engine::ReceiveRequest r;
  r.id = id;
  r.connection = sides_[side].connection;
  r.stream = stream;
  r.buffer =
      config_.real_memory ? sides_[side].receives->base() + slot_offset(stream, number) : nullptr;
  r.length = config_.receive_slot_bytes;
  Status status = Status::kOk;
  const size_t taken = tapped(side).post_receives(now_, {&r, 1}, status);
  pump(side);
  return taken == 1 ? Status::kOk : status;
}

// ---- Looking in --------------------------------------------------------------------------------

uint64_t Pair::wrong_in_region(int side, uint64_t offset, uint64_t length) {
  Arena& arena = *sides_[side].region;
  if (arena.base() == nullptr) return 0;
  return pattern_->wrong(offset, arena.base() + offset, length);
}

uint64_t Pair::wrong_in_receive(int side, uint16_t stream, uint64_t number, uint64_t length) {
  Arena& arena = *sides_[side].receives;
  if (arena.base() == nullptr) return 0;
  const uint64_t offset = slot_offset(stream, number);
  return pattern_->wrong(offset, arena.base() + offset, length);
}

bool Pair::guards_intact() const {
  for (const Side& s : sides_)
    if (!s.region->guards_intact() || !s.receives->guards_intact()) return false;
  return true;
}

bool Pair::change_port(uint8_t path, uint16_t port) {
  const bool done = tapped(0).change_port(now_, sides_[0].connection, path, port);
  pump(0);
  return done;
}

std::vector<engine::PathStatus> Pair::paths(int side) const {
  std::vector<engine::PathStatus> out(kMaxPaths);
  out.resize(sides_[side].engine->path_status(sides_[side].connection, out));
  return out;
}

}  // namespace metaroce::pair
