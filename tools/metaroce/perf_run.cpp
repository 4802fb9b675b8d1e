#include "perf_run.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <new>
#include <utility>

#include "memory/regions.h"

namespace metaroce::tool {
namespace {

Duration of(const timeval& t) { return seconds(t.tv_sec) + microseconds(t.tv_usec); }

}  // namespace

Duration process_cpu() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return of(usage.ru_utime) + of(usage.ru_stime);
}

namespace {

uint8_t rights_for(PerfOp op) {
  switch (op) {
    case PerfOp::kRead:
      return memory::access::kRemoteRead;
    case PerfOp::kFetchAdd:
      return memory::access::kRemoteAtomic;
    default:
      return memory::access::kRemoteWrite;
  }
}

}  // namespace

PerfRun::PerfRun(api::Endpoint& endpoint, api::ConnectionHandle connection, const PerfPlan& plan,
                 PerfSide side, uint64_t memory_limit)
    : endpoint_(endpoint),
      connection_(connection),
      plan_(plan),
      side_(side),
      memory_limit_(memory_limit),
      streams_(plan.streams) {
  const uint8_t own = side == PerfSide::kClient ? kForward : kReverse;
  sends_ = (plan.direction & own) != 0;
  receives_ = (plan.direction & ~own & kBoth) != 0;
  if (!sends_) phase_ = Phase::kEnded;
}

PerfRun::~PerfRun() {
  if (registered_) endpoint_.deregister_region(region_);
}

// ---- memory -------------------------------------------------------------------------------------

std::string PerfRun::prepare() {
  const bool answers = echoes();
  const bool takes = receives_ || answers;
  const bool gives = sends_ || answers;
  // Receives are posted ahead of the depth, so that the credit is never what a sender waits for.
  receives_each_ = takes && needs_receives() ? (plan_.ping_pong ? 8u : 2 * plan_.depth) : 0;
  // Without a check messages may share memory; with it each receive under way has its own.
  const uint64_t most = std::max<uint64_t>(memory_limit_ / 2 / plan_.streams / plan_.size, 1);
  const uint64_t wanted = std::max<uint64_t>(plan_.depth, receives_each_);
  const bool own_slots = plan_.op == PerfOp::kSend || plan_.op == PerfOp::kRead;
  if (plan_.verify && own_slots && most < wanted) {
    return fmt::format(
        "{} streams with {} receives of {} bytes need more than {} bytes of memory "
        "to check them; use fewer streams, a smaller depth or smaller messages",
        plan_.streams, wanted, plan_.size, memory_limit_);
  }
  if (plan_.size * plan_.streams > memory_limit_ / 2) {
    return fmt::format(
        "{} streams with messages of {} bytes need more than {} bytes of memory; "
        "use fewer streams or smaller messages",
        plan_.streams, plan_.size, memory_limit_);
  }
  tx_slots_ = std::min<uint64_t>(most, plan_.depth);
  rx_slots_ = plan_.op == PerfOp::kSend ? std::min(most, wanted) : tx_slots_;
  try {
    if (gives) tx_memory_.resize(tx_slots_ * plan_.streams * plan_.size);
    if (takes) rx_memory_.resize(rx_slots_ * plan_.streams * plan_.size);
  } catch (const std::bad_alloc&) {
    return "no memory for the payload; use smaller messages or fewer streams";
  }
  if (gives) fill_slots();
  if (takes && plan_.op == PerfOp::kRead) {
    for (size_t s = 0; s < streams_.size(); ++s) {
      for (uint64_t n = 0; n < rx_slots_; ++n) {
        PerfPattern(plan_.seed, static_cast<uint16_t>(s + 1), n).fill(rx_slot(s, n));
      }
    }
  }
  if (takes && plan_.op != PerfOp::kSend) {
    const auto region = endpoint_.register_region(rx_memory_, rights_for(plan_.op));
    if (!region) return region.error().text;
    region_ = *region;
    registered_ = true;
    grant_ = {region->key, region->address, rx_slots_};
  }
  for (size_t s = 0; s < streams_.size(); ++s) {
    streams_[s].unposted = receives_each_;
    refill_receives(s);
    if (streams_[s].unposted != 0) {
      return fmt::format(
          "{} streams with {} receives each are more than max_receives or "
          "max_streams allow; use fewer streams, a smaller depth, or --set",
          plan_.streams, receives_each_);
    }
  }
  return {};
}

void PerfRun::fill_slots() {
  for (size_t s = 0; s < streams_.size(); ++s) {
    for (uint64_t n = 0; n < tx_slots_; ++n) {
      PerfPattern(plan_.seed, static_cast<uint16_t>(s + 1), n).fill(tx_slot(s, n));
    }
  }
}

std::span<std::byte> PerfRun::tx_slot(size_t stream, uint64_t number) {
  return {tx_memory_.data() + (stream * tx_slots_ + number % tx_slots_) * plan_.size, plan_.size};
}

std::span<std::byte> PerfRun::rx_slot(size_t stream, uint64_t number) {
  return {rx_memory_.data() + (stream * rx_slots_ + number % rx_slots_) * plan_.size, plan_.size};
}

// ---- sending ------------------------------------------------------------------------------------

void PerfRun::start(Time now, const PerfGrant& peer) {
  peer_ = peer;
  if (!sends_ || phase_ != Phase::kIdle) return;
  if (peer.slots != 0 && peer.slots < tx_slots_) {
    tx_slots_ = peer.slots;  // the other end may spend less memory: slot n of ours is slot n there
    fill_slots();
  }
  phase_ = Phase::kWarm;
  phase_end_ = now + nanoseconds(plan_.warmup_ns);
}

bool PerfRun::may_post(Time now) const {
  if (stop_ || !error_.empty()) return false;
  if (phase_ == Phase::kWarm) return now < phase_end_;
  if (phase_ != Phase::kMeasure) return false;
  return plan_.count != 0 ? quota_ > 0 : now < phase_end_;
}

void PerfRun::progress(Time now) {
  for (size_t s = 0; s < streams_.size(); ++s) {
    if (streams_[s].unposted != 0) refill_receives(s);
  }
  if (phase_ == Phase::kIdle || phase_ == Phase::kEnded) return;
  post_sends(now);
  // Ends of phases: first nothing more is posted, then what is under way has to complete.
  if (may_post(now)) return;
  if (phase_ == Phase::kWarm) phase_ = Phase::kWarmDrain;
  if (phase_ == Phase::kMeasure) phase_ = Phase::kDrain;
  phase_end_ = kNever;
  if (open_ == 0 && !awaiting_echo_) drained(now);
}

void PerfRun::drained(Time now) {
  if (phase_ == Phase::kWarmDrain && !stop_ && error_.empty()) {
    phase_ = Phase::kMeasure;
    phase_end_ = plan_.count != 0 ? kNever : now + nanoseconds(plan_.time_ns);
    quota_ = plan_.count;
    measure_begin_ = measure_end_ = now;
    mark_due_ = true;
    note_warm();
    open_books(now);
    post_sends(now);
    return;
  }
  if (phase_ == Phase::kWarmDrain) {
    measure_begin_ = measure_end_ = now;
    mark_due_ = true;
    note_warm();
    open_books(now);
  }
  phase_ = Phase::kEnded;
  done_due_ = true;
  close_books(now);
}

void PerfRun::note_warm() {
  for (const Stream& stream : streams_) warm_ += stream.posted;
}

void PerfRun::post_sends(Time now) {
  while (may_post(now)) {
    // Streams take turns, so that none waits for the others' depth.
    size_t posted = 0;
    for (size_t i = 0; i < streams_.size() && may_post(now); ++i) {
      const size_t s = next_stream_;
      next_stream_ = next_stream_ + 1 == streams_.size() ? 0 : next_stream_ + 1;
      // What is fetched and checked has a place of its own until then.
      const uint64_t depth =
          fetches(plan_.op) ? std::min<uint64_t>(plan_.depth, tx_slots_) : plan_.depth;
      if (streams_[s].open >= depth || awaiting_echo_) continue;
      if (!post_send(s, now)) return;
      ++posted;
      if (echoes()) {
        awaiting_echo_ = true;
        echo_sent_ = now;
      }
      if (quota_ > 0) --quota_;
    }
    if (posted == 0) return;
  }
}

bool PerfRun::post_send(size_t s, Time now) {
  Stream& stream = streams_[s];
  const auto memory = tx_slot(s, stream.posted);
  const auto id = static_cast<uint16_t>(s + 1);
  if (plan_.verify && plan_.op == PerfOp::kSend) {
    PerfPattern(plan_.seed, id, stream.posted).fill(memory);
  }
  api::WorkRequest w;
  w.id = static_cast<uint64_t>(now.ns);
  w.connection = connection_;
  w.stream = id;
  w.local = w.result = memory.data();
  w.length = memory.size();
  switch (plan_.op) {
    case PerfOp::kWrite:
      w.operation = engine::Operation::kWrite;
      break;
    case PerfOp::kWriteImm:
      w.operation = engine::Operation::kWriteImm;
      break;
    case PerfOp::kSend:
      w.operation = engine::Operation::kSend;
      break;
    case PerfOp::kRead:
      w.operation = engine::Operation::kRead;
      break;
    case PerfOp::kFetchAdd:
      w.operation = engine::Operation::kFetchAdd;
      w.operand = 1;
      break;
  }
  if (plan_.op != PerfOp::kSend) {
    // One counter for each stream, so that its old values can be foretold.
    const uint64_t slot = plan_.op == PerfOp::kFetchAdd ? 0 : stream.posted % tx_slots_;
    w.remote_address = peer_.address + (s * peer_.slots + slot) * plan_.size;
    w.remote_key = peer_.key;
    w.immediate = static_cast<uint32_t>(stream.posted);
  }
  Status status = Status::kOk;
  if (endpoint_.post({&w, 1}, status) != 1) {
    if (status != Status::kFull) fail(fmt::format("cannot post: {}", to_string(status)));
    return false;
  }
  ++stream.posted;
  ++stream.open;
  ++open_;
  return true;
}

void PerfRun::on_completion(const api::Completion& c, Time now) {
  if (c.stream == 0 || c.stream > streams_.size()) return;
  if (c.operation == engine::Operation::kReceive) return on_received(c, now);
  Stream& stream = streams_[c.stream - 1];
  if (stream.open > 0) --stream.open;
  if (open_ > 0) --open_;
  if (c.status != Status::kOk) {
    return fail(fmt::format("a {} on stream {} failed: {}", to_string(plan_.op), c.stream,
                            to_string(c.status)));
  }
  if (plan_.verify && fetches(plan_.op)) check_fetched(c.stream - 1u, c);
  ++stream.completed;
  if (echoes() || (phase_ != Phase::kMeasure && phase_ != Phase::kDrain)) return;
  count(now, now - Time{static_cast<int64_t>(c.id)});
}

void PerfRun::count(Time now, Duration latency) {
  ++completed_;
  longest_gap_ = std::max(longest_gap_, now - measure_end_);
  measure_end_ = now;
  histogram_.add(latency);
}

void PerfRun::fail(std::string text) {
  if (error_.empty()) error_ = std::move(text);
}

// ---- receiving ----------------------------------------------------------------------------------

void PerfRun::refill_receives(size_t s) {
  while (streams_[s].unposted != 0 && post_receive(s)) --streams_[s].unposted;
}

bool PerfRun::post_receive(size_t s) {
  Stream& stream = streams_[s];
  api::ReceiveRequest r;
  r.connection = connection_;
  r.stream = static_cast<uint16_t>(s + 1);
  if (plan_.op == PerfOp::kSend) {
    // In order of the stream: the message with number k lands in slot k.
    const auto memory = rx_slot(s, stream.received + receives_each_ - stream.unposted);
    r.buffer = memory.data();
    r.length = memory.size();
  }
  Status status = Status::kOk;
  if (endpoint_.post_receive({&r, 1}, status) == 1) return true;
  if (status != Status::kFull) fail(fmt::format("cannot post a receive: {}", to_string(status)));
  return false;
}

void PerfRun::on_received(const api::Completion& c, Time now) {
  if (c.status != Status::kOk) {
    if (c.status == Status::kFlushed || c.status == Status::kClosed) return;
    return fail(fmt::format("a receive on stream {} failed: {}", c.stream, to_string(c.status)));
  }
  const size_t s = c.stream - 1u;
  if (c.bytes != plan_.size) {
    fail(fmt::format("a message of {} bytes instead of {} arrived on stream {}", c.bytes,
                     plan_.size, c.stream));
  }
  if (plan_.verify) check(s, c);
  ++streams_[s].received;
  ++streams_[s].unposted;
  ++received_;
  refill_receives(s);
  if (!echoes()) return;
  if (!is_pinger()) {
    post_send(s, now);
    return;
  }
  if (!awaiting_echo_) return;
  awaiting_echo_ = false;
  if (phase_ != Phase::kMeasure && phase_ != Phase::kDrain) return;
  count(now, now - echo_sent_);
}

void PerfRun::check(size_t s, const api::Completion& c) {
  ++verified_;
  const uint64_t number = streams_[s].received;
  bool good = true;
  if (plan_.op == PerfOp::kSend) {
    good = PerfPattern(plan_.seed, c.stream, number).matches(rx_slot(s, number));
  } else {
    // Memory may hold the next message by now; its number is this one's own.
    good = c.has_immediate && c.immediate == static_cast<uint32_t>(number);
  }
  if (!good) ++verify_errors_;
}

void PerfRun::check_fetched(size_t s, const api::Completion& c) {
  const uint64_t number = streams_[s].completed;
  ++verified_;
  if (plan_.op == PerfOp::kFetchAdd) {
    verify_errors_ += c.old_value != number;
    return;
  }
  const auto memory = tx_slot(s, number);
  verify_errors_ +=
      !PerfPattern(plan_.seed, static_cast<uint16_t>(s + 1), number % tx_slots_).matches(memory);
  std::fill(memory.begin(), memory.end(), std::byte{0});  // the next one has to bring it again
}

void PerfRun::check_written() {
  // Writes go round the slots; every slot that was written has to hold its pattern.
  for (size_t s = 0; s < streams_.size(); ++s) {
    for (uint64_t n = 0; n < rx_slots_; ++n) {
      const auto memory = rx_slot(s, n);
      const bool untouched =
          std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0}; });
      if (untouched && n != 0) continue;
      ++verified_;
      if (PerfPattern(plan_.seed, static_cast<uint16_t>(s + 1), n).matches(memory)) continue;
      ++verify_errors_;
    }
  }
}

void PerfRun::on_peer_mark(Time now, const PerfMark& mark) {
  open_books(now);
  received_begin_ = mark.before;
}

void PerfRun::on_peer_done(Time now, const PerfDone& done) {
  if (!books_open_) open_books(now);
  expected_ = received_begin_ + done.messages;
  close_books(now);
  if (plan_.verify && receives_ && plan_.op != PerfOp::kSend && !fetches(plan_.op) &&
      !rx_memory_.empty()) {
    check_written();
  }
}

// ---- books --------------------------------------------------------------------------------------

bool PerfRun::take_mark(PerfMark& mark) {
  mark.before = warm_;
  return std::exchange(mark_due_, false);
}

bool PerfRun::take_done(PerfDone& done) {
  done.messages = completed_;
  return std::exchange(done_due_, false);
}

void PerfRun::read_paths(std::vector<api::PathStatus>& out) const {
  out.resize(kMostPerfPaths);
  out.resize(endpoint_.path_status(connection_, out));
}

void PerfRun::open_books(Time now) {
  if (books_open_) return;
  books_open_ = true;
  books_begin_ = books_end_ = now;
  cpu_begin_ = cpu_end_ = process_cpu();
  if (!receives_) received_begin_ = received_;
  read_paths(paths_begin_);
}

void PerfRun::close_books(Time now) {
  books_end_ = now;
  cpu_end_ = process_cpu();
  read_paths(paths_end_);
}

PerfReport PerfRun::report(Time now) {
  if (paths_end_.empty()) close_books(now);
  PerfReport r;
  r.sent.messages = completed_;
  r.sent.bytes = completed_ * plan_.size;
  r.sent.ns = (measure_end_ - measure_begin_).ns;
  r.sent.gap_ns = longest_gap_.ns;
  r.sent.latency = histogram_.percentiles();
  r.cpu_ns = static_cast<uint64_t>((cpu_end_ - cpu_begin_).ns);
  r.cpu_span_ns = (books_end_ - books_begin_).ns;
  r.cpu_shared = shared_;
  r.messages_received = received_ - std::min(received_, received_begin_);
  r.verified = verified_;
  r.verify_errors = verify_errors_;
  for (const api::PathStatus& p : paths_end_) {
    const auto old = std::find_if(paths_begin_.begin(), paths_begin_.end(),
                                  [&](const api::PathStatus& o) { return o.id == p.id; });
    const api::PathStatus begin = old == paths_begin_.end() ? api::PathStatus{} : *old;
    const PathCounters& before = begin.counters;
    PerfPath row;
    row.id = p.id;
    row.plane = p.plane;
    row.state = static_cast<uint8_t>(p.state);
    row.port = p.source_port;
    row.pmtu = p.pmtu;
    row.window = p.window;
    row.srtt_ns = static_cast<uint32_t>(std::clamp<int64_t>(p.srtt.ns, 0, UINT32_MAX));
    row.packets = p.counters.tx_packets - before.tx_packets;
    row.data = p.counters.tx_new - before.tx_new;
    row.repairs = p.counters.tx_repair - before.tx_repair;
    row.copies = p.counters.tx_copies - before.tx_copies;
    row.probes = p.counters.tx_probes - before.tx_probes;
    row.acked = p.counters.acked - before.acked;
    row.lost = p.counters.lost - before.lost;
    row.spurious = p.counters.spurious - before.spurious;
    row.marks = p.counters.rx_ce - before.rx_ce;
    row.in_flight = int64_t{p.in_flight_packets} - int64_t{begin.in_flight_packets};
    r.packets_received += p.counters.rx_packets - before.rx_packets;
    r.duplicates += p.counters.rx_duplicates - before.rx_duplicates;
    r.paths.push_back(row);
  }
  return r;
}

}  // namespace metaroce::tool
