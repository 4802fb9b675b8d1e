#include "driver/common/fault_injector.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"

namespace metaroce::driver {
namespace {

uint8_t path_of(const RawPacket& packet) {
  return packet.bytes.size() > 2 ? static_cast<uint8_t>(packet.bytes[2]) : 0;
}

// Losses first, then copies, then changes: a lost packet counts as nothing else, and the copy of a
// corrupted one is whole, so that the numbers of the tally can be compared with a receiver's.
int stage_of(FaultKind kind) {
  if (kind == FaultKind::kDrop || kind == FaultKind::kBlackhole) return 0;
  return kind == FaultKind::kDuplicate ? 1 : 2;
}

}  // namespace

FaultInjector::FaultInjector(const FaultSpec& spec, Direction direction, Time start)
    : start_(start) {
  const Rng root(spec.seed);
  const bool receive = direction == Direction::kReceive;
  for (int stage = 0; stage < 3; ++stage) {
    for (size_t i = 0; i < spec.rules.size(); ++i) {
      const FaultRule& rule = spec.rules[i];
      const auto bits = static_cast<uint8_t>(rule.direction) & static_cast<uint8_t>(direction);
      if (bits == 0 || stage_of(rule.kind) != stage) continue;
      rngs_.push_back(root.fork(receive ? "faults received" : "faults sent", i));
      rules_.push_back(rule);
    }
  }
}

bool FaultInjector::later(const std::unique_ptr<Held>& a, const std::unique_ptr<Held>& b) {
  return a->when != b->when ? a->when > b->when : a->order > b->order;
}

void FaultInjector::count(FaultKind kind, uint8_t path, uint8_t plane, Time now) {
  const auto k = static_cast<size_t>(kind);
  ++tally_.total[k];
  ++tally_.path[path][k];
  if (plane < kMaxPlanes) ++tally_.plane[plane][k];
  if (kind == FaultKind::kDrop || kind == FaultKind::kBlackhole) {
    tally_.first_drop = earlier(tally_.first_drop, now);
    tally_.last_drop = now;
  }
}

void FaultInjector::hold(Time when, const RawPacket& packet) {
  std::unique_ptr<Held> held;
  if (free_.empty()) {
    held = std::make_unique<Held>();
  } else {
    held = std::move(free_.back());
    free_.pop_back();
  }
  held->when = when;
  held->order = order_++;
  held->packet = packet;
  held->storage.assign(packet.bytes.begin(), packet.bytes.end());
  held->packet.bytes = held->storage;
  held_.push_back(std::move(held));
  std::push_heap(held_.begin(), held_.end(), later);
}

bool FaultInjector::matches(const FaultRule& rule, uint8_t path, uint8_t plane, Duration since) {
  return since >= rule.from && since < rule.to && (rule.plane < 0 || rule.plane == plane) &&
         (rule.path < 0 || rule.path == path);
}

FaultInjector::Verdict FaultInjector::apply(Time now, RawPacket& packet) {
  ++tally_.seen;
  const uint8_t path = path_of(packet);
  if (packet.plane < 32 && (dark_ >> packet.plane & 1) != 0) {
    count(FaultKind::kBlackhole, path, packet.plane, now);
    return Verdict::kGone;
  }
  Duration wait{};
  bool late = false;
  for (size_t i = 0; i < rules_.size(); ++i) {
    const FaultRule& rule = rules_[i];
    Rng& rng = rngs_[i];
    if (!matches(rule, path, packet.plane, now - start_) || !rng.chance(rule.chance)) continue;
    const auto span = static_cast<uint64_t>(rule.hold_max.ns - rule.hold_min.ns);
    const Duration time = rule.hold_min + Duration{static_cast<int64_t>(rng.below(span + 1))};
    switch (rule.kind) {
      case FaultKind::kDrop:
      case FaultKind::kBlackhole:
        count(rule.kind, path, packet.plane, now);
        return Verdict::kGone;
      case FaultKind::kDuplicate:
        hold(now + time, packet);
        break;
      case FaultKind::kDelay:
      case FaultKind::kReorder:
        wait += time;
        late = true;
        break;
      case FaultKind::kCorrupt:
        if (!packet.bytes.empty()) {
          const uint64_t bit = rng.below(packet.bytes.size() * 8);
          packet.bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
        }
        break;
      case FaultKind::kMark:
        packet.ecn = Ecn::kCe;
        break;
      case FaultKind::kCount:
        break;
    }
    count(rule.kind, path, packet.plane, now);
  }
  if (!late) return Verdict::kPass;
  hold(now + wait, packet);
  return Verdict::kGone;
}

bool FaultInjector::release(Time now, RawPacket& out) {
  if (held_.empty() || held_.front()->when > now) return false;
  std::pop_heap(held_.begin(), held_.end(), later);
  out = held_.back()->packet;
  given_.push_back(std::move(held_.back()));
  held_.pop_back();
  return true;
}

void FaultInjector::recycle() {
  for (auto& held : given_) free_.push_back(std::move(held));
  given_.clear();
}

Time FaultInjector::next_release() const { return held_.empty() ? kNever : held_.front()->when; }

void FaultInjector::set_plane_dark(uint8_t plane, bool dark) {
  MR_ASSERT(plane < kMaxPlanes);
  dark_ = dark ? dark_ | 1u << plane : dark_ & ~(1u << plane);
}

}  // namespace metaroce::driver
