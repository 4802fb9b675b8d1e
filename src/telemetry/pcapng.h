// Writes the datagrams at an engine's boundary as a pcapng file, with made-up IP and UDP headers.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/expected.h"
#include "engine/engine.h"
#include "telemetry/bytes.h"

namespace metaroce::telemetry {

/// One interface (raw IP), times in ns: the engine's, moved to the wall clock. What the driver
/// dropped before the engine (wrong CRC) is not seen; what the network or an injected fault took
/// after it is. Payload beyond the limit is cut; the true length stands beside. The trailer of a
/// whole packet is its CRC32C.
class PcapWriter {
 public:
  static constexpr size_t kSnapLength = 256;  ///< bytes of a packet that carries bulk

  static Expected<std::unique_ptr<PcapWriter>, std::string> create(
      const std::string& path, const std::vector<SocketAddress>& local, Duration to_wall_clock,
      size_t snap_length = kSnapLength);
  ~PcapWriter();
  PcapWriter(const PcapWriter&) = delete;
  PcapWriter& operator=(const PcapWriter&) = delete;

  void received(Time now, std::span<const engine::RxPacket> packets);
  /// A received packet of which only the first bytes are known.
  void received(Time now, const engine::RxPacket& packet, size_t known);
  /// With `payload` the bytes that the runs point to are copied (up to the limit); without, as in a
  /// replay, such packets end after their header.
  void sent(Time now, std::span<const engine::TxRun> runs, bool payload = true);

  uint64_t packets() const { return packets_; }
  /// Why writing stopped, or "".
  const std::string& error() const { return error_; }
  void flush();

 private:
  PcapWriter(std::FILE* file, std::string path, std::vector<SocketAddress> local, size_t snap);
  struct Parts;
  void packet(Time now, const Parts& parts);
  void write(std::span<const std::byte> bytes);

  std::FILE* file_;
  std::string path_;
  std::string error_;
  std::vector<SocketAddress> local_;
  size_t snap_;
  Duration to_wall_clock_{};
  uint64_t packets_ = 0;
  ByteWriter block_;
  ByteWriter frame_;
  ByteWriter body_;
};

}  // namespace metaroce::telemetry
