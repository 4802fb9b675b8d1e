#include "tests/oracle/wire_watch.h"

#include <algorithm>

#include <fmt/format.h>

#include <span>

#include "wire/ack_packet.h"
#include "wire/control_packet.h"
#include "wire/data_packet.h"

namespace metaroce::oracle {

namespace {

uint64_t key_of(const wire::DataPacket& d) { return uint64_t{d.stream} << 32 | d.msn; }

bool is_data(const std::byte* packet) {
  const auto type = std::to_integer<uint8_t>(packet[0]) & 0x3F;
  return type == static_cast<uint8_t>(wire::PacketType::kData);
}

}  // namespace

void WireWatch::sent(const engine::TxRun& run) {
  size_t at = 0;
  for (uint8_t i = 0; i < run.count; ++i) {
    const std::byte* header = run.headers + at;
    at += run.header_length[i] + run.trailer;
    // A request is nothing but a header.
    if (run.header_length[i] < 48 || run.payload_length[i] > 0 || !is_data(header)) continue;
    const auto d = wire::decode_data({header, run.header_length[i]});
    if (!d) continue;
    const bool read = d->opcode == wire::Opcode::kReadRequest;
    const bool atomic =
        d->opcode == wire::Opcode::kFetchAdd || d->opcode == wire::Opcode::kCompareSwap;
    if (!read && !atomic) continue;
    if (!known_.insert(key_of(*d)).second) continue;
    open_[key_of(*d)] = read ? d->read_length : 8;
  }
}

std::string WireWatch::describe(const engine::TxRun& run) {
  std::string out;
  size_t at = 0;
  for (uint8_t i = 0; i < run.count; ++i) {
    const std::byte* header = run.headers + at;
    const std::span<const std::byte> bytes{header, run.header_length[i]};
    at += run.header_length[i] + run.trailer;
    const auto type = static_cast<wire::PacketType>(std::to_integer<uint8_t>(header[0]) & 0x3F);
    if (const auto d = wire::decode_data(bytes); type == wire::PacketType::kData && d) {
      out += fmt::format("path {} data stream {} MSN {} opcode {} offset {} bytes {} cpsn {}\n",
                         run.path, d->stream, d->msn, static_cast<int>(d->opcode), d->offset,
                         run.payload_length[i], d->s.cpsn);
    } else if (const auto a = wire::decode_ack(bytes);
               type <= wire::PacketType::kAckLong && type >= wire::PacketType::kAck && a) {
      out += fmt::format("path {} ack base {} stream {} limit {} reason {}\n", run.path, a->f.base,
                         a->f.stream, a->f.limit, static_cast<int>(a->f.reason));
    } else if (const auto c = wire::decode_control(bytes);
               type == wire::PacketType::kControl && c) {
      out += fmt::format("path {} control {} stream {} value {} cpsn {}\n", run.path,
                         static_cast<int>(c->opcode), c->stream, c->value, c->s.cpsn);
    } else {
      out += fmt::format("path {} type {}\n", run.path, static_cast<int>(type));
    }
  }
  return out;
}

void WireWatch::arrived(const engine::RxPacket& packet) {
  if (packet.bytes.size() < 32 || !is_data(packet.bytes.data())) return;
  const auto d = wire::decode_data(packet.bytes);
  if (!d) return;
  if (d->opcode != wire::Opcode::kReadResponse && d->opcode != wire::Opcode::kAtomicResponse)
    return;
  const auto open = open_.find(key_of(*d));
  if (open == open_.end()) return;
  // The same bytes may come again, cut larger.
  uint32_t& known = pieces_[{key_of(*d), d->offset}];
  if (d->payload_length > known) {
    open->second -= std::min(open->second, d->payload_length - known);
    known = d->payload_length;
  }
  if (open->second == 0) open_.erase(open);
}

std::string WireWatch::names() const {
  std::string out;
  for (const auto& [key, bytes] : open_) {
    out += "stream " + std::to_string(key >> 32) + " MSN " + std::to_string(key & 0xFFFFFFFF) +
           " misses " + std::to_string(bytes) + " bytes; ";
  }
  return out;
}

void WireWatch::give_up(uint16_t stream) {
  std::erase_if(open_, [stream](const auto& o) { return o.first >> 32 == stream; });
}

void WireWatch::forget(uint16_t stream) {
  give_up(stream);
  std::erase_if(known_, [stream](const auto& k) { return k >> 32 == stream; });
  std::erase_if(pieces_, [stream](const auto& p) { return p.first.first >> 32 == stream; });
}

}  // namespace metaroce::oracle
