#include "tests/scenarios/workload.h"

#include <fmt/format.h>

#include <algorithm>

namespace metaroce::scenarios {

namespace {

constexpr uint32_t kReceiveSlots = 64;
constexpr size_t kMaxFailures = 8;  // of one run; the first say enough

// Ids: work index, receive or send, message number.
constexpr uint64_t id_of(uint32_t work, bool receive, int64_t number) {
  return uint64_t{work} << 40 | uint64_t{receive} << 39 | static_cast<uint64_t>(number);
}

}  // namespace

Workload::Workload(const Scenario& scenario, uint64_t seed) : rng_(Rng(seed).fork("workload")) {
  uint16_t stream = 0;
  for (const Work& w : scenario.works) {
    State s;
    s.work = w;
    s.index = static_cast<uint32_t>(states_.size());
    s.from = w.from == "a" ? 0 : 1;
    s.first_stream = stream;
    s.consumes = w.operation != "write";
    s.largest = static_cast<uint64_t>(std::max(w.bytes, w.bytes_max));
    stream = static_cast<uint16_t>(stream + w.streams);
    s.stream_receives.assign(static_cast<size_t>(w.streams), 0);
    if (w.operation == "write" || w.operation == "write_imm") {
      s.slots = static_cast<uint64_t>(std::min(w.count, w.depth * 2));
      s.region_offset = region_bytes_;
      region_bytes_ += s.slots * s.largest;
    } else {
      slot_bytes_ = std::max(slot_bytes_, s.largest);
    }
    remaining_ += w.count * (s.consumes ? 2 : 1);
    states_.push_back(s);
  }
  receive_streams_ = stream;
}

void Workload::size_memory(pair::PairConfig& config) const {
  config.region_bytes = std::max(config.region_bytes, region_bytes_);
  config.receive_streams = receive_streams_;
  config.receive_slots = kReceiveSlots;
  config.receive_slot_bytes = slot_bytes_;
  for (const State& s : states_)
    config.longest_message = std::max(config.longest_message, s.largest);
}

uint64_t Workload::length_of(const State& s, int64_t message) const {
  const auto low = static_cast<uint64_t>(s.work.bytes);
  if (s.largest <= low) return low;
  return low + rng_.fork("length", id_of(s.index, false, message)).below(s.largest - low + 1);
}

void Workload::start(pair::Pair& pair) {
  pair.on_completion = [this, &pair](int side, const engine::Completion& c) {
    completed(pair, side, c);
  };
  for (State& s : states_) {
    if (s.consumes) {
      const Time at = pair.now() + nanoseconds(s.work.at_ns + s.work.receives_late_ns);
      auto ready = [this, &pair, &s] {
        for (int64_t stream = 0; stream < s.work.streams; ++stream)
          for (int64_t k = 0; k < s.work.receives; ++k) post_receive(pair, s, stream);
      };
      if (s.work.at_ns + s.work.receives_late_ns == 0)
        ready();
      else
        pair.at(at, ready);
    }
    if (s.work.at_ns == 0)
      post_sends(pair, s);
    else
      pair.at(pair.now() + nanoseconds(s.work.at_ns), [this, &pair, &s] { post_sends(pair, s); });
  }
}

void Workload::post_receive(pair::Pair& pair, State& s, int64_t stream) {
  // Message m travels on stream m mod streams: this stream gets its share and no more.
  const int64_t share = (s.work.count - stream + s.work.streams - 1) / s.work.streams;
  int64_t& number = s.stream_receives[static_cast<size_t>(stream)];
  if (number >= share) return;
  const auto id = id_of(s.index, true, number * s.work.streams + stream);
  const Status status = pair.receive(1 - s.from, static_cast<uint16_t>(s.first_stream + stream), id,
                                     static_cast<uint64_t>(number));
  if (status == Status::kOk)
    ++number;
  else if (failures_.size() < kMaxFailures)
    failures_.push_back(fmt::format("post_receives: {}", to_string(status)));
}

void Workload::post_sends(pair::Pair& pair, State& s) {
  while (s.posted < s.work.count && s.posted - s.completed < s.work.depth) {
    const int64_t m = s.posted++;
    const auto stream = static_cast<uint16_t>(s.first_stream + m % s.work.streams);
    const auto number = static_cast<uint64_t>(m / s.work.streams);
    const uint64_t length = length_of(s, m);
    const uint64_t id = id_of(s.index, false, m);
    const uint64_t offset = s.region_offset + static_cast<uint64_t>(m) % s.slots * s.largest;
    Status status = Status::kOk;
    if (s.work.operation == "write")
      status = pair.write(s.from, stream, id, offset, length);
    else if (s.work.operation == "write_imm")
      status = pair.write_imm(s.from, stream, id, offset, length, static_cast<uint32_t>(number));
    else
      status = pair.send(s.from, stream, id, number, length, s.work.operation == "send_imm");
    if (status != Status::kOk) {
      if (failures_.size() < kMaxFailures)
        failures_.push_back(fmt::format("post of {} bytes: {}", length, to_string(status)));
      --s.posted;
      return;
    }
  }
}

void Workload::completed(pair::Pair& pair, int side, const engine::Completion& c) {
  const auto index = static_cast<size_t>(c.id >> 40);
  if (index >= states_.size()) return;
  State& s = states_[index];
  const bool receive = (c.id >> 39 & 1) != 0;
  const auto message = static_cast<int64_t>(c.id & ((1ull << 39) - 1));
  --remaining_;
  last_ = pair.now();
  if (c.status != Status::kOk) {
    if (failures_.size() < kMaxFailures)
      failures_.push_back(fmt::format("{} {} of work {} ended as {}",
                                      receive ? "receive" : "request", message, index,
                                      to_string(c.status)));
    return;
  }
  if (side != (receive ? 1 - s.from : s.from))
    failures_.push_back(fmt::format("completion {} came to the wrong side", message));
  check_message(pair, s, c, message);
  if (receive) {
    ++s.received;
    post_receive(pair, s, message % s.work.streams);
  } else {
    ++s.completed;
    post_sends(pair, s);
  }
}

void Workload::check_message(pair::Pair& pair, State& s, const engine::Completion& c,
                             int64_t message) {
  if (failures_.size() >= kMaxFailures) return;
  const uint64_t length = length_of(s, message);
  if (c.bytes != length)
    failures_.push_back(
        fmt::format("message {}: completion says {} of {} bytes", message, c.bytes, length));
  const bool receive = c.operation == engine::Operation::kReceive;
  const auto stream = static_cast<uint16_t>(s.first_stream + message % s.work.streams);
  const auto number = static_cast<uint64_t>(message / s.work.streams);
  if (receive && s.work.operation != "send" &&
      (!c.has_immediate || c.immediate != static_cast<uint32_t>(number)))
    failures_.push_back(fmt::format("message {}: immediate missing or out of order", message));
  // The memory is looked at when the receiver may use it first.
  uint64_t wrong = 0;
  if (s.work.operation == "write" || s.work.operation == "write_imm") {
    if (receive || !s.consumes)
      wrong = pair.wrong_in_region(
          1 - s.from, s.region_offset + static_cast<uint64_t>(message) % s.slots * s.largest,
          length);
  } else if (receive) {
    wrong = pair.wrong_in_receive(1 - s.from, stream, number, length);
  }
  if (wrong > 0)
    failures_.push_back(fmt::format("message {}: {} wrong bytes at completion", message, wrong));
}

uint64_t Workload::bytes() const {
  uint64_t total = 0;
  for (const State& s : states_)
    for (int64_t m = 0; m < s.work.count; ++m) total += length_of(s, m);
  return total;
}

uint64_t Workload::useful_packets(uint32_t payload) const {
  uint64_t total = 0;
  for (const State& s : states_)
    for (int64_t m = 0; m < s.work.count; ++m)
      total += std::max<uint64_t>(1, (length_of(s, m) + payload - 1) / payload);
  return total;
}

void Workload::verify(pair::Pair& pair, std::vector<std::string>& failures) const {
  for (int side = 0; side < 2; ++side) {
    uint64_t expected = 0;
    for (const State& s : states_)
      if (s.from != side)
        for (int64_t m = 0; m < s.work.count; ++m) expected += length_of(s, m);
    const pair::SideCounts& counts = pair.counts(side);
    if (counts.placed_bytes != expected)
      failures.push_back(fmt::format("side {}: {} bytes placed, {} expected: each exactly once",
                                     side, counts.placed_bytes, expected));
  }
}

}  // namespace metaroce::scenarios
