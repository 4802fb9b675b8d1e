#include "driver/common/trailer.h"

#include <array>
#include <cstring>

#include "driver/common/crc32c.h"

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
  if (run.trailer != wire::kCrcBytes) return false;
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
