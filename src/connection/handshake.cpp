// HELLO, ACCEPT, CONFIRM (MR-CONN): how two endpoints come to know each other.
#include <algorithm>

#include "base/siphash.h"
#include "connection/connection.h"
#include "connection/transcript.h"

namespace metaroce::connection {
void Connection::start_connect(Time now, const std::vector<SocketAddress>& peer,
                               std::unique_ptr<SecureSetup> security) {
  initiator_ = called_ = true;
  security_ = std::move(security);
  planes_ = static_cast<uint8_t>(std::min(shared_.local.size(), peer.size()));
  for (size_t i = 0; i < peer.size() && i < peer_.size(); ++i) peer_[i] = peer[i];
  peer_from_ = peer[0];
  begin_asking(now);
  give_up_at_ = now + nanoseconds(shared_.settings.connect_timeout);
}

void Connection::begin_asking(Time now) {
  state_ = ConnectionState::kHelloSent;
  nonce_ = shared_.rng.next();
  start_seq_ = shared_.rng.next32();
  start_cpsn_ = shared_.rng.next32();
  encode_hello(false);
  hello_due_ = true;
  setup_sent_at_ = kNever;
  setup_at_ = now + nanoseconds(shared_.settings.hello_interval);
}

void Connection::ask_anew(Time now) { begin_asking(now); }

bool Connection::asks(const SocketAddress& from) const {
  return std::any_of(peer_.begin(), peer_.end(), [&](const SocketAddress& a) {
    return a.family != 0 && a.same_host(from) && a.port == from.port;
  });
}

bool Connection::knows(const SocketAddress& from) const {
  if (peer_from_.same_host(from)) return true;
  return std::any_of(peer_.begin(), peer_.end(),
                     [&](const SocketAddress& a) { return a.family != 0 && a.same_host(from); });
}

bool Connection::has_asked(const SocketAddress& from) const {
  return std::any_of(asked_from_.begin(), asked_from_.end(),
                     [&](const SocketAddress& a) { return a.same_host(from); });
}

uint8_t Connection::announced_paths() const {
  return static_cast<uint8_t>(std::min<uint32_t>(
      255, shared_.settings.paths_per_plane * static_cast<uint32_t>(kMaxPlanes)));
}

void Connection::encode_hello(bool accept) {
  wire::HelloPacket p;
  p.is_accept = accept;
  p.connection = accept ? peer_id_ : 0;
  p.own_connection = handle_;
  p.nonce = nonce_;
  p.start_seq = start_seq_;
  p.start_cpsn = start_cpsn_;
  p.paths = static_cast<uint8_t>(shared_.settings.paths_per_plane);
  p.echoed_nonce = peer_nonce_;
  const Settings& s = shared_.settings;
  uint16_t pmtu = 65535;
  for (size_t i = 0; i < shared_.local.size() && i < kMaxPlanes; ++i) {
    p.params.planes[i] = shared_.local[i];
    pmtu = std::min(pmtu, shared_.plane_mtu[i]);
  }
  p.params.cpsn_window_log2 = static_cast<uint8_t>(std::bit_width(s.cpsn_window) - 1);
  p.params.max_paths = announced_paths();
  p.params.span = static_cast<uint16_t>(s.message_span);
  p.params.inflight_packets = s.inflight_packets;
  p.params.outstanding = static_cast<uint16_t>(s.max_outstanding);  // MR-MSG-044
  p.params.atomics = 3;
  p.params.pmtu = pmtu;
  p.params.versions = shared_.versions;
  if (accept) {  // MR-CONN-018: the highest that both speak
    const uint32_t common = p.params.versions & peer_params_->versions;
    p.params.versions = static_cast<uint16_t>(std::bit_floor(common));
  }
  offer_security(p.params, accept);
  std::vector<std::byte>& bytes = accept ? accept_bytes_ : hello_bytes_;
  bytes.resize(wire::kMaxHandshake);
  const size_t length = wire::encode(p, bytes.data());
  // MR-CONN-015: peers that stumble over what they do not know shall do so today.
  std::array<std::byte, 16> noise;
  for (std::byte& b : noise) b = static_cast<std::byte>(shared_.rng.next32());
  const auto type = static_cast<uint8_t>(wire::tlv::kGrease + shared_.rng.below(32));
  const std::span<const std::byte> value(noise.data(), shared_.rng.below(noise.size() + 1));
  bytes.resize(wire::set_tlv(bytes.data(), length, type, value));
}

void Connection::remember_peer(const wire::HelloPacket& packet, const RxPacket& rx) {
  peer_id_ = packet.own_connection;
  peer_nonce_ = packet.nonce;
  peer_params_ = std::make_unique<wire::HandshakeParams>(packet.params);
  peer_max_paths_ = packet.params.max_paths;
  peer_pmtu_ = packet.params.pmtu;
  peer_start_seq_ = packet.start_seq;
  peer_open_paths_ = packet.paths;
  peer_inflight_ = std::max(packet.params.inflight_packets, 16u);
  if (packet.params.outstanding != 0) sender_.set_peer_outstanding(packet.params.outstanding);
  peer_from_ = rx.from;
  setup_plane_ = rx.plane;
  uint8_t listed = 0;
  for (size_t i = 0; i < kMaxPlanes; ++i) {
    const SocketAddress& a = packet.params.planes[i];
    if (a.family == 0) continue;
    listed = static_cast<uint8_t>(i + 1);
    if (i < peer_.size() && !a.is_any()) {
      const uint32_t scope = peer_[i].scope;
      peer_[i] = a;
      peer_[i].scope = scope;
    }
  }
  planes_ =
      static_cast<uint8_t>(std::min<size_t>(shared_.local.size(), std::max<uint8_t>(listed, 1)));
  // The address that was seen to work wins over the listed one; the service port is the listed one.
  const uint16_t service = packet.params.planes[setup_plane_].port;
  peer_[setup_plane_] = rx.from;
  if (service != 0) peer_[setup_plane_].port = service;
  planes_ = std::max<uint8_t>(planes_, static_cast<uint8_t>(setup_plane_ + 1));
}

void Connection::create_tables(uint32_t peer_cpsn) {
  // MR-CPSN-011, MR-CONN-017: the smaller of the two announcements.
  const uint32_t window =
      std::min(shared_.settings.cpsn_window,
               1u << std::clamp<uint8_t>(peer_params_->cpsn_window_log2, 10, 20));
  window_ = std::make_unique<SendWindow>(shared_.chunks, window, start_cpsn_);
  filter_ = std::make_unique<CpsnFilter>(window, peer_cpsn);
  sender_.set_peer_span(std::min<uint32_t>(peer_params_->span, shared_.settings.message_span));
  congestion_.start(uint64_t{shared_.settings.first_flight} * planes_);
}

void Connection::start_accept(Time now, const wire::HelloPacket& hello, const RxPacket& rx,
                              bool proven) {
  state_ = ConnectionState::kAccepting;
  proven_ = proven;
  setup_credit_ = static_cast<uint32_t>(rx.bytes.size());
  remember_peer(hello, rx);
  asked_from_.assign(1, rx.from);
  hello_bytes_.assign(rx.bytes.begin(), rx.bytes.end());
  nonce_ = shared_.rng.next();
  start_seq_ = shared_.rng.next32();
  start_cpsn_ = shared_.rng.next32();
  const SecurePlan plan = plan_security(shared_.security, hello);
  if (plan.secured) {
    if (!secure_as_responder(plan, hello)) {  // a key that nobody honest has
      shared_.drop(wire::DropReason::kBadField);
      // Who called is told; of others nothing is kept.
      if (called_) return fail(now, Status::kNotTrusted, ConnectionEventKind::kFailed);
      state_ = ConnectionState::kDead;
      return;
    }
  } else {
    security_.reset();
    encode_hello(true);
    mac_ = transcript_mac();
  }
  create_tables(hello.start_cpsn);
  accept_due_ = proven || setup_credit_ >= accept_bytes_.size();  // MR-CONN-006
  give_up_at_ = now + nanoseconds(shared_.settings.connect_timeout);
}

void Connection::yield_to(Time now, const wire::HelloPacket& hello, const RxPacket& rx) {
  const Time give_up = give_up_at_;
  initiator_ = false;
  hello_due_ = false;
  setup_sent_at_ = setup_at_ = kNever;
  // The program waits for this handle, whoever asked first: it lives on as the responder's.
  start_accept(now, hello, rx, false);
  give_up_at_ = give_up;
}

void Connection::on_hello_again(Time, const wire::HelloPacket& hello, const RxPacket& rx) {
  if (state_ != ConnectionState::kAccepting || hello.own_connection != peer_id_) {
    return shared_.drop(wire::DropReason::kNoState);
  }
  if (!has_asked(rx.from)) {
    if (asked_from_.size() == kMaxPlanes) return shared_.drop(wire::DropReason::kNoState);
    asked_from_.push_back(rx.from);
  }
  // MR-CONN-004: the same answer, to where this copy came from.
  if (!peer_from_.same_host(rx.from)) proven_ = false;
  peer_from_ = rx.from;
  setup_plane_ = rx.plane;
  repeat_accept(rx.bytes.size());
}

void Connection::repeat_accept(size_t bytes) {
  if (state_ != ConnectionState::kAccepting) return;
  setup_credit_ += static_cast<uint32_t>(std::min<size_t>(bytes, 4096));
  // MR-CONN-006: an address that has proven nothing never gets more than came from it.
  accept_due_ = accept_due_ || proven_ || setup_credit_ >= accept_bytes_.size();
}

void Connection::on_accept(Time now, const wire::HelloPacket& accept, const RxPacket& rx) {
  if (!initiator_) return shared_.drop(wire::DropReason::kNoState);
  if (accept.echoed_nonce != nonce_) return shared_.drop(wire::DropReason::kNoState);
  if (state_ == ConnectionState::kOpen && accept.nonce == peer_nonce_) {
    // Who was heard of since has our CONFIRM: somebody repeats what the peer said once.
    if (heard_at_ != opened_at_) return shared_.drop(wire::DropReason::kNoState);
    wake();
    confirm_due_ = true;  // MR-CONN-013: our CONFIRM was lost
    announce_acks_ = true;
    return;
  }
  // MR-CONN-023
  if (state_ != ConnectionState::kHelloSent) return shared_.drop(wire::DropReason::kNoState);
  if ((accept.params.versions & shared_.versions) == 0) {
    setup_detail_ =
        static_cast<uint32_t>(wire::SetupRefusal::kVersion) << 24 | accept.params.versions;
    return fail(now, Status::kMismatch, ConnectionEventKind::kFailed);
  }
  accept_bytes_.assign(rx.bytes.begin(), rx.bytes.end());
  remember_peer(accept, rx);
  const wire::SetupRefusal distrust = secure_as_initiator(accept);
  if (distrust != wire::SetupRefusal::kOther) {
    setup_detail_ = static_cast<uint32_t>(distrust) << 24;
    return fail(now, Status::kNotTrusted, ConnectionEventKind::kFailed);
  }
  if (session_ == nullptr) mac_ = transcript_mac();
  create_tables(accept.start_cpsn);
  confirm_due_ = true;
  announce_acks_ = true;
  become_open(now, ConnectionEventKind::kConnected);  // MR-CONN-001
}

void Connection::on_foreign_accept(Time now, const wire::HelloHead& head) {
  if (state_ != ConnectionState::kHelloSent || head.echoed_nonce != nonce_) return;
  setup_detail_ = static_cast<uint32_t>(wire::SetupRefusal::kCriticalTlv) << 24 |
                  uint32_t{head.unknown_tlv} << 16;
  fail(now, Status::kMismatch, ConnectionEventKind::kFailed);
}

void Connection::on_refuse(Time now, const wire::RefusePacket& refuse, const RxPacket&) {
  // The nonce shows that it comes from one who read our HELLO.
  if (state_ != ConnectionState::kHelloSent || refuse.nonce != nonce_) {
    return shared_.drop(wire::DropReason::kNoState);
  }
  setup_detail_ = uint32_t{refuse.reason} << 24 | uint32_t{refuse.detail} << 16 | refuse.versions;
  switch (static_cast<wire::SetupRefusal>(refuse.reason)) {
    case wire::SetupRefusal::kVersion:
    case wire::SetupRefusal::kCriticalTlv:
      return fail(now, Status::kMismatch, ConnectionEventKind::kFailed);
    case wire::SetupRefusal::kNoRoom:
      setup_hint_ = Status::kRefused;  // a place may become free: the next HELLO asks again
      return;
    case wire::SetupRefusal::kSecurityRequired:
    case wire::SetupRefusal::kUnknownKey:
    case wire::SetupRefusal::kNoSecurity:
    case wire::SetupRefusal::kNoSuite:
      return fail(now, Status::kNotTrusted, ConnectionEventKind::kFailed);
    default:
      return fail(now, Status::kRefused, ConnectionEventKind::kFailed);
  }
}

void Connection::on_cookie(Time now, const wire::CookiePacket& cookie, const RxPacket&) {
  if (state_ != ConnectionState::kHelloSent || cookie.nonce != nonce_) {
    return shared_.drop(wire::DropReason::kNoState);
  }
  const size_t length = hello_bytes_.size();
  hello_bytes_.resize(wire::kMaxHandshake);
  hello_bytes_.resize(
      wire::set_tlv(hello_bytes_.data(), length, wire::tlv::kCookie, cookie.cookie));
  hello_due_ = true;
  setup_at_ = now + nanoseconds(shared_.settings.hello_interval);
}

uint64_t Connection::transcript_mac() const {
  const uint64_t initiator = initiator_ ? nonce_ : peer_nonce_;
  const uint64_t responder = initiator_ ? peer_nonce_ : nonce_;
  // The key is the 16 bytes as they stand on the wire, read little-endian by SipHash.
  SipHash hash(__builtin_bswap64(initiator), __builtin_bswap64(responder));
  absorb(hash, hello_bytes_, wire::kHelloFixed);
  absorb(hash, accept_bytes_, wire::kAcceptFixed);
  return __builtin_bswap64(hash.finish());
}

void Connection::on_confirm(Time now, const wire::ConfirmPacket& confirm, const RxPacket& rx) {
  if (state_ != ConnectionState::kAccepting) return shared_.drop(wire::DropReason::kNoState);
  // MR-CONN-012: whoever knows the MAC has heard an ACCEPT, and nobody else's address gets what
  // follows. In secured mode the MAC itself is the proof.
  if (confirm.mac != mac_ || (!has_asked(rx.from) && session_ == nullptr)) {
    return shared_.drop(wire::DropReason::kBadField);
  }
  confirmed(now, rx);
}

void Connection::on_sealed_confirm(Time now, const RxPacket& rx) {
  if (state_ == ConnectionState::kAccepting && session_ != nullptr) confirmed(now, rx);
}

void Connection::confirmed(Time now, const RxPacket& rx) {
  // The plane that works both ways is the one the initiator chose, and the address the one that
  // it confirmed from: a copy of its HELLO may have come from anywhere.
  const uint16_t service = peer_params_->planes[rx.plane].port;
  setup_plane_ = rx.plane;
  peer_[setup_plane_] = rx.from;
  if (service != 0) peer_[setup_plane_].port = service;
  become_open(now, called_ ? ConnectionEventKind::kConnected : ConnectionEventKind::kAccepted);
}

void Connection::open_handshake_paths() {
  // MR-PATH-043, MR-PATH-044: only on the address pair that the handshake used.
  const uint32_t ours = shared_.settings.paths_per_plane;
  tx_paths_ = std::min<uint32_t>(
      {ours * planes_, std::max<uint32_t>(peer_max_paths_, ours), kMaxPaths - 1});
  const uint32_t theirs = peer_open_paths_;
  const uint32_t both = std::max<uint32_t>(tx_paths_, theirs);
  paths_.reserve(both);
  while (paths_.size() < both) paths_.add();
  const Duration guess = setup_rtt_;
  for (uint32_t i = 0; i < ours && i < tx_paths_; ++i) {
    PathSlot& slot = *paths_[i];
    slot.tx.open(static_cast<uint8_t>(i), setup_plane_, start_seq_ + (i << 24), take_port(),
                 path::State::kGood, guess);
    open_sealing(slot, start_seq_ + (i << 24));
    slot.tx.pmtu = 1280;
    tell_path_state(slot);
    note_change(slot, PathChange::kOpened);
  }
  for (uint32_t i = 0; i < theirs; ++i) {
    paths_[i]->rx.open(setup_plane_, 0, peer_start_seq_ + (i << 24), peer_[setup_plane_]);
  }
  // MR-CC-008: the first flight of a plane, shared by its paths.
  const uint64_t share = std::max<uint64_t>(
      shared_.settings.first_flight / shared_.settings.paths_per_plane, 2 * 1280);
  for (uint32_t i = 0; i < tx_paths_; ++i) paths_[i]->tx.window().start(share);
}

void Connection::measure_setup(Time now) {
  // MR-LOSS-035; with repetitions the first one counts: too long a guess only waits, too short a
  // one floods.
  const bool known = setup_sent_at_ != kNever;
  setup_rtt_ = known ? std::clamp(now - setup_sent_at_, nanoseconds(1000), seconds(1))
                     : nanoseconds(shared_.settings.initial_rtt);
}

void Connection::become_open(Time now, ConnectionEventKind kind) {
  survey_due_ = true;
  state_ = ConnectionState::kOpen;
  std::vector<std::byte>().swap(hello_bytes_);  // the MAC is all that is needed of them
  std::vector<std::byte>().swap(accept_bytes_);
  security_.reset();
  hello_due_ = accept_due_ = false;
  measure_setup(now);
  setup_at_ = give_up_at_ = kNever;
  heard_at_ = progress_at_ = opened_at_ = now;
  current_time_ = now;
  std::vector<SocketAddress>().swap(asked_from_);
  open_handshake_paths();
  for (uint32_t i = 0; i < shared_.settings.paths_per_plane && i < tx_paths_; ++i) {
    start_pmtu_search(now, *paths_[i], pmtu_target(setup_plane_), false);
  }
  update_payload();
  open_other_paths();
  peer_params_.reset();
  event(kind, Status::kOk);
  check_paths_open();  // with nothing to open or to search no later event would tell
}

void Connection::fail(Time now, Status status, ConnectionEventKind kind) {
  if (state_ == ConnectionState::kDead || state_ == ConnectionState::kTimeWait) return;
  wake();
  event(kind, status, kind == ConnectionEventKind::kFailed ? setup_detail_ : close_code_);
  drop_all_sends();
  sender_.fail_all(status);
  receiver_.fail_all(status);
  completions_hint_ = true;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    paths_[i]->tx.close(*this);
    note_change(*paths_[i], PathChange::kEnded);
  }
  state_ = ConnectionState::kTimeWait;
  note_state(status);
  // MR-CONN-031
  time_wait_end_ = now + std::max(smallest_srtt() * 4, nanoseconds(shared_.settings.time_wait));
  setup_at_ = give_up_at_ = expect_since_ = verdict_at_ = credit_probe_at_ = kNever;
}

}  // namespace metaroce::connection
