// The trailer of a plain packet: CRC32C over header and payload, big-endian (MR-WIRE-007, 008).
#pragma once

#include <cstddef>
#include <span>

#include "engine/api.h"

namespace metaroce::driver {

inline constexpr size_t kZeroBytes = 65536;
/// kZeroBytes bytes of zero, the payload of packets that have none in memory.
const std::byte* zero_bytes();

/// Bytes on the wire of packet `i` of the run, trailer included.
inline size_t packet_bytes(const engine::TxRun& run, size_t i) {
  return size_t{run.header_length[i]} + run.payload_length[i] + run.trailer;
}

/// Fills the trailer of every packet of the run with its CRC. A null payload counts as that many
/// zeros. Runs that are to be sealed are refused: false.
bool fill_trailers(engine::TxRun& run);

/// Seals every packet of a run of a secured connection: tags go into the trailers, the payload is
/// encrypted into `buffer` and the run points there, never into the memory of the user. Returns the
/// bytes of the buffer that were used; it must have room for the payload of the run.
size_t seal_run(engine::TxRun& run, std::span<std::byte> buffer);
/// Payload bytes of all packets of the run.
size_t payload_bytes(const engine::TxRun& run);

/// Copies packet `i` whose header starts at `header` to `out`, trailer included; returns its size.
/// `out` must have room for packet_bytes(run, i).
size_t flatten(const engine::TxRun& run, size_t i, const std::byte* header, std::byte* out);

/// Writes the CRC of bytes[0, size - 4) into the last four bytes; size >= 4.
void append_crc(std::span<std::byte> packet);

/// The packet without its trailer if the CRC matches, otherwise an empty span.
std::span<const std::byte> verify_crc(std::span<const std::byte> packet);

}  // namespace metaroce::driver
