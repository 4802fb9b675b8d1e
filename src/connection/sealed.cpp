// Packets of a secured connection: opening what came, and going from one key to the next.
#include <algorithm>

#include "connection/connection.h"

namespace metaroce::connection {
namespace {

/// Bytes of the header of a sealed packet, which are authenticated and not encrypted; 0: there is
/// no such packet.
size_t header_of(std::span<const std::byte> packet) {
  const size_t all = packet.size() - wire::kTagBytes;
  switch (static_cast<wire::PacketType>(static_cast<uint8_t>(packet[0]) & 0x3F)) {
    case wire::PacketType::kData: {
      if (all < 32) return 0;
      const auto opcode = static_cast<wire::Opcode>(packet[22]);
      const bool last = (static_cast<uint8_t>(packet[23]) & wire::message_flag::kLast) != 0;
      return wire::data_header_bytes(opcode, last);
    }
    case wire::PacketType::kProbe:
      return wire::kProbeBytes;
    default:
      return all;
  }
}

}  // namespace

wire::DropReason Connection::open_sealed(Time now, std::span<std::byte> packet, size_t& body) {
  if (packet.size() < wire::kSequencedBytes + wire::kTagBytes) return wire::DropReason::kTooShort;
  const size_t header = header_of(packet);
  if (header == 0) return wire::DropReason::kBadOpcode;
  if (header + wire::kTagBytes > packet.size()) return wire::DropReason::kTooShort;
  body = packet.size() - wire::kTagBytes;
  const auto type = static_cast<wire::PacketType>(static_cast<uint8_t>(packet[0]) & 0x3F);
  const secure::PacketName name{type >= wire::PacketType::kAck, static_cast<uint8_t>(packet[2]),
                                wire::load32(packet.data() + 8)};
  const bool phase = (static_cast<uint8_t>(packet[1]) & wire::flag::kPhase) != 0;
  const Duration keep = std::max(backstop_wait_, nanoseconds(shared_.settings.rto_min));
  switch (session_->open(now, keep, name, phase, packet.first(header), packet.data() + header,
                         body - header, packet.data() + body)) {
    case secure::Opened::kYes:
      return wire::DropReason::kNone;
    case secure::Opened::kUnknownPath:
      return wire::DropReason::kUnknownPath;
    case secure::Opened::kTooFar:
      return wire::DropReason::kPathWindow;
    case secure::Opened::kBadTag:
      break;
  }
  return wire::DropReason::kBadTag;
}

void Connection::count_sealed_runs(std::span<const TxRun> runs) {
  for (const TxRun& run : runs) {
    if (run.session != nullptr) session_->count_sent(run.count);
  }
}

void Connection::renew_sealing_key(Time now) {
  const uint64_t sent = session_->sent_under_key();
  const Settings& s = shared_.settings;
  if (sent < s.key_update_packets) return;
  // MR-SEC-006: a peer that takes everything but the new key must not make us wear out the old one.
  if (sent >= s.key_limit_packets) return die(now, Status::kUnresponsive);
  if (state_ != ConnectionState::kOpen || paths_.resting()) return;
  const bool late = sent >= s.key_limit_packets - s.key_limit_packets / 4;
  if (key_update_pending_ || (now < key_update_from_ && !late) || !has_control_slot()) return;
  session_->update_send_key();
  wire::ControlPacket update;
  update.opcode = wire::ControlOpcode::kKeyUpdate;
  update.generation = session_->send_generation();
  key_update_pending_ = true;
  queue_control(update, kControlList);
  shared_.telemetry.emit(EventKind::key_updated, handle_, 0xFF, session_->send_generation(), sent);
}

void Connection::on_key_update_heard(Time now) {
  key_update_pending_ = false;
  // The peer keeps the key before for one backstop time: nothing of it is under way any more when
  // the next one begins.
  key_update_from_ = now + std::max(backstop_wait_, nanoseconds(shared_.settings.rto_min)) * 2;
}

/// MR-SEC-013: who names keys at random is answered so often a second and no more, and connections
/// cost nothing: all of them count together.
bool Connection::may_guess_key(Time now) {
  if (now - shared_.key_guesses_from >= seconds(1)) {
    shared_.key_guesses_from = now;
    shared_.key_guesses = 0;
  }
  return shared_.key_guesses++ < shared_.settings.key_guesses;
}

}  // namespace metaroce::connection
