// Any bytes: decode() gives a packet or a reason, and what it gave survives encode and decode.
#include <cstdlib>
#include <vector>

#include "wire/packet.h"

namespace {

using namespace metaroce::wire;

template <class P>
std::vector<std::byte> encode_again(const P& packet) {
  std::vector<std::byte> out(kMaxHandshake);
  out.resize(encode(packet, out.data()));
  if constexpr (std::is_same_v<P, DataPacket>) {
    // The payload is not part of the struct; its bytes do not matter here.
    out.resize(out.size() + packet.payload_length);
  }
  return out;
}

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto first = decode(bytes);
  if (!first) {
    require(first.error() != DropReason::kNone && first.error() <= DropReason::kBadTlv);
    return 0;
  }
  const auto again = std::visit([](const auto& p) { return encode_again(p); }, *first);
  const auto second = decode(again);
  require(second && *second == *first);
  return 0;
}
