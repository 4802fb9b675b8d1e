#include "driver/common/trailer.h"

#include <array>
#include <cstring>

#include "base/assert.h"
#include "driver/common/crc32c.h"
#include "secure/session.h"

namespace metaroce::driver {
namespace {

void store_big(uint32_t v, std::byte* out) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<std::byte>(v >> (24 - 8 * i));
}

uint32_t load_big(const std::byte* p) {
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) v = v << 8 | static_cast<uint32_t>(p[i]);
  return v;
}

}  // namespace

const std::byte* zero_bytes() {
  static constexpr std::array<std::byte, kZeroBytes> kZeros{};
  return kZeros.data();
}

bool fill_trailers(engine::TxRun& run) {
  if (run.session != nullptr || run.trailer != wire::kCrcBytes) return false;
  std::byte* header = run.headers;
  for (size_t i = 0; i < run.count; ++i) {
    Crc32c crc;
    crc.add(header, run.header_length[i]);
    if (run.payload[i] != nullptr) {
      crc.add(run.payload[i], run.payload_length[i]);
    } else {
      crc.add_zeros(run.payload_length[i]);
    }
    header += run.header_length[i];
    store_big(crc.value(), header);  // MR-WIRE-007
    header += wire::kCrcBytes;
  }
  return true;
}

size_t payload_bytes(const engine::TxRun& run) {
  size_t sum = 0;
  for (size_t i = 0; i < run.count; ++i) sum += run.payload_length[i];
  return sum;
}

size_t seal_run(engine::TxRun& run, std::span<std::byte> buffer) {
  secure::Session& session = *run.session;
  const auto phase = static_cast<std::byte>(session.send_phase() ? wire::flag::kPhase : uint8_t{0});
  size_t used = 0;
  std::byte* header = run.headers;
  for (size_t i = 0; i < run.count; ++i) {
    header[1] |= phase;  // MR-WIRE-032
    const auto type = static_cast<wire::PacketType>(static_cast<uint8_t>(header[0]) & 0x3F);
    const secure::PacketName name{type >= wire::PacketType::kAck, static_cast<uint8_t>(header[2]),
                                  load_big(header + 8)};
    const size_t length = run.payload_length[i];
    MR_ASSERT(used + length <= buffer.size() && length <= kZeroBytes);
    const std::byte* plain = run.payload[i] != nullptr ? run.payload[i] : zero_bytes();
    std::byte* sealed = buffer.data() + used;
    std::byte* tag = header + run.header_length[i];
    session.seal(name, {header, run.header_length[i]}, plain, length, sealed, tag);
    run.payload[i] = sealed;
    used += length;
    header = tag + run.trailer;
  }
  return used;
}

size_t flatten(const engine::TxRun& run, size_t i, const std::byte* header, std::byte* out) {
  const size_t head = run.header_length[i];
  const size_t length = run.payload_length[i];
  std::memcpy(out, header, head);
  if (run.payload[i] != nullptr) {
    std::memcpy(out + head, run.payload[i], length);
  } else {
    std::memset(out + head, 0, length);
  }
  std::memcpy(out + head + length, header + head, run.trailer);
  return head + length + run.trailer;
}

void append_crc(std::span<std::byte> packet) {
  const size_t body = packet.size() - wire::kCrcBytes;
  store_big(crc32c(packet.first(body)), packet.data() + body);
}

std::span<const std::byte> verify_crc(std::span<const std::byte> packet) {
  if (packet.size() <= wire::kCrcBytes) return {};
  const auto body = packet.first(packet.size() - wire::kCrcBytes);
  // MR-WIRE-008, MR-CPSN-031
  if (crc32c(body) != load_big(packet.data() + body.size())) return {};
  return body;
}

}  // namespace metaroce::driver
