#include "wire/packet.h"

namespace metaroce::wire {

namespace {
template <class T>
Decoded<AnyPacket> widen(const Decoded<T>& d) {
  if (!d) return unexpected(d.error());
  return AnyPacket(*d);
}
}  // namespace

Decoded<AnyPacket> decode(Bytes bytes) {  // MR-WIRE-005
  const Decoded<Common> common = decode_common(bytes);
  if (!common) return unexpected(common.error());
  switch (common->type) {
    case PacketType::kData:
      return widen(decode_data(bytes));
    case PacketType::kControl:
      return widen(decode_control(bytes));
    case PacketType::kProbe:
      return widen(decode_probe(bytes));
    case PacketType::kVoid:
      return widen(decode_void(bytes));
    case PacketType::kAck:
    case PacketType::kAckLong:
      return widen(decode_ack(bytes));
    case PacketType::kAckWide:
    case PacketType::kAckWideRefused:
      return widen(decode_ack_wide(bytes));
    case PacketType::kHello:
    case PacketType::kAccept:
      return widen(decode_hello(bytes));
    case PacketType::kCookie:
      return widen(decode_cookie(bytes));
    case PacketType::kConfirm:
      return widen(decode_confirm(bytes));
    case PacketType::kHostProbe:
      return widen(decode_host_probe(bytes));
    case PacketType::kUnknownConnection:
      return widen(decode_unknown_connection(bytes));
    case PacketType::kRefuse:
      return widen(decode_refuse(bytes));
  }
  return unexpected(DropReason::kBadType);
}

}  // namespace metaroce::wire
