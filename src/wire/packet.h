// Any packet: for tools, tests and fuzzing. The engine decodes by type and skips this.
#pragma once

#include <variant>

#include "wire/ack_packet.h"
#include "wire/control_packet.h"
#include "wire/data_packet.h"
#include "wire/handshake_packet.h"
#include "wire/probe_packet.h"

namespace metaroce::wire {

using AnyPacket = std::variant<DataPacket, ControlPacket, ProbePacket, VoidPacket, AckPacket,
                               AckWidePacket, HelloPacket, CookiePacket, ConfirmPacket,
                               HostProbePacket, UnknownConnectionPacket, RefusePacket>;

/// Total: any bytes give a packet or the reason why not.
Decoded<AnyPacket> decode(Bytes bytes);

}  // namespace metaroce::wire
