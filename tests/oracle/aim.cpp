// The part of the runner that makes requests and receives out of steps.
#include <fmt/format.h>

#include <algorithm>

#include "tests/oracle/runner.h"

namespace metaroce::oracle {

using engine::Operation;
using engine::Segment;
using engine::WorkRequest;

namespace {

Operation operation_of(StepKind kind) {
  static constexpr Operation kOperations[] = {
      Operation::kWrite,   Operation::kWriteImm, Operation::kSend,     Operation::kSendImm,
      Operation::kSendInv, Operation::kRead,     Operation::kFetchAdd, Operation::kCompareSwap};
  return kOperations[static_cast<size_t>(kind)];
}

bool is_atomic(StepKind kind) {
  return kind == StepKind::kFetchAdd || kind == StepKind::kCompareSwap;
}

}  // namespace

/// Memory of a side for what comes back: segments with guards between them.
uint32_t Runner::land(uint32_t s, uint64_t name, uint32_t length, uint32_t segments) {
  Model::Side& m = model_.side(s);
  uint32_t lengths[16];
  cut(name, length, segments, lengths);
  const auto first = static_cast<uint32_t>(m.landings.size());
  for (uint32_t i = 0; i < segments; ++i) {
    m.landings.push_back({m.landed.at(m.landed.take(lengths[i])), lengths[i]});
  }
  return first;
}

Runner::Went Runner::post(const Step& step) {
  const uint32_t s = step.side;
  if (reopening_[step.stream] != 0) return program_.enough != 0 ? Went::kAgain : Went::kDone;
  Request r;
  WorkRequest w;
  Segment pieces[16];
  r.step = step;
  Model::Side& own = model_.side(s);
  Model::Side& peer = model_.side(1 - s);
  const Ground::Mark landed = own.landed.mark(), written = peer.written.mark();
  const size_t landings = own.landings.size(), ranges = peer.ranges.size();
  if (is_atomic(step.kind)) r.step.segments = 1;
  // Which of two equal messages a receive of a shared queue got can only be told by their order.
  const bool anonymous = step.kind == StepKind::kSend && step.length < 8;
  if (anonymous && program_.streams[step.stream].shared[1 - s] != 0) r.step.unordered = 0;
  if (!prepare(r.step, r, w)) return Went::kDone;
  const uint64_t data = mixed(program_.seed, step.id);
  const bool awaits = step.kind >= StepKind::kRead;
  uint32_t n = 0;
  if (!awaits) {
    n = source_of(data, r.length, step.segments, pieces);
    if (r.copied) {
      size_t at = 0;
      for (uint32_t i = 0; i < n; ++i) {
        std::copy_n(pieces[i].address, pieces[i].length, inlined_.data() + at);
        pieces[i].address = inlined_.data() + at;
        at += pieces[i].length;
      }
    }
  } else if (r.landings > 0) {
    n = r.landings;
    std::copy_n(model_.side(s).landings.begin() + r.landing, n, pieces);
  }
  if (n > 1 || (n == 1 && step.id % 2 == 0 && !is_atomic(step.kind))) {
    w.segments = {pieces, n};
  } else if (n == 1) {
    (awaits ? w.result : const_cast<std::byte*&>(w.local)) = pieces[0].address;
  }
  r.list = n > 1 && !r.copied;
  const int side = static_cast<int>(s);
  w.id = model_.side(s).requests.size();
  w.connection = pair_->connection(side);
  Status status = Status::kOk;
  const size_t taken = pair_->engine(side).post(pair_->now(), {&w, 1}, status);
  inlined_.fill(std::byte{0xEE});  // what was copied is ours again
  if (taken == 1) {
    ++out_.operations;
    if (model_.direction(s, step.stream).drained) {
      model_.differ(fmt::format("step {} is taken by a drained stream", step.id));
    }
    model_.posted(s, r);
  } else {
    judge_refusal(s, r, status);
    own.landed.rewind(landed);
    peer.written.rewind(written);
    own.landings.resize(landings);
    peer.ranges.resize(ranges);
  }
  pair_->poll(side);
  return taken == 0 && status == Status::kFull ? Went::kAgain : Went::kDone;
}

bool Runner::prepare(const Step& step, Request& r, WorkRequest& w) {
  r.length = is_atomic(step.kind) ? 8 : step.length;
  r.consumes = step.kind == StepKind::kWriteImm || step.kind == StepKind::kSend ||
               step.kind == StepKind::kSendImm || step.kind == StepKind::kSendInv;
  w.stream = static_cast<uint16_t>(step.stream + 1);
  w.operation = operation_of(step.kind);
  w.solicited = step.solicited != 0;
  w.fence = step.fence != 0;
  w.unordered = step.unordered != 0;
  w.signalled = step.unsignalled == 0;
  w.immediate = step.id;
  if (!aim(step, r, w)) return false;
  r.copied = step.copied != 0 && step.kind < StepKind::kRead && r.length <= 256;
  w.copied = r.copied;
  w.length = r.length;
  return true;
}

bool Runner::aim(const Step& step, Request& r, WorkRequest& w) {
  if (spoil(step, r, w)) return true;
  switch (step.kind) {
    case StepKind::kWrite:
    case StepKind::kWriteImm:
      return aim_write(step, r, w);
    case StepKind::kRead:
      return aim_read(step, r, w);
    case StepKind::kFetchAdd:
    case StepKind::kCompareSwap:
      aim_atomic(step, r, w);
      return true;
    case StepKind::kSendInv:
      aim_invalidate(step, r, w);
      return true;
    default:
      return true;
  }
}

void Runner::use_mortal(const Step& step, uint32_t slot, Request& r, WorkRequest& w) {
  const uint32_t peer = 1 - step.side;
  const bool old = (step.variant & 0x700) == 0;
  const uint32_t index = old ? keys_[peer].before[slot] : keys_[peer].newest[slot];
  const Mortal& mortal = model_.side(peer).mortals[index];
  r.mortal = static_cast<int>(index);
  w.remote_key = mortal.key;
  const bool checked = r.length > 0 || step.kind == StepKind::kSendInv;
  if (mortal.dead && checked) {
    r.must = Status::kAccess;
    r.cause = step.fault == Fault::kMortal ? Cause::kMortal : Cause::kWindow;
  }
}

bool Runner::aim_write(const Step& step, Request& r, WorkRequest& w) {
  const uint32_t peer = 1 - step.side;
  Model::Side& m = model_.side(peer);
  Direction& d = model_.direction(step.side, step.stream);
  w.remote_key = keys_[peer].written.key;
  if (step.fault == Fault::kMortal) use_mortal(step, step.variant % kMortals, r, w);
  if (step.fault == Fault::kWindow) use_mortal(step, kMortals + step.variant % kWindows, r, w);
  if ((step.variant >> 12) % 4 == 0 && d.last_range != kNothing) {
    // The same bytes again, if nothing is under way there; a Read of the stream may be, with a
    // fence.
    const Range& range = m.ranges[d.last_range];
    const Request& newest = model_.request(step.side, range.writer);
    const bool quiet = range.readers == 0 || (step.fence != 0 && newest.step.stream == step.stream);
    if (range.settled && quiet && range.length > 0 && !d.reset_here && !d.failed) {
      r.range = d.last_range;
      r.length = range.length;
      if (r.must == Status::kOk && r.mortal >= 0) {
        const Mortal& mortal = m.mortals[static_cast<size_t>(r.mortal)];
        if (mortal.dead) r.must = Status::kAccess;
        if (mortal.dead) r.cause = step.fault == Fault::kMortal ? Cause::kMortal : Cause::kWindow;
      }
    }
  }
  if (r.range == kNothing) {
    r.range = static_cast<uint32_t>(m.ranges.size());
    Range range;
    range.length = r.length;
    range.offset = m.written.take(r.length);
    m.ranges.push_back(range);
  }
  w.remote_address = keys_[peer].written.remote_base + m.ranges[r.range].offset;
  return true;
}

bool Runner::aim_read(const Step& step, Request& r, WorkRequest& w) {
  const uint32_t peer = 1 - step.side;
  Model::Side& m = model_.side(peer);
  const Direction& d = model_.direction(step.side, step.stream);
  const bool written =
      (step.variant >> 12) % 2 == 0 || step.fault == Fault::kMortal || step.fault == Fault::kWindow;
  if (written && d.last_range != kNothing) {
    const Range& range = m.ranges[d.last_range];
    const Request& writer = model_.request(step.side, range.writer);
    const bool sure = range.settled || (step.unordered == 0 && !writer.done);
    if (sure && writer.must == Status::kOk) {
      r.range = d.last_range;
      r.writer = range.writer;
      r.length = std::min(step.length, range.length);
      w.remote_key = keys_[peer].written.key;
      w.remote_address = keys_[peer].written.remote_base + range.offset;
      if (step.fault == Fault::kMortal) use_mortal(step, step.variant % kMortals, r, w);
      if (step.fault == Fault::kWindow) use_mortal(step, kMortals + step.variant % kWindows, r, w);
    }
  }
  if (r.writer == kNothing) {
    r.quarry = Quarry::offset(mixed(program_.seed ^ 0x5eed, step.id));
    w.remote_key = keys_[peer].quarry.key;
    w.remote_address = keys_[peer].quarry.remote_base + r.quarry;
  }
  r.landings = step.segments;
  r.landing = land(step.side, mixed(program_.seed, step.id) ^ 1, r.length, step.segments);
  return true;
}

void Runner::aim_atomic(const Step& step, Request& r, WorkRequest& w) {
  const uint32_t peer = 1 - step.side;
  Direction& d = model_.direction(step.side, step.stream);
  r.own_counter = step.kind == StepKind::kCompareSwap || step.variant % 2 == 0;
  if (step.unordered != 0) {
    r.own_counter = false;
    r.step.kind = StepKind::kFetchAdd;
    w.operation = Operation::kFetchAdd;
  }
  const uint64_t luck = 1 + mixed(program_.seed, step.id) % 1'000'000;
  r.operand = luck;
  uint32_t offset = 0;
  if (r.own_counter) {
    if (d.counter == kNothing) {
      d.counter = keys_[peer].next_counter;
      keys_[peer].next_counter += 8;
    }
    offset = d.counter;
    r.old_value = d.value;
    r.new_value = d.value + luck;
    if (step.kind == StepKind::kCompareSwap) {
      const bool hit = (step.variant >> 4) % 3 != 0;
      r.operand = hit ? d.value : d.value + 3'000'000'000ull;
      r.swap = d.value + luck;
      if (!hit) r.new_value = d.value;
    }
  } else {
    r.range = (step.variant >> 4) % 2;
    offset = Ground::kGap + 8 * r.range;
  }
  w.operand = r.operand;
  w.swap = r.swap;
  w.remote_key = keys_[peer].counters.key;
  w.remote_address = keys_[peer].counters.remote_base + offset;
  if ((step.variant >> 6) % 4 != 0) {
    r.landings = 1;
    r.landing = land(step.side, step.id, 8, 1);
  }
}

void Runner::aim_invalidate(const Step& step, Request& r, WorkRequest& w) {
  r.step.fault = Fault::kWindow;
  Step aimed = step;
  aimed.fault = Fault::kWindow;
  use_mortal(aimed, kMortals + step.variant % kWindows, r, w);
  r.key = w.remote_key;
  w.immediate = r.key;
  w.remote_key = 0;
}

/// What cannot succeed from the start; false when this fault does not concern the request.
bool Runner::spoil(const Step& step, Request& r, WorkRequest& w) {
  const uint32_t peer = 1 - step.side;
  const Keys& k = keys_[peer];
  const bool atomic = is_atomic(step.kind);
  const bool write = step.kind == StepKind::kWrite || step.kind == StepKind::kWriteImm;
  const bool read = step.kind == StepKind::kRead;
  const bool ends_key = step.kind == StepKind::kSendInv;
  r.must = Status::kAccess;
  if ((!atomic && !write && !read && !ends_key) || (!ends_key && r.length == 0)) {
    r.must = Status::kOk;
    return false;
  }
  w.remote_key = atomic ? k.counters.key : k.written.key;
  w.remote_address = atomic ? k.counters.remote_base + Ground::kGap
                            : k.written.remote_base + model_.side(peer).written.size() - (1 << 15);
  switch (ends_key && step.fault > Fault::kForeign ? Fault::kNone : step.fault) {
    case Fault::kBadKey:
      w.remote_key = kBadKey;
      break;
    case Fault::kBounds:
      if (ends_key) break;
      w.remote_address =
          atomic ? k.counters.remote_base + model_.side(peer).counters.size()
                 : k.written.remote_base + model_.side(peer).written.size() - r.length + 1;
      if (atomic) w.remote_address &= ~7ull;
      break;
    case Fault::kRight:
      w.remote_key = write ? k.quarry.key : read ? k.counters.key : k.written.key;
      if (write) w.remote_address = k.quarry.remote_base;
      if (read) w.remote_address = k.counters.remote_base;
      break;
    case Fault::kForeign:
      w.remote_key = ends_key ? k.foreign_window.key
                     : atomic ? k.foreign_counters.key
                              : k.foreign.key;
      break;
    case Fault::kWindowRight:
      w.remote_key = write ? k.only_read.key : read ? k.only_write.key : k.no_atomics.key;
      break;
    case Fault::kMisaligned:
      if (!atomic) break;
      w.remote_address += 1 + step.variant % 7;
      r.must = Status::kUnsupported;
      break;
    default:
      break;
  }
  const bool without = step.fault == Fault::kNone || step.fault == Fault::kMortal ||
                       step.fault == Fault::kWindow || (ends_key && step.fault > Fault::kForeign) ||
                       (ends_key && step.fault == Fault::kBounds) ||
                       (!atomic && step.fault == Fault::kMisaligned);
  if (without) {
    r.must = Status::kOk;
    w.remote_key = 0;
    w.remote_address = 0;
    return false;
  }
  r.cause = cause_of(step.fault);
  if (ends_key) {
    r.key = w.immediate = w.remote_key;
    w.remote_key = 0;
  }
  if (read) {
    r.landings = step.segments;
    r.landing = land(step.side, mixed(program_.seed, step.id) ^ 1, r.length, step.segments);
  }
  r.own_counter = atomic;  // changes nothing: no chain, no sum
  if (atomic) r.old_value = r.new_value = model_.direction(step.side, step.stream).value;
  return true;
}

Runner::Went Runner::post_receive(const Step& step, uint32_t length) {
  const uint32_t s = step.side;
  if (reopening_[step.stream] != 0) return Went::kDone;
  const bool shared = program_.streams[step.stream].shared[s] != 0;
  Receive r;
  r.stream = step.stream;
  r.length = length;
  r.shared = shared;
  engine::ReceiveRequest q;
  q.stream = static_cast<uint16_t>(step.stream + 1);
  q.shared_queue = shared ? keys_[s].shared_queue : 0;
  q.length = length;
  Model::Side& m = model_.side(s);
  q.id = m.receives.size() | kReceiveBit;
  const Ground::Mark landed = m.landed.mark();
  const size_t landings = m.landings.size();
  if (m.landed.fits(length + 64ull * step.segments)) {
    r.landings = step.segments;
    r.landing = land(s, mixed(program_.seed, step.id) ^ 2, length, step.segments);
    const Segment* first = m.landings.data() + r.landing;
    if (step.segments > 1) q.segments = {first, step.segments};
    if (step.segments == 1) q.buffer = first->address;
  } else {
    r.nowhere = true;
  }
  r.list = q.segments.size() > 1;
  const int side = static_cast<int>(s);
  q.connection = pair_->connection(side);
  Status status = Status::kOk;
  const size_t taken = pair_->engine(side).post_receives(pair_->now(), {&q, 1}, status);
  if (taken == 1) {
    model_.receive_posted(s, r);
  } else if (status == Status::kFull) {
    const bool full = m.open_receives == program_.limits.receives ||
                      (r.list && m.receive_lists == program_.limits.segment_lists);
    if (!full) model_.differ("a receive is refused though there is room");
    m.landed.rewind(landed);
    m.landings.resize(landings);
  } else if (!pair_->lost(side)) {
    model_.differ(fmt::format("a receive is refused as {}", metaroce::to_string(status)));
  }
  pair_->poll(side);
  return taken == 0 && status == Status::kFull && step.id < 1'000'000 ? Went::kAgain : Went::kDone;
}

void Runner::judge_refusal(uint32_t s, const Request& r, Status status) {
  const Model::Side& m = model_.side(s);
  const Limits& l = program_.limits;
  const Direction& d = model_.direction(s, r.step.stream);
  const auto full = [&] {
    return m.open_requests >= l.sends || (r.list && m.open_lists >= l.segment_lists) ||
           (r.copied && m.open_copies >= l.copies);
  };
  const bool fine = (status == Status::kFull && full()) ||
                    (status == Status::kClosed && d.drained) ||
                    ((status == Status::kNotConnected || status == Status::kUnknownHandle) &&
                     pair_->lost(static_cast<int>(s)));
  if (!fine) {
    model_.differ(fmt::format("step {} is refused as {}", r.step.id, metaroce::to_string(status)));
  }
}

}  // namespace metaroce::oracle
