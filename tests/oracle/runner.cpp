#include "tests/oracle/runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/placement.h"
#include "wire/types.h"

namespace metaroce::oracle {

using engine::Completion;
using engine::Placement;
using engine::RxPacket;

namespace {

constexpr uint32_t kForGood_us = 5'000'000;  // a dark time that lasts so long is the end

pair::Impairment impairment(pair::ImpairmentKind kind, uint32_t ppm) {
  pair::Impairment i;
  i.kind = kind;
  i.probability = pair::per_million(ppm);
  return i;
}

}  // namespace

Outcome run_program(const Program& program, bool tracing) {
  Outcome out;
  Runner runner(program, out);
  runner.trace(tracing);
  runner.run();
  return out;
}

Runner::Runner(const Program& program, Outcome& out)
    : program_(program),
      out_(out),
      model_(program, out.table),
      reopening_(program.streams.size()) {}

pair::PairConfig Runner::config() const {
  pair::PairConfig c;
  c.seed = program_.seed;
  c.network.planes = program_.net.planes;
  c.network.rate_bps = uint64_t{program_.net.rate_mbps} * 1'000'000;
  c.network.delay = nanoseconds(program_.net.delay_ns);
  c.network.delay_spread = nanoseconds(program_.net.spread_ns);
  c.network.mtu = program_.net.mtu;
  c.region_bytes = 64;
  c.longest_message = 64;
  Settings& s = c.settings;
  const Limits& l = program_.limits;
  s.max_connections = 1;
  s.max_streams = static_cast<uint32_t>(program_.streams.size()) + 2;
  s.max_regions = 512;
  s.max_sends = l.sends;
  s.max_receives = l.receives;
  s.max_open_messages = l.open_messages;
  s.max_pending = l.pending;
  s.max_responses = l.responses;
  s.max_outstanding = l.outstanding;
  s.message_span = l.span;
  s.max_segment_lists = l.segment_lists;
  s.max_copied = l.copies;
  s.max_shared_queues = 1;
  s.max_retries_queued = 64;
  s.max_active_paths = program_.net.planes * program_.net.paths;
  s.paths_per_plane = program_.net.paths;
  s.cpsn_window = 1024;
  s.max_payload = program_.net.mtu;
  s.death_timeout = 60'000'000;
  s.dead_probe_max = 2'000'000;
  s.credit_probe_max = 200'000;
  s.time_wait = 100'000;
  s.keep_alive = 20'000'000;
  return c;
}

void Runner::run() {
  make_memory();
  pair_ = std::make_unique<pair::Pair>(config());
  listen();
  if (!pair_->connect(milliseconds(400))) {
    model_.differ("no connection");
  } else {
    for (uint32_t s = 0; s < 2; ++s) make_keys(s);
    make_streams();
    const int64_t start = pair_->now().ns;
    const NetPlan& n = program_.net;
    using pair::ImpairmentKind;
    if (n.loss_ppm > 0) pair_->network().add(impairment(ImpairmentKind::kLoss, n.loss_ppm));
    if (n.duplicate_ppm > 0) {
      pair::Impairment i = impairment(ImpairmentKind::kDuplicate, n.duplicate_ppm);
      i.max = nanoseconds(4 * n.delay_ns);
      pair_->network().add(i);
    }
    if (n.reorder_ppm > 0) {
      pair::Impairment i = impairment(ImpairmentKind::kReorder, n.reorder_ppm);
      i.max = nanoseconds(n.reorder_ns);
      pair_->network().add(i);
    }
    for (const Dark& d : program_.dark) {
      pair::Impairment i;
      i.kind = ImpairmentKind::kDark;
      i.direction = static_cast<pair::Direction>(d.direction);
      i.plane = d.plane;
      const auto paths = pair_->paths(0);
      if (d.path >= 0) i.port = paths[static_cast<size_t>(d.path) % paths.size()].source_port;
      i.begin = Time{start + d.begin_us * 1'000ll};
      i.end = Time{start + d.end_us * 1'000ll};
      if (d.end_us > kForGood_us) i.end = kNever;
      if (d.end_us > kForGood_us) model_.long_dark = true;
      pair_->network().add(i);
    }
    for (uint32_t i = 0; i < program_.steps.size(); ++i) {
      cursors_[program_.steps[i].side].steps.push_back(i);
    }
    for (uint32_t s = 0; s < 2; ++s) schedule(s, 0);
    finale();
  }
  for (const std::string& wrong : pair_->take_wrong_books()) model_.differ(wrong);
  out_.virtual_ns = pair_->now().ns;
  out_.packets = pair_->packet_events();
  out_.hash = pair_->hash();
  out_.differences = model_.differences();
  out_.trace = std::move(model_.trace);
}

void Runner::make_memory() {
  std::array<uint64_t, 2> written{}, landed{};
  for (const Step& s : program_.steps) {
    const uint64_t room = s.length + 40ull * (s.segments + 1);
    if (is_request(s.kind)) {
      // The target, and for what may have to be posted at the end a receive of that length.
      written[1 - s.side] += room;
      landed[1 - s.side] += room;
      if (s.kind >= StepKind::kRead) landed[s.side] += room;
    }
    if (s.kind == StepKind::kReceive) landed[s.side] += room;
  }
  for (uint32_t s = 0; s < 2; ++s) {
    model_.side(s).written.reset(written[s] + (1u << 16) + 1'024);
    model_.side(s).landed.reset(landed[s] + 1'024);
    model_.side(s).counters.reset(16'384);
    for (int word = 0; word < 2; ++word) model_.side(s).counters.take(8);
    std::memset(model_.side(s).counters.at(0), 0, model_.side(s).counters.size());
    keys_[s].next_counter = Ground::kGap + 64;
  }
}

void Runner::note_region(uint32_t s, const memory::RegionInfo& info) {
  if (keys_[s].live.size() <= info.index) keys_[s].live.resize(info.index + 1);
  keys_[s].live[info.index] = true;
}

void Runner::make_keys(uint32_t s) {
  Keys& k = keys_[s];
  Model::Side& m = model_.side(s);
  memory::Regions& r = pair_->engine(static_cast<int>(s)).regions();
  namespace may = memory::access;
  const uint8_t all = may::kRemoteWrite | may::kRemoteRead | may::kRemoteAtomic;
  const auto add = [&](Ground& ground, uint8_t rights, uint64_t base, memory::Domain domain) {
    const auto info = r.add_at(ground.base(), ground.size(), rights, base, domain);
    MR_ASSERT(info.has_value());
    note_region(s, *info);
    return *info;
  };
  const auto window = [&](const memory::RegionInfo& of, const Ground& ground, uint8_t rights,
                          memory::Domain domain) {
    const auto info = r.add_window(of.index, 0, ground.size(), rights, domain);
    MR_ASSERT(info.has_value());
    note_region(s, *info);
    return *info;
  };
  k.written = add(m.written, may::kRemoteWrite | may::kRemoteRead, 0x1'0000'0000, 1);
  k.counters = add(m.counters, may::kRemoteAtomic, 0x2'0000'0000, 0);
  k.foreign = add(m.written, all, 0x1'0000'0000, 2);
  k.foreign_counters = add(m.counters, all, 0x2'0000'0000, 2);
  const auto quarry =
      r.add_at(Quarry::get().base(), Quarry::kBytes, may::kRemoteRead, 0x3'0000'0000, 0);
  MR_ASSERT(quarry.has_value());
  k.quarry = *quarry;
  k.only_read = window(k.written, m.written, may::kRemoteRead, 1);
  k.only_write = window(k.written, m.written, may::kRemoteWrite, 1);
  k.no_atomics = window(k.counters, m.counters, may::kRemoteRead, 1);
  k.foreign_window = window(k.written, m.written, may::kRemoteWrite | may::kRemoteInvalidate, 2);
  for (uint32_t slot = 0; slot < kMortals + kWindows; ++slot) make_mortal(s, slot);
  k.before = k.newest;
  const Status set =
      pair_->engine(static_cast<int>(s)).set_domain(pair_->connection(static_cast<int>(s)), 1);
  MR_ASSERT(set == Status::kOk);
}

/// A region (slot < kMortals) or window that will end some time.
void Runner::make_mortal(uint32_t s, uint32_t slot) {
  Model::Side& m = model_.side(s);
  memory::Regions& r = pair_->engine(static_cast<int>(s)).regions();
  namespace may = memory::access;
  const uint8_t rights = may::kRemoteWrite | may::kRemoteRead;
  const auto info = slot < kMortals
                        ? r.add_at(m.written.base(), m.written.size(), rights, 0x1'0000'0000, 1)
                        : r.add_window(keys_[s].written.index, 0, m.written.size(),
                                       rights | may::kRemoteInvalidate, 1);
  if (!info) return;
  note_region(s, *info);
  keys_[s].before[slot] = keys_[s].newest[slot];
  keys_[s].newest[slot] = static_cast<uint32_t>(m.mortals.size());
  m.mortals.push_back({.region = info->index, .key = info->key});
}

void Runner::make_streams() {
  for (uint32_t s = 0; s < 2; ++s) {
    engine::Engine& e = pair_->engine(static_cast<int>(s));
    const auto queue = e.create_shared_queue();
    MR_ASSERT(queue.has_value());
    keys_[s].shared_queue = *queue;
    for (uint32_t i = 0; i < program_.streams.size(); ++i) {
      const StreamPlan& plan = program_.streams[i];
      engine::StreamOptions o;
      o.rnr_retry = static_cast<uint8_t>(plan.rnr[s]);
      o.in_order = plan.in_order != 0;
      o.shared_queue = plan.shared[s] != 0 ? *queue : 0;
      const Status status = e.set_stream_options(pair_->connection(static_cast<int>(s)),
                                                 static_cast<uint16_t>(i + 1), o);
      MR_ASSERT(status == Status::kOk);
    }
  }
}

void Runner::listen() {
  pair_->on_completion = [this](int side, const Completion& c) {
    const auto s = static_cast<uint32_t>(side);
    model_.now_ns = pair_->now().ns;
    if (c.status != Status::kOk && (c.id & kReceiveBit) == 0) watch_[s].give_up(c.stream);
    model_.completed(s, c);
  };
  pair_->on_place = [this](int side, const RxPacket& packet, const Placement& p) {
    on_place(static_cast<uint32_t>(side), packet, p);
  };
  pair_->on_packet = [this](int side, const RxPacket& p) {
    watch_[static_cast<size_t>(side)].arrived(p);
  };
  pair_->on_run = [this](int side, const engine::TxRun& run) {
    WireWatch& watch = watch_[static_cast<size_t>(side)];
    watch.sent(run);
    if (model_.tracing) {
      model_.trace += fmt::format("{:9} {} sends {}", pair_->now().ns, side == 0 ? 'a' : 'b',
                                  WireWatch::describe(run));
    }
    if (watch.outstanding() > program_.limits.outstanding) {
      model_.differ(fmt::format("side {} has {} operations outstanding: {}", side,
                                watch.outstanding(), watch.names()));
    }
  };
  pair_->on_pump = [this](int side) {
    const auto s = static_cast<uint32_t>(side);
    model_.now_ns = pair_->now().ns;
    model_.look_at_counters(s);
    // Whose key was ended makes a new one.
    for (uint32_t slot = kMortals; slot < kMortals + kWindows && !keys_[s].over; ++slot) {
      if (model_.side(s).mortals.empty()) break;
      if (model_.side(s).mortals[keys_[s].newest[slot]].dead) make_mortal(s, slot);
    }
  };
}

void Runner::on_place(uint32_t s, const RxPacket& packet, const Placement& p) {
  Model::Side& m = model_.side(s);
  if (p.region != engine::kReceiveBuffer &&
      (p.region >= keys_[s].live.size() || !keys_[s].live[p.region])) {
    model_.differ(fmt::format("bytes placed in region {}, which is no more", p.region));
  }
  engine::for_each_piece(packet.bytes, p, [&](std::byte* to, const std::byte* from, size_t n) {
    if (n == 0 || to == nullptr) return;
    if (!m.written.contains(to, n) && !m.landed.contains(to, n)) {
      return model_.differ("bytes placed outside all memory");
    }
    engine::copy_up(to, from, n);
  });
}

// ---- Steps -------------------------------------------------------------------------------------

void Runner::schedule(uint32_t s, int64_t wait_ns) {
  if (cursors_[s].next == cursors_[s].steps.size()) return;
  pair_->at(pair_->now() + nanoseconds(wait_ns), [this, s] { turn(s); });
}

void Runner::turn(uint32_t s) {
  Cursor& c = cursors_[s];
  model_.now_ns = pair_->now().ns;
  const Step& step = program_.steps[c.steps[c.next]];
  if (pair_->lost(static_cast<int>(s))) {
    model_.side(s).over = keys_[s].over = true;
    c.next = c.steps.size();
    return;
  }
  const uint64_t enough = program_.enough;
  if (enough != 0 && out_.operations >= enough && !is_end(step.kind)) return skip_to_the_end(s);
  if (out_.operations < enough && is_end(step.kind) && is_busy(1 - s)) return schedule(s, 1'000);
  constexpr uint32_t kTries = 400;
  if (step.sync != 0 && model_.waits(s, step.stream) && c.tries < kTries) {
    ++c.tries;
    return schedule(s, 5'000);
  }
  if (execute(step) == Went::kAgain && c.tries < kTries / 10) {
    ++c.tries;
    return schedule(s, 10'000);
  }
  c.tries = 0;
  ++c.next;
  if (c.next < c.steps.size()) schedule(s, program_.steps[c.steps[c.next]].wait_ns);
}

void Runner::skip_to_the_end(uint32_t s) {
  Cursor& c = cursors_[s];
  while (!done(s) && !is_end(program_.steps[c.steps[c.next]].kind)) ++c.next;
  c.tries = 0;
  if (!done(s)) schedule(s, program_.steps[c.steps[c.next]].wait_ns);
}

Runner::Went Runner::execute(const Step& step) {
  const uint32_t s = step.side;
  if (keys_[s].over || model_.side(s).closed) return Went::kDone;
  if (is_request(step.kind)) return post(step);
  const int side = static_cast<int>(s);
  switch (step.kind) {
    case StepKind::kReceive:
      return post_receive(step, step.length);
    case StepKind::kReset:
      if (reopening_[step.stream] == 0) reset(s, step.stream);
      break;
    case StepKind::kDrain:
      if (reopening_[step.stream] != 0) break;
      model_.direction(s, step.stream).draining |= !model_.direction(s, step.stream).failed;
      model_.direction(s, step.stream).drained = true;
      pair_->engine(side).drain_stream(pair_->now(), pair_->connection(side),
                                       static_cast<uint16_t>(step.stream + 1));
      break;
    case StepKind::kReopen:
      reopen(step.stream);
      break;
    case StepKind::kRemove:
      remove(step);
      break;
    case StepKind::kClose:
    case StepKind::kAbort:
      end(s, step.kind == StepKind::kAbort);
      break;
    case StepKind::kDeath: {
      pair::Impairment dark;
      dark.kind = pair::ImpairmentKind::kDark;
      dark.begin = pair_->now();
      model_.long_dark = true;
      pair_->network().add(dark);
      break;
    }
    default:
      break;
  }
  pair_->poll(side);
  return Went::kDone;
}

void Runner::reset(uint32_t s, uint32_t stream) {
  const int side = static_cast<int>(s);
  if (model_.tracing) {
    model_.trace +=
        fmt::format("{:9} {} resets stream {}\n", pair_->now().ns, s == 0 ? 'a' : 'b', stream + 1);
  }
  model_.direction(s, stream).reset_here = true;
  model_.direction(1 - s, stream).reset_there = true;
  pair_->engine(side).reset_stream(pair_->now(), pair_->connection(side),
                                   static_cast<uint16_t>(stream + 1));
  pair_->poll(side);
}

void Runner::reopen(uint32_t stream) {
  if (reopening_[stream] != 0) return;
  reopening_[stream] = 1;
  for (uint32_t s = 0; s < 2; ++s) reset(s, stream);
  try_reopen(stream, 0);
}

void Runner::try_reopen(uint32_t stream, uint32_t tries) {
  model_.now_ns = pair_->now().ns;
  if (keys_[0].over || keys_[1].over || model_.side(0).closed || model_.side(1).closed) return;
  if (pair_->lost(0) || pair_->lost(1)) return;
  uint32_t ready = 0;
  for (uint32_t s = 0; s < 2; ++s) {
    const auto bit = 2u << s;
    if ((reopening_[stream] & bit) != 0) {
      ++ready;
      continue;
    }
    const int side = static_cast<int>(s);
    const Status status = pair_->engine(side).reopen_stream(pair_->connection(side),
                                                            static_cast<uint16_t>(stream + 1));
    if (status != Status::kOk) continue;
    reopening_[stream] |= bit;
    ++ready;
  }
  if (ready == 2) {
    for (uint32_t s = 0; s < 2; ++s) watch_[s].forget(static_cast<uint16_t>(stream + 1));
    model_.reopened(stream);
    reopening_[stream] = 0;
    return;
  }
  if (tries > 20'000) return model_.differ(fmt::format("stream {} never opens again", stream + 1));
  pair_->at(pair_->now() + microseconds(20),
            [this, stream, tries] { try_reopen(stream, tries + 1); });
}

void Runner::remove(const Step& step) {
  const uint32_t s = step.side;
  const uint32_t slot = step.variant % kMortals;
  Mortal& mortal = model_.side(s).mortals[keys_[s].newest[slot]];
  const Status status = pair_->engine(static_cast<int>(s)).regions().remove(mortal.region);
  if (status != Status::kOk) return model_.differ("a region cannot be removed");
  mortal.dead = mortal.removed = true;
  keys_[s].live[mortal.region] = false;
  make_mortal(s, slot);
}

void Runner::end(uint32_t s, bool abort) {
  const int side = static_cast<int>(s);
  model_.side(s).closed = true;
  model_.side(s).aborted = abort;
  pair_->engine(side).close(pair_->now(), pair_->connection(side),
                            abort ? wire::close_code::kApplication : wire::close_code::kNormal);
  pair_->poll(side);
}

// ---- The end -----------------------------------------------------------------------------------

bool Runner::done(uint32_t s) const { return cursors_[s].next >= cursors_[s].steps.size(); }

/// Has the side steps to take before its ends?
bool Runner::is_busy(uint32_t s) const {
  return !done(s) && !is_end(program_.steps[cursors_[s].steps[cursors_[s].next]].kind);
}

bool Runner::steps_done() const { return done(0) && done(1); }

bool Runner::settled() {
  if (!steps_done()) return false;
  for (uint32_t s = 0; s < 2; ++s) {
    if (model_.side(s).closed || model_.side(s).over) return false;
    for (const uint32_t r : reopening_) {
      if (r != 0) return false;
    }
  }
  return model_.all_quiet() && pair_->engine(0).idle() && pair_->engine(1).idle();
}

void Runner::finale() {
  const auto lost = [this] { return pair_->lost(0) || pair_->lost(1); };
  bool rescuing = false;
  const auto done = [&] { return lost() || settled(); };
  const int64_t limit = 600'000'000;
  int64_t end = pair_->now().ns + limit;
  while (!done() && pair_->now().ns < end && !pair_->stuck()) {
    pair_->run_until(done, microseconds(rescuing ? 50 : 20));
    if (!rescuing && steps_done()) end = pair_->now().ns + limit / 2;
    rescuing = steps_done();
    if (rescuing && !done()) rescue();
  }
  model_.now_ns = pair_->now().ns;
  if (pair_->stuck()) model_.differ("deadlines without end");
  if (!lost() && !settled()) {
    std::string open;
    for (uint32_t s = 0; s < 2; ++s) {
      engine::ConnectionStatus status;
      const int side = static_cast<int>(s);
      if (pair_->engine(side).connection_status(pair_->connection(side), status)) {
        open += fmt::format("; side {} waits for {}, {} bytes wait, {} packets in flight", s,
                            engine::to_string(status.stall), status.bytes_waiting,
                            status.in_flight_packets);
      }
      open += fmt::format(
          "; side {}: {} shared receives open, {} in the queue", s, model_.side(s).open_shared,
          pair_->engine(static_cast<int>(s)).shared_queue_length(keys_[s].shared_queue));
    }
    model_.differ("not everything ended" + open);
    model_.settle_silent();
    return;
  }
  if (!lost()) {
    model_.settle_silent();
    // A RESET may be under way, through a network that is dark.
    pair_->run_until([&] { return lost() || pools_empty(); }, milliseconds(50));
    if (!lost() && !model_.long_dark) check_pools("at rest");
    model_.side(0).closed = true;
    pair_->engine(0).close(pair_->now(), pair_->connection(0), wire::close_code::kNormal);
    pair_->poll(0);
  }
  pair_->run_until([this] { return pair_->lost(0) && pair_->lost(1); }, milliseconds(300));
  for (uint32_t s = 0; s < 2; ++s) model_.side(s).over = true;
  if (!pair_->lost(0) || !pair_->lost(1)) model_.differ("the connection does not end");
  pair_->run_for(microseconds(10));
  check_ended();
  check_pools("at the end");
  model_.check_image();
}

/// After the end every request has ended; silently only what succeeded before it.
void Runner::check_ended() {
  for (uint32_t s = 0; s < 2; ++s) {
    for (uint32_t i = 0; i < program_.streams.size(); ++i) {
      Direction& d = model_.direction(s, i);
      for (; d.head < d.posts.size(); ++d.head) {
        Request& r = model_.request(s, d.posts[d.head]);
        if (r.step.unsignalled != 0 && !d.failed) continue;
        model_.differ(fmt::format("step {} never ended", r.step.id));
      }
    }
    uint32_t waiting = 0;
    for (const Receive& r : model_.side(s).receives) waiting += !r.done;
    const uint32_t left =
        pair_->engine(static_cast<int>(s)).shared_queue_length(keys_[s].shared_queue);
    if (waiting != left) {
      model_.differ(fmt::format("{} receives of side {} without completion, {} in its queue",
                                waiting, s, left));
    }
  }
}

bool Runner::pools_empty() {
  for (int s = 0; s < 2; ++s) {
    const engine::EnginePools p = pair_->engine(s).memory().pools;
    if (p.responses + p.open_messages + p.requests + p.parked > 0) return false;
  }
  return true;
}

void Runner::check_pools(const char* when) {
  for (uint32_t s = 0; s < 2; ++s) {
    const engine::EnginePools p = pair_->engine(static_cast<int>(s)).memory().pools;
    const uint32_t used[] = {p.requests, p.responses, p.parked,     p.retries,
                             p.claims,   p.copies,    p.send_lists, p.open_messages};
    static constexpr const char* kNames[] = {"requests",   "responses",    "parked",
                                             "retries",    "claims",       "copies",
                                             "send lists", "open messages"};
    for (size_t i = 0; i < std::size(used); ++i) {
      if (used[i] == 0) continue;
      model_.differ(fmt::format("{} {} in use {} at side {}", used[i], kNames[i], when, s));
    }
    if (p.receives != model_.side(s).open_receives ||
        p.receive_lists != model_.side(s).receive_lists) {
      model_.differ(fmt::format("{} receives and {} lists in use {} at side {}, {} and {} posted",
                                p.receives, p.receive_lists, when, s, model_.side(s).open_receives,
                                model_.side(s).receive_lists));
    }
  }
}

void Runner::rescue() {
  if (!steps_done()) return;
  for (uint32_t s = 0; s < 2; ++s) {
    if (model_.side(s).closed || pair_->lost(static_cast<int>(s))) return;
  }
  for (uint32_t s = 0; s < 2; ++s) {
    for (uint32_t i = 0; i < program_.streams.size(); ++i) rescue_stream(s, i);
  }
}

/// Side `s` posts what a message of the stream waits for.
void Runner::rescue_stream(uint32_t s, uint32_t stream) {
  const Direction& d = model_.direction(1 - s, stream);
  if (d.failed || d.flushed || d.reset_here || d.reset_there || reopening_[stream] != 0) return;
  Step step;
  step.side = s;
  step.stream = stream;
  step.kind = StepKind::kReceive;
  step.id = 1'000'000;
  if (program_.streams[stream].shared[s] == 0) {
    if (d.receives.size() >= d.consuming.size()) return;
    post_receive(step, model_.request(1 - s, d.consuming[d.receives.size()]).length);
    return;
  }
  const auto waiting = std::find_if(d.consuming.begin(), d.consuming.end(),
                                    [&](uint32_t m) { return !model_.request(1 - s, m).received; });
  // A new one for each that ended, and no other: the last receive must never go to a message that
  // waits for another one (MR-MSG-027).
  Keys& keys = keys_[s];
  const Model::Side& side = model_.side(s);
  if (!keys.replacing) keys.replaced = side.shared_done - 1;  // what ended before had none
  keys.replacing = true;
  if (waiting == d.consuming.end()) return;
  if (side.open_shared > 0 && side.shared_done == keys.replaced) return;
  if (side.open_shared > 0) ++keys.replaced;
  uint32_t longest = 0;
  for (auto m = waiting; m != d.consuming.end(); ++m) {
    longest = std::max(longest, model_.request(1 - s, *m).length);
  }
  post_receive(step, longest);
}

}  // namespace metaroce::oracle
