#include "telemetry/pcapng.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "telemetry/record_format.h"

namespace metaroce::telemetry {
namespace {

constexpr uint32_t kSectionHeader = 0x0A0D0D0A;
constexpr uint32_t kInterface = 1;
constexpr uint32_t kEnhancedPacket = 6;
constexpr uint32_t kByteOrder = 0x1A2B3C4D;
constexpr uint16_t kLinkRawIp = 101;
constexpr uint16_t kOptionFlags = 2;
constexpr uint16_t kOptionResolution = 9;

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? (c >> 1) ^ 0x82F63B78u : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

uint32_t crc32c(std::span<const std::byte> bytes) {
  uint32_t c = 0xFFFFFFFFu;
  for (const std::byte b : bytes) c = kCrcTable[(c ^ std::to_integer<uint32_t>(b)) & 0xFF] ^ c >> 8;
  return ~c;
}

void big16(ByteWriter& out, uint32_t v) {
  out.u8(static_cast<uint8_t>(v >> 8));
  out.u8(static_cast<uint8_t>(v));
}
void big32(ByteWriter& out, uint32_t v) {
  big16(out, v >> 16);
  big16(out, v);
}
void little16(ByteWriter& out, uint16_t v) {
  out.u8(static_cast<uint8_t>(v));
  out.u8(static_cast<uint8_t>(v >> 8));
}
void pad(ByteWriter& out) {
  while (out.size() % 4 != 0) out.u8(0);
}

uint32_t ones_sum(std::span<const std::byte> bytes, uint32_t sum = 0) {
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    sum += std::to_integer<uint32_t>(bytes[i]) << 8 | std::to_integer<uint32_t>(bytes[i + 1]);
  }
  if (bytes.size() % 2 != 0) sum += std::to_integer<uint32_t>(bytes.back()) << 8;
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return sum;
}

/// The last four bytes of an IPv4-mapped address, when it is one.
bool is_mapped(const SocketAddress& a) {
  static constexpr std::array<uint8_t, 12> kPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  return a.family == 6 && std::equal(kPrefix.begin(), kPrefix.end(), a.bytes.begin());
}

/// IPv4 stays, everything else is written as IPv6.
bool is_ipv4(const SocketAddress& a, const SocketAddress& other) {
  const auto fits = [](const SocketAddress& x) {
    return x.family == 4 || is_mapped(x) || x.is_any();
  };
  return fits(a) && fits(other) && !(a.family == 6 && a.is_any() && other.family == 6 &&
                                     !is_mapped(other));
}

void write_address(ByteWriter& out, const SocketAddress& a, bool ipv4) {
  if (ipv4) {
    out.raw(a.bytes.data() + (is_mapped(a) ? 12 : 0), 4);
  } else if (a.family == 4) {
    big32(out, 0);
    big32(out, 0);
    big32(out, 0xFFFF);
    out.raw(a.bytes.data(), 4);
  } else {
    out.raw(a.bytes.data(), 16);
  }
}

}  // namespace

/// One datagram: what is known of it, and how long it is with its trailer.
struct PcapWriter::Parts {
  const SocketAddress* from = nullptr;
  const SocketAddress* to = nullptr;
  Ecn ecn = Ecn::kNotEct;
  bool outbound = false;
  bool whole = false;    ///< body is all of it: the trailer follows
  size_t length = 0;     ///< of the UDP payload, trailer included
};

PcapWriter::PcapWriter(std::FILE* file, std::string path, std::vector<SocketAddress> local,
                       size_t snap)
    : file_(file), path_(std::move(path)), local_(std::move(local)), snap_(snap) {}

PcapWriter::~PcapWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

Expected<std::unique_ptr<PcapWriter>, std::string> PcapWriter::create(
    const std::string& path, const std::vector<SocketAddress>& local, Duration to_wall_clock,
    size_t snap_length) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return unexpected(fmt::format("cannot write the capture {}: {}", path, strerror(errno)));
  }
  std::unique_ptr<PcapWriter> writer(new PcapWriter(file, path, local, snap_length));
  writer->to_wall_clock_ = to_wall_clock;
  ByteWriter& b = writer->block_;
  b.u32(kSectionHeader);
  b.u32(28);
  b.u32(kByteOrder);
  little16(b, 1);
  little16(b, 0);
  b.u64(~uint64_t{0});  // length of the section: not known
  b.u32(28);
  b.u32(kInterface);
  b.u32(32);
  little16(b, kLinkRawIp);
  little16(b, 0);
  b.u32(0);  // no limit of the interface
  little16(b, kOptionResolution);
  little16(b, 1);
  b.u32(9);  // nanoseconds
  b.u32(0);  // end of options
  b.u32(32);
  writer->write(b.bytes());
  if (!writer->error_.empty()) return unexpected(writer->error_);
  return writer;
}

void PcapWriter::write(std::span<const std::byte> bytes) {
  if (!error_.empty()) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    error_ = fmt::format("the capture {} ends after {} packets: {}", path_, packets_,
                         strerror(errno));
  }
}

void PcapWriter::flush() {
  if (std::fflush(file_) != 0 && error_.empty()) {
    error_ = fmt::format("the capture {}: {}", path_, strerror(errno));
  }
}

void PcapWriter::received(Time now, std::span<const engine::RxPacket> packets) {
  for (const engine::RxPacket& p : packets) received(now, p, p.bytes.size());
}

void PcapWriter::received(Time now, const engine::RxPacket& p, size_t known) {
  body_.clear();
  const bool bulk = !p.bytes.empty() && kept_length(p.bytes[0], p.bytes.size()) < p.bytes.size();
  const size_t limit = bulk ? snap_ : p.bytes.size();
  body_.raw(p.bytes.data(), std::min({known, p.bytes.size(), limit}));
  Parts parts;
  parts.from = &p.from;
  parts.to = &local_[std::min<size_t>(p.plane, local_.size() - 1)];
  parts.ecn = p.ecn;
  parts.length = p.bytes.size() + wire::kCrcBytes;
  parts.whole = body_.size() == p.bytes.size();
  packet(now, parts);
}

void PcapWriter::sent(Time now, std::span<const engine::TxRun> runs, bool payload) {
  for (const engine::TxRun& run : runs) {
    size_t at = 0;
    for (uint32_t i = 0; i < run.count; ++i) {
      body_.clear();
      body_.raw(run.headers + at, run.header_length[i]);
      Parts parts;
      parts.from = &run.from;
      parts.to = &run.to;
      parts.ecn = run.ecn;
      parts.outbound = true;
      parts.length = size_t{run.header_length[i]} + run.payload_length[i] + run.trailer;
      const bool known = run.payload_length[i] == 0 || (payload && run.payload[i] != nullptr);
      const size_t copied = known ? std::min<size_t>(run.payload_length[i], snap_) : 0;
      if (copied > 0) body_.raw(run.payload[i], copied);
      parts.whole = known && copied == run.payload_length[i];
      packet(now, parts);
      at += size_t{run.header_length[i]} + run.trailer;
    }
  }
}

void PcapWriter::packet(Time now, const Parts& p) {
  if (!error_.empty()) return;
  const bool ipv4 = is_ipv4(*p.from, *p.to);
  const size_t udp_length = 8 + p.length;
  frame_.clear();
  if (ipv4) {
    frame_.u8(0x45);
    frame_.u8(static_cast<uint8_t>(p.ecn));
    big16(frame_, static_cast<uint32_t>(20 + udp_length));
    big32(frame_, 0x4000);  // identification 0, don't fragment
    frame_.u8(64);
    frame_.u8(17);
    big16(frame_, 0);
    write_address(frame_, *p.from, true);
    write_address(frame_, *p.to, true);
    const uint32_t sum = ~ones_sum(frame_.bytes());
    ByteWriter fixed;
    fixed.raw(frame_.bytes().data(), 10);
    big16(fixed, sum & 0xFFFF);
    fixed.raw(frame_.bytes().data() + 12, 8);
    std::swap(frame_, fixed);
  } else {
    big32(frame_, 6u << 28 | static_cast<uint32_t>(p.ecn) << 20);
    big16(frame_, static_cast<uint32_t>(udp_length));
    frame_.u8(17);
    frame_.u8(64);
    write_address(frame_, *p.from, false);
    write_address(frame_, *p.to, false);
  }
  const size_t total = frame_.size() + udp_length;
  big16(frame_, p.from->port);
  big16(frame_, p.to->port);
  big16(frame_, static_cast<uint32_t>(udp_length));
  big16(frame_, 0);  // no checksum: not known at this place
  frame_.raw(body_.bytes().data(), body_.size());
  if (p.whole) big32(frame_, crc32c(body_.bytes()));
  const size_t captured = frame_.size();

  block_.clear();
  const auto length = static_cast<uint32_t>(28 + (captured + 3) / 4 * 4 + 12 + 4);
  block_.u32(kEnhancedPacket);
  block_.u32(length);
  block_.u32(0);
  const auto stamp = static_cast<uint64_t>((now + to_wall_clock_).ns);
  block_.u32(static_cast<uint32_t>(stamp >> 32));
  block_.u32(static_cast<uint32_t>(stamp));
  block_.u32(static_cast<uint32_t>(captured));
  block_.u32(static_cast<uint32_t>(total));
  block_.raw(frame_.bytes().data(), captured);
  pad(block_);
  little16(block_, kOptionFlags);
  little16(block_, 4);
  block_.u32(p.outbound ? 2 : 1);
  block_.u32(0);
  block_.u32(length);
  write(block_.bytes());
  ++packets_;
}

}  // namespace metaroce::telemetry
