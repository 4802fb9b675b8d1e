#include "wire/probe_packet.h"

#include "wire/check.h"

namespace metaroce::wire {

Decoded<ProbePacket> decode_probe(Bytes bytes) {
  const DropReason r = check_kind(bytes, PacketType::kProbe, kProbeBytes);
  if (r != DropReason::kNone) return unexpected(r);
  ProbePacket p;
  p.s = load_sequenced(bytes.data());
  p.stream = static_cast<uint16_t>(load32(bytes.data() + 20) >> 16);
  return p;
}

Decoded<VoidPacket> decode_void(Bytes bytes) {
  const DropReason r = check_exact(bytes, PacketType::kVoid, kProbeBytes);
  if (r != DropReason::kNone) return unexpected(r);
  return VoidPacket{load_sequenced(bytes.data())};
}

size_t encode(const ProbePacket& packet, std::byte* out) {
  store_sequenced(out, PacketType::kProbe, packet.s);
  store32(out + 20, uint32_t{packet.stream} << 16);
  store64(out + 24, 0);
  return kProbeBytes;
}

size_t encode(const VoidPacket& packet, std::byte* out) {
  store_sequenced(out, PacketType::kVoid, packet.s);
  store32(out + 20, 0);
  store64(out + 24, 0);
  return kProbeBytes;
}

}  // namespace metaroce::wire
