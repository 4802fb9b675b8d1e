// Packets that arrive one after the other as they were sent, the usual case: the first of a run is
// handled by receive.cpp, those that go on from it are recognised by their words and only counted.
// Everything that on_data() would ask was answered by the first: path and CPSN are the next ones,
// the message is open and its LAST has not come, the bytes follow in the same region.
#include <algorithm>

#include "connection/connection.h"

namespace metaroce::connection {

void Connection::begin_receive_run(const wire::DataPacket& d, PathSlot& slot,
                                   const memory::Target& target) {
  if (shared_.settings.whole_runs == 0) return;
  const uint32_t message = receiver_.open_run();
  if (message == message::kNoIndex || (d.s.flags & wire::flag::kAckRequest) != 0) return;
  if (!slot.rx.is_next(d.s.path_seq + 1) || filter_->highest() != d.s.cpsn) return;
  run_ = ReceiveRun{};
  run_.slot = &slot;
  run_.w0 = wire::word0(wire::PacketType::kData, d.s.flags, d.s.path, 0);
  run_.seq = d.s.path_seq + 1;
  run_.cpsn = d.s.cpsn + 1;
  run_.w5 = uint32_t{d.stream} << 16 | uint32_t{static_cast<uint8_t>(d.opcode)} << 8;
  run_.msn = d.msn;
  run_.offset = d.offset + d.payload_length;
  run_.key = d.key;
  run_.address = d.address + d.payload_length;
  run_.target = target;
  run_.target.offset += d.payload_length;
  run_.target.room -= d.payload_length;
  if (run_.target.address != nullptr) run_.target.address += d.payload_length;
  run_.message = message;
}

bool Connection::continue_run(const RxPacket& rx, Placement& placement) {
  constexpr size_t kHeader = wire::data_header_bytes(wire::Opcode::kWrite, false);
  if (rx.bytes.size() <= kHeader || rx.ecn == Ecn::kCe) return false;
  const std::byte* p = rx.bytes.data();
  const auto length = static_cast<uint32_t>(rx.bytes.size() - kHeader);
  // No message flag is set: neither LAST nor anything else that asks for more than counting.
  const bool goes_on = (wire::load32(p) & ~0xFFu) == run_.w0 && wire::load32(p + 4) == handle_ &&
                       wire::load32(p + 8) == run_.seq && wire::load32(p + 16) == run_.cpsn &&
                       wire::load32(p + 20) == run_.w5 && wire::load32(p + 24) == run_.msn &&
                       wire::load32(p + 28) == run_.offset && wire::load32(p + 32) == run_.key &&
                       wire::load64(p + 36) == run_.address && length <= run_.target.room &&
                       length <= kMaxMessageBytes - run_.offset;
  if (!goes_on) return false;
  placement.payload_begin = kHeader;
  placement.length = length;
  placement.region = run_.target.region;
  placement.offset = run_.target.offset;
  placement.address = run_.target.address;
  placement.rest = {};  // the caller's array is used again and again
  ++run_.seq;
  ++run_.cpsn;
  run_.offset += length;
  run_.address += length;
  run_.target.offset += length;
  run_.target.room -= length;
  if (run_.target.address != nullptr) run_.target.address += length;
  run_.stamp = wire::load32(p + 12) >> 8;
  run_.bytes += length;
  ++run_.packets;
  return true;
}

void Connection::end_run(Time now) {
  PathSlot& slot = *run_.slot;
  run_.slot = nullptr;
  if (run_.packets == 0) return;
  filter_->accept_next(run_.packets);  // MR-CPSN-005
  receiver_.commit_run(run_.message, run_.bytes, run_.offset);
  slot.tx.counters->rx_packets += run_.packets;
  slot.tx.counters->rx_accepted += run_.packets;
  for (uint32_t i = run_.packets; shared_.telemetry.heard() && i > 0; --i) {
    shared_.telemetry.emit(EventKind::packet_received, handle_, slot.tx.id, run_.seq - i,
                           run_.cpsn - i, static_cast<uint64_t>(Fate::kAccepted));
  }
  slot.tx.counters->rx_bytes += run_.bytes;
  counters_.bytes_received += run_.bytes;
  slot.rx.note_run(now, run_.packets, run_.stamp, static_cast<uint16_t>(run_.w5 >> 16),
                   shared_.settings, slot.tx.srtt());
  owe_ack(slot);
}

}  // namespace metaroce::connection
