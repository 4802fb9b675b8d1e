// Paths and planes: opening and validating paths, packet sizes, verdicts, PORT_STATUS.
#include <algorithm>

#include "connection/connection.h"

namespace metaroce::connection {
namespace {

constexpr uint16_t kSizes[] = {65535, 9000, 4352, 1500, 1280};  // IP sizes worth trying
constexpr uint32_t kTries = 3;
constexpr uint32_t kUdpHeader = 8;

uint32_t ip_header(const SocketAddress& a) { return a.family == 6 ? 40 : 20; }

}  // namespace

uint16_t Connection::take_port() {
  // Ports of the dynamic range above the usual ephemeral ones would collide least; the driver
  // replaces one that is taken, nothing is identified by it (MR-ADDR-003).
  if (shared_.next_port != 0) return static_cast<uint16_t>(shared_.next_port++);
  return static_cast<uint16_t>(33000 + shared_.rng.below(27000));
}

uint32_t Connection::payload_for(uint8_t plane, uint16_t pmtu) const {
  const uint32_t overhead = ip_header(shared_.local[plane]) + kUdpHeader +
                            static_cast<uint32_t>(wire::kMaxPayloadHeader) + trailer_bytes();
  const uint32_t room = pmtu > overhead ? pmtu - overhead : 0;
  return std::min(room, shared_.settings.max_payload) & ~15u;  // MR-PMTU-001
}

uint16_t Connection::pmtu_target(uint8_t plane) const {
  const uint32_t needed = ip_header(shared_.local[plane]) + kUdpHeader +
                          static_cast<uint32_t>(wire::kMaxPayloadHeader + wire::kTagBytes) +
                          shared_.settings.max_payload;
  return static_cast<uint16_t>(std::min<uint32_t>(
      {shared_.plane_mtu[plane], std::max<uint16_t>(peer_pmtu_, 1280), needed, 65535}));
}

uint16_t Connection::next_lower(uint8_t plane, uint16_t size) const {
  const uint16_t target = pmtu_target(plane);
  if (size > target) return target;
  for (const uint16_t s : kSizes) {
    if (s < size) return s;
  }
  return 576;
}

void Connection::open_other_paths() {
  const uint32_t per_plane = shared_.settings.paths_per_plane;
  for (uint32_t i = per_plane; i < tx_paths_; ++i) {
    const auto plane = static_cast<uint8_t>((setup_plane_ + i / per_plane) % planes_);
    PathSlot& slot = *paths_[i];
    if (peer_[plane].family == 0 || peer_[plane].family != shared_.local[plane].family) continue;
    // One after the other: compilers differ in the order of arguments, and a run is a seed.
    const uint32_t start = shared_.rng.next32();
    const uint16_t port = take_port();
    slot.tx.open(static_cast<uint8_t>(i), plane, start, port, path::State::kOpening, setup_rtt_);
    slot.tx.generation = 1;
    open_sealing(slot, start);
    note_change(slot, PathChange::kOpened);
  }
  next_open_ = per_plane;
  open_waiting_paths();
}

void Connection::open_waiting_paths() {
  survey_due_ = true;
  for (; next_open_ < tx_paths_; ++next_open_) {
    PathSlot& slot = *paths_[next_open_];
    if (slot.tx.state() != path::State::kOpening) continue;
    if (!has_control_slot()) {
      // Goes on when one of ours is free; other connections may hold the engine's.
      if (controls_used_ == 0) retry_at_ = current_time_ + milliseconds(1);
      return;
    }
    const uint8_t plane = slot.tx.plane;
    wire::ControlPacket open;
    open.opcode = wire::ControlOpcode::kPathOpen;
    open.path = slot.tx.id;
    open.plane = plane;
    open.generation = slot.tx.generation;
    open.start = slot.tx.next_seq();
    open.address[0] = shared_.local[plane];
    open.address[1] = peer_[plane];
    queue_control(open, kControlList);  // MR-PATH-040
  }
}

void Connection::start_pmtu_search(Time now, PathSlot& slot, uint16_t goal, bool verify) {
  survey_due_ = true;
  slot.pmtu_goal = goal;
  slot.pmtu_tries = 0;
  slot.pmtu_search = verify || goal > slot.tx.pmtu;
  slot.pmtu_verify = verify;
  slot.pmtu_due = slot.pmtu_search && slot.tx.state() == path::State::kGood;
  slot.pmtu_at = slot.pmtu_due ? now : kNever;
}

void Connection::stop_pmtu_search(PathSlot& slot) {
  survey_due_ = true;
  slot.pmtu_search = slot.pmtu_verify = slot.pmtu_due = false;
  slot.pmtu_at = kNever;
}

void Connection::on_padded_acked(Time now, PathSlot& slot, uint16_t ip_size) {
  survey_due_ = true;
  const bool fell = slot.pmtu_verify && ip_size < slot.tx.pmtu;
  if (slot.tx.pmtu < ip_size || fell) {
    shared_.telemetry.emit(EventKind::pmtu_changed, handle_, slot.tx.id, slot.tx.pmtu, ip_size);
    slot.tx.pmtu = ip_size;
    payload_dirty_ = true;
  }
  if (fell) {
    ++slot.tx.counters->mtu_fallback;
    raise_pmtu_at_ = earlier(raise_pmtu_at_, now + seconds(10));
  }
  slot.big_losses = 0;
  if (slot.tx.state() == path::State::kValidating) {  // MR-PATH-042
    slot.tx.become_good(false);
    note_change(slot, PathChange::kValidated);
    after_state_change(slot);
  }
  if (ip_size >= slot.pmtu_goal) {
    slot.pmtu_search = slot.pmtu_verify = slot.pmtu_due = false;
    slot.pmtu_at = kNever;
    check_paths_open();
  }
  if (ip_size < pmtu_target(slot.tx.plane)) {
    raise_pmtu_at_ = earlier(raise_pmtu_at_, now + seconds(10));
  }
}

void Connection::on_padded_lost(PathSlot& slot) {
  survey_due_ = true;
  if (!slot.pmtu_search) return;
  slot.pmtu_due = slot.tx.state() == path::State::kGood;
  // Where much is lost anyway, three lost probes prove nothing.
  if (++slot.pmtu_tries < std::max(kTries, slot.tx.verdict_count() / 2)) return;
  slot.pmtu_tries = 0;
  const uint16_t lower = next_lower(slot.tx.plane, slot.pmtu_goal);
  if (slot.pmtu_verify || lower > slot.tx.pmtu) {
    // Below 1,280 there is nothing to fall back to: the smallest is tried again and again.
    if (lower >= 1280) slot.pmtu_goal = lower;
    return;
  }
  slot.pmtu_search = slot.pmtu_due = false;
  slot.pmtu_at = kNever;
  check_paths_open();
  raise_pmtu_at_ = earlier(raise_pmtu_at_, current_time_ + seconds(10));
}

void Connection::on_too_big(Time now, PathSlot& slot, uint32_t reported) {
  const uint16_t asked = slot.pmtu_search ? slot.pmtu_goal : slot.tx.pmtu;
  const uint16_t lower = reported >= 1280 && reported < asked ? static_cast<uint16_t>(reported)
                                                              : next_lower(slot.tx.plane, asked);
  if (lower > slot.tx.pmtu) {  // only the search asked for too much
    start_pmtu_search(now, slot, lower, false);
  } else if (!slot.pmtu_verify || lower < slot.pmtu_goal) {
    start_pmtu_search(now, slot, std::max<uint16_t>(lower, 1280), true);
  }
}

void Connection::update_payload() {
  payload_dirty_ = false;
  uint32_t smallest = shared_.settings.max_payload;
  bool any = false;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    const path::PathSender& tx = paths_[i]->tx;
    if (tx.pmtu == 0 || (tx.state() != path::State::kGood && tx.state() != path::State::kSuspect)) {
      continue;
    }
    any = true;
    smallest = std::min(smallest, payload_for(tx.plane, tx.pmtu));  // MR-PMTU-002
  }
  if (!any || smallest == payload_) return;
  const bool shrinks = smallest < payload_;
  payload_ = smallest;
  if (shrinks) recut_large();
}

void Connection::recut_large() {
  // MR-PMTU-007: void first, cut again only what was refused.
  for (uint32_t c = window_->lowest_undecided(); c != window_->next(); ++c) {
    SendEntry& e = window_->at(c);
    if (e.state != SendEntry::State::kUndecided || e.control || e.voided) continue;
    if (e.fragment.length <= payload_) continue;
    e.voided = true;  // MR-CPSN-023
    ++counters_.voids;
    if (e.list == kNoList) queue_repair(c, e, kAnyList);
  }
}

uint32_t Connection::active_paths() const {
  uint32_t n = 0;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    const path::State s = paths_[i]->tx.state();
    n += s == path::State::kGood || s == path::State::kSuspect;
  }
  return n;
}

void Connection::verdict(Time now, PathSlot& slot) {
  path::PathSender& tx = slot.tx;
  if (tx.state() != path::State::kSuspect) return;
  uint32_t k = tx.verdict_count();
  if (verdict_at_ != kNever) k = std::min(k, 3u);  // MR-HEALTH-014
  bool dead = tx.unanswered() >= k;
  if (!dead && tx.unanswered() >= 2) {
    // MR-HEALTH-006: another plane answers, nothing of this one does.
    bool other = false;
    bool same = false;
    for (uint32_t i = 0; i < tx_paths_; ++i) {
      const path::PathSender& p = paths_[i]->tx;
      if (p.answered_at() <= tx.first_unanswered_at() || !p.is_good()) continue;
      (p.plane == tx.plane ? same : other) = true;
    }
    dead = other && !same;
  }
  // MR-HEALTH-007: the last ones are never given up.
  if (dead && active_paths() > shared_.settings.min_active_paths) {
    declare_dead(now, slot, PathChange::kUnanswered);
  }
}

void Connection::declare_dead(Time now, PathSlot& slot, PathChange reason) {
  current_time_ = now;
  slot.tx.become_dead(now, *this);
  note_change(slot, reason);
  after_state_change(slot);
}

void Connection::after_state_change(PathSlot& slot) {
  survey_due_ = true;
  payload_dirty_ = true;
  tell_path_state(slot);
  if (slot.tx.is_good()) {
    if (slot.pmtu_search) slot.pmtu_due = true;
  } else {
    while (slot.repair.size > 0) {  // what only this path would have repaired goes elsewhere
      const uint32_t cpsn = slot.repair.head;
      unqueue(cpsn, window_->at(cpsn));
      queue_repair(cpsn, window_->at(cpsn), kAnyList);
    }
  }
  check_paths_open();
}

void Connection::check_paths_open() {
  if (paths_open_told_ || state_ != ConnectionState::kOpen) return;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    const path::State s = paths_[i]->tx.state();
    if (s == path::State::kOpening) return;
    // A plane that does not answer must not keep the others waiting for ever.
    if (s == path::State::kValidating && paths_[i]->tx.unanswered() < 10) return;
    if (s == path::State::kGood && paths_[i]->pmtu_search) return;
  }
  paths_open_told_ = true;
  event(ConnectionEventKind::kPathsOpen, Status::kOk);
}

void Connection::on_plane_state(Time now, uint8_t plane, bool up) {
  survey_due_ = true;
  if (state_ != ConnectionState::kOpen) return;
  wake();
  if (up) {
    probe_plane(now, plane);
  } else {
    lose_plane(now, plane, PathChange::kLinkDown);  // MR-HEALTH-020: at once
  }
  send_port_status(now);
}

void Connection::send_port_status(Time) {
  ++port_generation_;
  wire::ControlPacket p;
  p.opcode = wire::ControlOpcode::kPortStatus;
  p.generation = port_generation_;
  for (uint32_t i = 0; i < planes_; ++i) {
    if (shared_.plane_up[i]) p.value |= 1u << i;
  }
  // MR-HEALTH-021: one on every live plane, each its own packet.
  for (uint8_t plane = 0; plane < planes_; ++plane) {
    for (uint32_t i = 0; i < tx_paths_; ++i) {
      if (paths_[i]->tx.plane != plane || !paths_[i]->tx.is_good()) continue;
      queue_control(p, static_cast<uint16_t>(i));
      break;
    }
  }
}

void Connection::on_port_status(Time now, const wire::ControlPacket& packet) {
  survey_due_ = true;
  if (seq_le(packet.generation, peer_port_generation_)) return;  // MR-HEALTH-022
  peer_port_generation_ = packet.generation;
  const auto before = peer_mask_;
  peer_mask_ = static_cast<uint16_t>(packet.value);
  for (uint32_t k = 0; k < planes_; ++k) {  // in the order of their paths
    const auto plane = static_cast<uint8_t>((setup_plane_ + k) % planes_);
    const uint32_t bit = 1u << plane;
    if ((peer_mask_ & bit) == 0) {
      lose_plane(now, plane, PathChange::kPeerReport);
    } else if ((before & bit) == 0) {
      probe_plane(now, plane);
    }
  }
}

/// Gives up the open paths of a plane, but for the last ones of the connection.
void Connection::lose_plane(Time now, uint8_t plane, PathChange reason) {
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    PathSlot& slot = *paths_[i];
    if (slot.tx.plane != plane || !slot.tx.is_open()) continue;
    if (active_paths() > shared_.settings.min_active_paths) declare_dead(now, slot, reason);
  }
}

void Connection::probe_plane(Time now, uint8_t plane) {
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    path::PathSender& tx = paths_[i]->tx;
    if (tx.plane == plane && tx.is_open()) tx.probe_soon(now);
  }
}

bool Connection::has_way_around(uint8_t plane) const {
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    if (paths_[i]->tx.plane != plane && paths_[i]->tx.is_good()) return true;
  }
  return false;
}

void Connection::reopen_plane(Time now, uint8_t plane) {
  current_time_ = now;
  survey_due_ = true;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    path::PathSender& tx = paths_[i]->tx;
    if (tx.plane != plane || peer_[plane].family == 0) continue;
    const bool was_open = tx.state() != path::State::kClosed;
    // MR-PATH-045: under one key no generation comes again. 65,535 new beginnings are enough.
    if (session_ != nullptr && tx.generation == 0xFFFF) {
      tx.close(*this);
      after_state_change(*paths_[i]);
      continue;
    }
    const uint32_t last = tx.next_seq();
    const Duration rtt = tx.srtt().ns > 0 ? tx.srtt() : setup_rtt_;
    tx.close(*this);  // MR-PATH-017
    after_state_change(*paths_[i]);
    stop_pmtu_search(*paths_[i]);
    // MR-PATH-045
    const uint32_t far = (1u << 20) + static_cast<uint32_t>(shared_.rng.below(1u << 30));
    const uint16_t port = was_open ? tx.port : take_port();
    tx.open(static_cast<uint8_t>(i), plane, last + far, port, path::State::kOpening, rtt);
    tx.window().start(2 * 1280);
    tx.pmtu = 0;
    ++tx.generation;
    open_sealing(*paths_[i], last + far);
    next_open_ = std::min(next_open_, i);
  }
  open_waiting_paths();
}

void Connection::on_local_address(Time now, uint8_t plane, bool present) {
  if (state_ != ConnectionState::kOpen || plane >= planes_) return;
  wake();
  if (!present) lose_plane(now, plane, PathChange::kLinkDown);
  // MR-CONN-028: without another plane nobody can be told; the peer then hears from us no more.
  if (!has_way_around(plane)) return;
  wire::ControlPacket p;  // MR-CONN-026
  p.opcode = wire::ControlOpcode::kAddAddr;
  p.generation = ++address_generation_;
  p.plane = plane;
  if (present) p.address[0] = shared_.local[plane];
  queue_control(p, kControlList);
  if (present) reopen_plane(now, plane);
}

void Connection::on_add_addr(Time now, const wire::ControlPacket& packet) {
  // MR-CONN-027: each plane by itself, since controls overtake each other.
  if (packet.plane >= planes_) return;
  uint32_t& known = peer_address_generation_[packet.plane];
  if (seq_le(packet.generation, known)) return;
  known = packet.generation;
  const SocketAddress& address = packet.address[0];
  if (address.family == 0) return lose_plane(now, packet.plane, PathChange::kPeerReport);
  SocketAddress& peer = peer_[packet.plane];
  if (address.family != shared_.local[packet.plane].family || address.is_any()) return;
  if (peer.same_host(address) && peer.port == address.port) return;
  // MR-CONN-028: the PATH_OPENs that prove it travel on another plane.
  if (!has_way_around(packet.plane)) return;
  const uint32_t scope = peer.scope;
  peer = address;
  peer.scope = scope;
  reopen_plane(now, packet.plane);
}

bool Connection::change_port(Time now, uint8_t path, uint16_t port) {
  survey_due_ = true;
  if (path >= tx_paths_) return false;
  wake();
  announce_acks_ = true;  // the first packet of a new epoch asks for an ACK
  path::PathSender& tx = paths_[path]->tx;
  const uint16_t before = tx.port;
  if (!tx.change_port(now, port)) return false;
  shared_.telemetry.emit(EventKind::port_changed, handle_, path, before, port, tx.epoch());
  return true;
}

}  // namespace metaroce::connection
