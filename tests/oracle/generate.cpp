// Programs drawn from a seed.
#include <algorithm>

#include "base/rng.h"
#include "tests/oracle/program.h"

namespace metaroce::oracle {

namespace {

constexpr uint32_t kEnough = 205;    // requests that are posted
constexpr uint32_t kRequests = 600;  // at most: those of a stream that failed are not posted

uint32_t between(Rng& rng, uint32_t low, uint32_t high) {
  return low + static_cast<uint32_t>(rng.below(uint64_t{high} - low + 1));
}
bool one_in(Rng& rng, uint64_t n) { return rng.below(n) == 0; }

class Generator {
 public:
  explicit Generator(uint64_t seed) : rng_(Rng(seed).fork("program")) { p_.seed = seed; }

  Program make() {
    p_.enough = kEnough;
    network();
    limits();
    streams();
    steps();
    return std::move(p_);
  }

 private:
  void network() {
    NetPlan& n = p_.net;
    n.planes = one_in(rng_, 4) ? 2 : 1;
    n.paths = between(rng_, 1, 3);
    n.mtu = one_in(rng_, 3) ? 4'500 : 1'500;
    n.delay_ns = 1'000 * between(rng_, 1, 10);
    n.rate_mbps = one_in(rng_, 4) ? 5'000 : 50'000;
    if (one_in(rng_, 3)) n.spread_ns = n.delay_ns;
    const uint32_t losses[] = {0, 0, 10'000, 50'000, 150'000};
    n.loss_ppm = losses[rng_.below(5)];
    if (one_in(rng_, 3)) n.duplicate_ppm = between(rng_, 10'000, 200'000);
    if (one_in(rng_, 2)) n.reorder_ppm = between(rng_, 10'000, 400'000);
    n.reorder_ns = n.delay_ns * between(rng_, 1, 6);
    if (one_in(rng_, 5)) {
      Dark d;
      d.plane = n.planes > 1 && one_in(rng_, 2) ? static_cast<int32_t>(rng_.below(2)) : -1;
      if (d.plane < 0 && one_in(rng_, 2)) d.path = static_cast<int32_t>(rng_.below(n.paths));
      d.direction = between(rng_, 0, 2);
      d.begin_us = between(rng_, 10, 300);
      d.end_us = d.begin_us + between(rng_, 20, 2'000);
      p_.dark.push_back(d);
    }
  }

  void limits() {
    Limits& l = p_.limits;
    if (one_in(rng_, 2)) l.outstanding = between(rng_, 1, 8);
    if (one_in(rng_, 3)) l.span = between(rng_, 2, 12);
    if (one_in(rng_, 3)) l.pending = 8;
    if (one_in(rng_, 3)) l.responses = 16;
    if (one_in(rng_, 3)) l.open_messages = 16;
    if (one_in(rng_, 4)) l.sends = between(rng_, 16, 64);
    if (one_in(rng_, 4)) l.segment_lists = 16;
    if (one_in(rng_, 4)) l.copies = 16;
  }

  void streams() {
    const uint32_t n = between(rng_, 2, 6);
    for (uint32_t i = 0; i < n; ++i) {
      StreamPlan s;
      s.in_order = one_in(rng_, 8);
      for (uint32_t side = 0; side < 2; ++side) {
        s.shared[side] = one_in(rng_, 3);
        if (one_in(rng_, 4)) s.rnr[side] = between(rng_, 0, 6);
      }
      p_.streams.push_back(s);
    }
  }

  uint32_t length() {
    const uint32_t payload = p_.net.mtu - 140;
    switch (rng_.below(10)) {
      case 0:
        return 0;
      case 1:
      case 2:
        return between(rng_, 1, 16);
      case 3:
        return between(rng_, 200, 260);
      case 4:
        return 1'024 * between(rng_, 1, 4);
      case 5:
        return between(rng_, payload, payload + 140);
      case 6:
        return between(rng_, 1, 6 * payload);
      default:
        return between(rng_, 1, 1'000);
    }
  }

  Step request(uint32_t side) {
    static constexpr StepKind kKinds[] = {
        StepKind::kWrite,  StepKind::kWrite,    StepKind::kWrite,    StepKind::kWriteImm,
        StepKind::kSend,   StepKind::kSend,     StepKind::kSendImm,  StepKind::kRead,
        StepKind::kRead,   StepKind::kFetchAdd, StepKind::kFetchAdd, StepKind::kCompareSwap,
        StepKind::kSendInv};
    Step s = step(side, kKinds[rng_.below(std::size(kKinds))]);
    if (s.kind == StepKind::kSendInv && one_in(rng_, 2)) s.kind = StepKind::kSend;
    s.length = length();
    if (s.kind == StepKind::kFetchAdd || s.kind == StepKind::kCompareSwap) s.length = 8;
    s.segments = one_in(rng_, 3) ? between(rng_, 2, 16) : 1;
    s.copied = s.length <= 256 && one_in(rng_, 4);
    s.unsignalled = one_in(rng_, 4);
    s.fence = one_in(rng_, 6);
    s.unordered = !p_.streams[s.stream].in_order && one_in(rng_, 8);
    s.solicited = one_in(rng_, 6);
    s.sync = one_in(rng_, 12);
    s.variant = rng_.next32();
    if (faulty_ && one_in(rng_, 8) && s.kind <= StepKind::kCompareSwap) {
      s.fault = one_in(rng_, 2) ? Fault::kMortal : Fault::kWindow;
    }
    // A Write through a window, and behind it on the stream the end of the window.
    if (faulty_ && s.kind == StepKind::kSendInv && !p_.steps.empty() && one_in(rng_, 2)) {
      Step write = s;
      write.id = ++ids_;
      write.kind = StepKind::kWrite;
      write.fault = Fault::kWindow;
      write.unordered = write.copied = 0;
      p_.steps.push_back(write);
      s.sync = s.wait_ns = 0;
      s.length = std::min(s.length, 64u);
    }
    return s;
  }

  Step step(uint32_t side, StepKind kind) {
    Step s;
    s.id = ++ids_;
    s.side = side;
    s.kind = kind;
    s.stream = static_cast<uint32_t>(rng_.below(p_.streams.size()));
    const uint32_t burst = between(rng_, 0, 2);
    s.wait_ns = burst == 0 ? 0 : burst == 1 ? between(rng_, 0, 1'000) : between(rng_, 0, 6'000);
    return s;
  }

  /// The receive that a request will take, a little earlier or later in the list.
  void receive_for(const Step& request) {
    Step s = step(1 - request.side, StepKind::kReceive);
    s.stream = request.stream;
    s.wait_ns = one_in(rng_, 4) ? between(rng_, 0, 2'000) : 0;
    s.segments = one_in(rng_, 4) ? between(rng_, 2, 16) : 1;
    s.length = 6 * p_.net.mtu;
    if (rng_.below(3) != 0) s.length = std::max(request.length, between(rng_, 0, 4'000));
    if (faulty_ && one_in(rng_, 40)) s.length = request.length / 2;
    if (faulty_ && one_in(rng_, 25)) return;  // forgotten
    const size_t n = p_.steps.size();
    const size_t back = std::min<size_t>(n, between(rng_, 0, 30));
    const bool late = one_in(rng_, 4);
    if (late) {
      late_.push_back(s);
    } else {
      p_.steps.insert(p_.steps.begin() + static_cast<std::ptrdiff_t>(n - back), s);
    }
  }

  void trouble(uint32_t side) {
    static constexpr StepKind kKinds[] = {StepKind::kReset, StepKind::kDrain, StepKind::kRemove,
                                          StepKind::kRemove};
    if (rng_.below(11) < 5) {
      Step s = request(side);
      s.fault = static_cast<Fault>(between(rng_, 1, static_cast<uint32_t>(Fault::kCount) - 1));
      push(s);
    } else {
      p_.steps.push_back(step(side, kKinds[rng_.below(std::size(kKinds))]));
    }
  }

  /// How it ends while much is under way; without one, everything is waited for.
  void ends() {
    if (one_in(rng_, 40)) p_.steps.push_back(step(0, StepKind::kDeath));
    if (!faulty_ || !one_in(rng_, 4)) return;
    for (const uint32_t side : {0u, 1u}) {
      if (side == 1 && !one_in(rng_, 3)) break;  // seldom both
      p_.steps.push_back(
          step(rng_.next32() % 2, one_in(rng_, 2) ? StepKind::kClose : StepKind::kAbort));
    }
  }

  void push(const Step& s) {
    p_.steps.push_back(s);
    const bool consumes = s.kind == StepKind::kSend || s.kind == StepKind::kSendImm ||
                          s.kind == StepKind::kSendInv || s.kind == StepKind::kWriteImm;
    if (consumes) receive_for(s);
    if (late_.size() > 6) {
      p_.steps.push_back(late_.front());
      late_.erase(late_.begin());
    }
  }

  void steps() {
    faulty_ = rng_.below(3) != 0;
    const uint32_t troubles = faulty_ ? between(rng_, 1, 6) : 0;
    const bool one_way = one_in(rng_, 4);
    for (uint32_t i = 0; i < kRequests; ++i) {
      const auto side = static_cast<uint32_t>(one_way ? 0 : rng_.below(2));
      // More of it towards the end: nothing comes after that would hide what it does.
      if (troubles > 0 && rng_.below(kEnough) < troubles + (i > 170 ? 8 : 0)) {
        trouble(side);
        if (one_in(rng_, 2)) reopens_ = between(rng_, 5, 40);
      }
      // Streams that stay closed would leave the program short of requests.
      if (faulty_ && reopens_ == 0 && i > kEnough) reopens_ = 30;
      if (reopens_ > 0 && --reopens_ == 0) {
        for (uint32_t k = 0; k < p_.streams.size(); ++k) {
          Step s = step(side, StepKind::kReopen);
          s.stream = k;
          if (i > kEnough || rng_.below(3) != 0) p_.steps.push_back(s);
        }
      }
      push(request(side));
    }
    for (const Step& s : late_) p_.steps.push_back(s);
    ends();
  }

  Rng rng_;
  Program p_;
  std::vector<Step> late_;
  uint32_t ids_ = 0;
  uint32_t reopens_ = 0;
  bool faulty_ = false;
};

}  // namespace

Program last_receive_program(uint64_t seed) {
  Rng rng = Rng(seed).fork("last receive");
  Program p;
  p.seed = seed;
  p.net.paths = 4;
  p.net.delay_ns = 2'000;
  p.net.reorder_ppm = 500'000;
  p.net.reorder_ns = 20'000;
  if (one_in(rng, 2)) p.net.loss_ppm = 50'000;
  p.streams.resize(3);
  for (StreamPlan& s : p.streams) s.shared = {1, 1};
  for (uint32_t i = 0; i < 30; ++i) {
    Step s;
    s.id = i + 1;
    s.kind = one_in(rng, 3) ? StepKind::kSendImm : StepKind::kSend;
    s.stream = static_cast<uint32_t>(rng.below(p.streams.size()));
    s.length = one_in(rng, 2) ? between(rng, 0, 100) : between(rng, 1'000, 4'000);
    p.steps.push_back(s);
    if (!one_in(rng, 8)) continue;
    s.id = 100 + i;
    s.kind = StepKind::kReceive;
    s.side = 1;
    s.length = 4'000;
    p.steps.push_back(s);
  }
  return p;
}

Program random_program(uint64_t seed) { return Generator(seed).make(); }

}  // namespace metaroce::oracle
