#include "tests/oracle/model.h"

#include <fmt/format.h>

#include <algorithm>

namespace metaroce::oracle {

using engine::Completion;
using engine::Operation;

void Model::differ(const std::string& what) {
  if (differences_.size() < 20) differences_.push_back(fmt::format("{} ns: {}", now_ns, what));
}

std::string Model::name(uint32_t s, const Request& r) const {
  return fmt::format("{} of side {} on stream {} (step {}, {} bytes)", to_string(r.step.kind),
                     s == 0 ? 'a' : 'b', r.step.stream, r.step.id, r.length);
}

const std::byte* Model::bytes_of(const Request& r) {
  engine::Segment pieces[16];
  const uint64_t data = mixed(program_.seed, r.step.id);
  const uint32_t n = source_of(data, r.length, r.step.segments, pieces);
  if (n == 1) return pieces[0].address;
  if (scratch_.size() < r.length) scratch_.resize(r.length);
  std::byte* out = scratch_.data();
  for (uint32_t i = 0; i < n; ++i) out = std::copy_n(pieces[i].address, pieces[i].length, out);
  return scratch_.data();
}

// ---- What is posted ----------------------------------------------------------------------------

void Model::posted(uint32_t s, const Request& request) {
  Side& side = sides_[s];
  const auto index = static_cast<uint32_t>(side.requests.size());
  side.requests.push_back(request);
  Request& r = side.requests.back();
  Direction& d = directions_[s][r.step.stream];
  r.place = static_cast<uint32_t>(d.posts.size());
  d.posts.push_back(index);
  if (r.consumes) {
    r.number = static_cast<uint32_t>(d.consuming.size());
    d.consuming.push_back(index);
  }
  ++side.open_requests;
  side.open_lists += r.list;
  side.open_copies += r.copied;
  if (d.reset_here || d.draining) {  // MR-MSG-006: it was taken to be flushed
    r.must = Status::kFlushed;
    r.cause = d.reset_here ? Cause::kOwnReset : Cause::kDrain;
  }
  if (r.is_write() && r.range != kNothing) {
    Range& range = sides_[1 - s].ranges[r.range];
    range.previous = range.writer;
    range.writer = index;
    range.settled = false;
    d.last_range = r.range;
  }
  if (r.step.kind == StepKind::kRead && r.range != kNothing) {
    ++sides_[1 - s].ranges[r.range].readers;
  }
  if (r.is_atomic() && r.own_counter && r.must == Status::kOk) {
    d.value = r.new_value;
    if (r.new_value != r.old_value) d.chain.push_back(index);
  }
  if (r.is_atomic() && !r.own_counter && r.must == Status::kOk) {
    sides_[1 - s].shared[r.range].adds.push_back(index);
  }
  if (r.step.kind == StepKind::kSendInv && r.mortal >= 0) {
    Mortal& mortal = sides_[1 - s].mortals[static_cast<size_t>(r.mortal)];
    ++mortal.ended_by;
    mortal.enders.push_back(index);
  }
  if (tracing) {
    trace += fmt::format("{:9} {} posts {} n={} must={}\n", now_ns, s == 0 ? 'a' : 'b', name(s, r),
                         static_cast<int32_t>(r.number), metaroce::to_string(r.must));
  }
}

void Model::receive_posted(uint32_t s, const Receive& receive) {
  Side& side = sides_[s];
  const auto index = static_cast<uint32_t>(side.receives.size());
  side.receives.push_back(receive);
  Receive& r = side.receives.back();
  ++side.open_receives;
  side.receive_lists += r.list;
  side.open_shared += r.shared;
  if (tracing) {
    trace +=
        fmt::format("{:9} {} posts receive {} of {} bytes, stream {}\n", now_ns, s == 0 ? 'a' : 'b',
                    index, r.length, r.shared ? "any" : std::to_string(r.stream));
  }
  if (r.shared) {
    side.shortest_shared = std::min(side.shortest_shared, r.length);
    return;
  }
  Direction& d = directions_[1 - s][r.stream];
  r.number = static_cast<uint32_t>(d.receives.size());
  d.receives.push_back(index);
}

bool Model::waits(uint32_t s, uint32_t stream) const {
  const Direction& d = directions_[s][stream];
  for (size_t i = d.head; i < d.posts.size(); ++i) {
    if (!sides_[s].requests[d.posts[i]].step.unsignalled) return true;
  }
  return false;
}

bool Model::all_done() const {
  return sides_[0].open_requests == 0 && sides_[1].open_requests == 0;
}

bool Model::all_quiet() const {
  for (uint32_t s = 0; s < 2; ++s) {
    for (uint32_t i = 0; i < directions_[s].size(); ++i) {
      const Direction& d = directions_[s][i];
      if (waits(s, i) || (d.failed && d.head < d.posts.size())) return false;
    }
  }
  return true;
}

// ---- What ended --------------------------------------------------------------------------------

void Model::completed(uint32_t s, const Completion& c) {
  if (tracing) {
    trace += fmt::format(
        "{:9} {} completion {} of stream {}: {} bytes {}\n", now_ns, s == 0 ? 'a' : 'b',
        c.id & kReceiveBit
            ? fmt::format("receive {}", c.id & ~kReceiveBit)
            : fmt::format("step {}",
                          c.id < sides_[s].requests.size() ? sides_[s].requests[c.id].step.id : 0),
        c.stream, metaroce::to_string(c.status), c.bytes);
  }
  if ((c.id & kReceiveBit) != 0) return receive_done(s, c);
  request_done(s, c);
}

void Model::take_off(uint32_t s, Request& r) {
  Side& side = sides_[s];
  r.done = true;
  --side.open_requests;
  side.open_lists -= r.list;
  side.open_copies -= r.copied;
  if (r.step.kind == StepKind::kRead && r.range != kNothing) {
    --sides_[1 - s].ranges[r.range].readers;
  }
}

void Model::request_done(uint32_t s, const Completion& c) {
  Side& side = sides_[s];
  if (c.id >= side.requests.size())
    return differ(fmt::format("completion of an unknown id {}", c.id));
  const auto index = static_cast<uint32_t>(c.id);
  Request& r = side.requests[index];
  if (r.done) return differ("second completion of " + name(s, r));
  Direction& d = directions_[s][r.step.stream];
  if (c.stream != r.step.stream + 1) differ("completion with the wrong stream: " + name(s, r));
  // Posting order: whatever stands before it is complete without a word, or should have come.
  while (d.head < d.posts.size() && d.posts[d.head] != index) {
    const uint32_t earlier = d.posts[d.head];
    Request& e = side.requests[earlier];
    if (!e.step.unsignalled || d.failed) {
      return differ(fmt::format("{} ended before {}", name(s, r), name(s, e)));
    }
    request_ok(s, earlier, 0, false);
  }
  if (d.head == d.posts.size()) return differ("completion of an earlier life: " + name(s, r));
  if (c.status == Status::kOk) {
    if (r.step.unsignalled) differ("unsignalled, and told: " + name(s, r));
    if (c.bytes != r.length) differ(fmt::format("{} bytes told of {}", c.bytes, name(s, r)));
    return request_ok(s, index, c.old_value, true);
  }
  ++d.head;
  request_failed(s, r, c.status);
}

/// `told`: it had a completion.
void Model::request_ok(uint32_t s, uint32_t index, uint64_t old_value, bool told) {
  Request& r = sides_[s].requests[index];
  Direction& d = directions_[s][r.step.stream];
  ++d.head;
  take_off(s, r);
  if (d.failed) differ("success behind a failure: " + name(s, r));
  if (r.must != Status::kOk) {
    differ(fmt::format("{} succeeded{} and must end as {}", name(s, r), told ? "" : " silently",
                       metaroce::to_string(r.must)));
  }
  Cause cause = Cause::kNone;
  const bool harmless = r.step.kind == StepKind::kSendInv && r.mortal >= 0 &&
                        sides_[1 - s].mortals[static_cast<size_t>(r.mortal)].ended_by < 2;
  if (r.mortal >= 0 && !harmless) {
    cause = r.step.fault == Fault::kMortal ? Cause::kMortal : Cause::kWindow;
  } else if (d.reset_there) {
    cause = Cause::kPeerReset;
  } else if (d.draining) {
    cause = Cause::kDrain;
  }
  if (told) table_.add(static_cast<int>(r.step.kind), cause, Status::kOk);
  if (r.is_write()) {
    check_write(s, r, "at its completion");
    if (r.range != kNothing && sides_[1 - s].ranges[r.range].writer == index) {
      sides_[1 - s].ranges[r.range].settled = true;
    }
  }
  if (r.step.kind == StepKind::kRead || r.is_atomic()) check_landing(s, r, told ? old_value : 0);
  if (r.is_atomic() && r.own_counter) {
    if (told && old_value != r.old_value) {
      differ(fmt::format("{} brought {} instead of {}", name(s, r), old_value, r.old_value));
    }
    look_at_counters(1 - s);
    const auto at = std::find(d.chain.begin(), d.chain.end(), index);
    if (at != d.chain.end() && d.executed <= static_cast<size_t>(at - d.chain.begin())) {
      differ("answered and not executed: " + name(s, r));
    }
  } else if (r.is_atomic() && told) {
    r.old_value = old_value;
    r.new_value = old_value + r.operand;
  }
  if (r.step.kind == StepKind::kSendInv && r.mortal >= 0) {
    sides_[1 - s].mortals[static_cast<size_t>(r.mortal)].dead = true;
  }
}

void Model::request_failed(uint32_t s, Request& r, Status status) {
  Direction& d = directions_[s][r.step.stream];
  take_off(s, r);
  if (d.failed) {
    if (status != Status::kFlushed) {
      differ(
          fmt::format("{} ended as {} behind a failure", name(s, r), metaroce::to_string(status)));
    }
    table_.add(static_cast<int>(r.step.kind), d.cause, status);
    return;
  }
  const Verdict v = first_failure(s, r, d, status);
  if (!v.allowed) {
    differ(fmt::format("{} ended as {}, it can{}", name(s, r), metaroce::to_string(status),
                       r.must == Status::kOk
                           ? "not fail so"
                           : fmt::format(" only end as {}", metaroce::to_string(r.must))));
  }
  d.failed = true;
  d.cause = v.cause;
  table_.add(static_cast<int>(r.step.kind), v.cause, status);
}

/// How the end of the connection shows at side `s`.
Model::Verdict Model::ended(uint32_t s, Status status) const {
  const Side& own = sides_[s];
  const Side& peer = sides_[1 - s];
  if (own.closed && status == Status::kClosed) return {true, Cause::kOwnClose};
  if (peer.closed && !peer.aborted && status == Status::kClosed) return {true, Cause::kPeerClose};
  if (peer.closed && peer.aborted && status == Status::kPeerFailed)
    return {true, Cause::kPeerAbort};
  const bool silence = status == Status::kUnresponsive || status == Status::kUnreachable;
  if (long_dark && silence) return {true, Cause::kDeath};
  // The peer closed and its CLOSE never came through: it does not know us any more.
  if (peer.closed && (silence || status == Status::kPeerGone)) return {true, Cause::kDeath};
  return {};
}

Model::Verdict Model::first_failure(uint32_t s, const Request& r, const Direction& d,
                                    Status status) {
  const Side& peer = sides_[1 - s];
  if (r.must == status) return {true, r.cause};
  const Verdict end = ended(s, status);
  if (end.allowed) return end;
  if (d.reset_here && status == Status::kFlushed) return {true, Cause::kOwnReset};
  if (d.reset_there && status == Status::kPeerFailed) return {true, Cause::kPeerReset};
  if (r.mortal >= 0 && status == Status::kAccess) {
    const Mortal& m = peer.mortals[static_cast<size_t>(r.mortal)];
    const bool ends_key = r.step.kind == StepKind::kSendInv;
    const bool early = r.is_write() && !may_end_before(s, r, m);
    if (!early && (m.dead || m.ended_by > (ends_key ? 1u : 0u))) {
      return {true, r.step.fault == Fault::kMortal ? Cause::kMortal : Cause::kWindow};
    }
  }
  if (!r.consumes) return {};
  const StreamPlan& plan = program_.streams[r.step.stream];
  const bool shared = plan.shared[1 - s] != 0;
  if (status == Status::kLength && r.is_send()) {
    const bool is_short = shared ? peer.shortest_shared < r.length
                                 : r.number < d.receives.size() &&
                                       peer.receives[d.receives[r.number]].length < r.length;
    if (is_short) return {true, Cause::kTooShort};
  }
  if (status == Status::kNotReady && plan.rnr[s] < 7) return {true, Cause::kNoReceive};
  return {};
}

/// A SEND_INV of the same stream ends its key after all that was posted before it is placed.
bool Model::may_end_before(uint32_t s, const Request& r, const Mortal& m) const {
  if (m.removed) return true;
  const auto index = static_cast<uint32_t>(&r - sides_[s].requests.data());
  return std::any_of(m.enders.begin(), m.enders.end(), [&](uint32_t i) {
    const Request& ender = sides_[s].requests[i];
    return i < index || ender.step.unordered != 0 || ender.step.stream != r.step.stream;
  });
}

void Model::settle_silent() {
  for (uint32_t s = 0; s < 2; ++s) {
    for (Direction& d : directions_[s]) {
      if (d.owes && !d.failed) differ("receives were flushed, and no request failed");
      while (d.head < d.posts.size()) {
        const uint32_t index = d.posts[d.head];
        const Request& r = sides_[s].requests[index];
        if (!r.step.unsignalled || d.failed) {
          differ("no completion: " + name(s, r));
          ++d.head;
          continue;
        }
        request_ok(s, index, 0, false);
      }
    }
  }
}

void Model::reopened(uint32_t stream) {
  for (uint32_t s = 0; s < 2; ++s) {
    Direction& d = directions_[s][stream];
    while (d.head < d.posts.size()) {
      const uint32_t index = d.posts[d.head];
      const Request& r = sides_[s].requests[index];
      if (r.step.unsignalled != 0 && !d.failed) {
        request_ok(s, index, 0, false);
        continue;
      }
      differ("opened anew, and not complete: " + name(s, r));
      ++d.head;
    }
    if (d.owes && !d.failed) differ("receives were flushed, and no request failed");
    for (const uint32_t i : d.receives) {
      if (!sides_[1 - s].receives[i].done) {
        differ(fmt::format("opened anew, and receive {} of side {} is not flushed", i, 1 - s));
        sides_[1 - s].receives[i].done = true;
      }
    }
    d = Direction{};
  }
}

// ---- Memory ------------------------------------------------------------------------------------

void Model::check_write(uint32_t sender, const Request& r, const char* when) {
  if (r.range == kNothing || r.length == 0) return;
  Side& peer = sides_[1 - sender];
  const Range& range = peer.ranges[r.range];
  const Request& newest = sides_[sender].requests[range.writer];
  if (newest.step.id != r.step.id) return;  // written again since
  if (std::memcmp(peer.written.at(range.offset), bytes_of(r), r.length) != 0) {
    differ(fmt::format("{} is not placed {}", name(sender, r), when));
  }
}

bool Model::same(uint32_t s, uint32_t landing, uint32_t landings, const std::byte* bytes,
                 uint32_t length) {
  uint32_t left = length;
  for (uint32_t i = 0; i < landings && left > 0; ++i) {
    const engine::Segment& to = sides_[s].landings[landing + i];
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(left, to.length));
    if (n > 0 && std::memcmp(to.address, bytes, n) != 0) return false;
    bytes += n;
    left -= n;
  }
  return left == 0;
}

void Model::check_landing(uint32_t s, const Request& r, uint64_t old_value) {
  if (r.landings == 0) return;
  if (r.is_atomic()) {
    const uint64_t expected = r.own_counter ? r.old_value : old_value;
    if (!r.own_counter && r.step.unsignalled) return;  // nobody said what it is
    std::byte bytes[8];
    std::memcpy(bytes, &expected, 8);
    if (!same(s, r.landing, r.landings, bytes, 8)) differ("old value not in memory: " + name(s, r));
    return;
  }
  const std::byte* expected = r.writer == kNothing ? Quarry::get().base() + r.quarry
                                                   : bytes_of(sides_[s].requests[r.writer]);
  if (!same(s, r.landing, r.landings, expected, r.length)) {
    differ(fmt::format("{} brought other bytes than {}", name(s, r),
                       r.writer == kNothing ? "the source" : "the Write before it"));
  }
}

void Model::look_at_counters(uint32_t s) {
  for (Direction& d : directions_[1 - s]) {
    if (d.executed == d.chain.size()) continue;  // nothing to come
    uint64_t value = 0;
    std::memcpy(&value, sides_[s].counters.at(d.counter), 8);
    const auto after = [&](size_t executed) {
      return executed == 0 ? 0 : sides_[1 - s].requests[d.chain[executed - 1]].new_value;
    };
    size_t k = d.executed;
    while (k < d.chain.size() && after(k) != value) ++k;
    if (after(k) != value) {
      differ(fmt::format("a counter of side {} holds {}: no order of the stream gives that", s,
                         value));
      d.executed = d.chain.size();
      continue;
    }
    if (k != d.executed) {
      d.executed = k;
      verify_before(1 - s, d, sides_[1 - s].requests[d.chain[k - 1]].place, "an atomic");
    }
    if (k < d.chain.size() && sides_[1 - s].requests[d.chain[k]].place < d.verified) {
      differ("a receive was told before " + name(1 - s, sides_[1 - s].requests[d.chain[k]]));
    }
  }
}

/// Everything posted before that place is done at the receiver.
void Model::verify_before(uint32_t sender, Direction& d, size_t end, const char* by) {
  for (; d.verified < end; ++d.verified) {
    const Request& r = sides_[sender].requests[d.posts[d.verified]];
    if (r.must != Status::kOk) {
      differ(fmt::format("{} came behind {}, which cannot succeed", by, name(sender, r)));
    }
    if (r.is_write()) check_write(sender, r, fmt::format("before {}", by).c_str());
    if (r.consumes && !r.received) differ(fmt::format("{} before {}", by, name(sender, r)));
  }
}

void Model::check_shared(uint32_t s, uint32_t word) {
  uint64_t value = 0;
  std::memcpy(&value, sides_[s].counters.at(Ground::kGap + 8 * word), 8);
  std::vector<std::pair<uint64_t, uint64_t>> done;
  uint64_t perhaps = 0, sum = 0;
  std::vector<uint64_t> open;
  for (const uint32_t i : sides_[s].shared[word].adds) {
    const Request& r = sides_[1 - s].requests[i];
    const bool known = r.new_value != 0;
    if (known) {
      done.emplace_back(r.old_value, r.new_value);
      sum += r.operand;
    } else {
      open.push_back(r.operand);
      perhaps += r.operand;
    }
  }
  std::sort(done.begin(), done.end());
  for (size_t i = 1; i < done.size(); ++i) {
    if (done[i].first < done[i - 1].second) differ("two additions saw the same old value");
  }
  if (!done.empty() && done.back().second > value) differ("an old value above the counter");
  if (value < sum || value > sum + perhaps) {
    differ(
        fmt::format("counter {} of side {} holds {}, {} were added for sure", word, s, value, sum));
    return;
  }
  if (open.size() > 14) return;
  for (uint32_t set = 0; set < 1u << open.size(); ++set) {
    uint64_t extra = 0;
    for (size_t i = 0; i < open.size(); ++i) extra += (set >> i & 1) != 0 ? open[i] : 0;
    if (sum + extra == value) return;
  }
  differ(fmt::format("counter {} of side {}: something was added twice or in part", word, s));
}

/// Bytes are those of the newest Write, or, when it failed, of it or of what was there.
void Model::check_ranges(uint32_t s) {
  Side& side = sides_[s];
  for (const Range& range : side.ranges) {
    const Request& newest = sides_[1 - s].requests[range.writer];
    const std::byte* memory = side.written.at(range.offset);
    if (range.settled) {
      check_write(1 - s, newest, "at the end");
      continue;
    }
    std::vector<std::byte> before(range.length, Ground::kGuard);
    if (range.previous != kNothing) {
      std::copy_n(bytes_of(sides_[1 - s].requests[range.previous]), range.length, before.data());
    }
    const std::byte* now = bytes_of(newest);
    for (uint32_t i = 0; i < range.length; ++i) {
      if (memory[i] == now[i] || memory[i] == before[i]) continue;
      differ(fmt::format("foreign byte {} in {}", i, name(1 - s, newest)));
      break;
    }
  }
}

void Model::check_image() {
  for (uint32_t s = 0; s < 2; ++s) {
    check_ranges(s);
    look_at_counters(s);
    for (uint32_t word = 0; word < 2; ++word) check_shared(s, word);
    // The last 64 KiB of the target are there for Writes that reach beyond it.
    if (!sides_[s].written.gaps_intact(sides_[s].written.size() - (1u << 16))) {
      differ(fmt::format("a byte between the targets of Writes of side {} changed", s));
    }
    if (!sides_[s].landed.gaps_intact(sides_[s].landed.size())) {
      differ(fmt::format("a byte between the receives of side {} changed", s));
    }
  }
}

}  // namespace metaroce::oracle
