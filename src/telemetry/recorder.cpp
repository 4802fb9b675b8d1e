#include "telemetry/recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace metaroce::telemetry {
namespace {

constexpr size_t kBlockTarget = 256u << 10;
constexpr size_t kKnownAddresses = 64;  // beyond these an address is written out again

}  // namespace

const char* to_string(CallKind kind) {
  switch (kind) {
    case CallKind::kEnd:
      return "end";
    case CallKind::kPackets:
      return "on_packets";
    case CallKind::kTransmit:
      return "poll_transmit";
    case CallKind::kDeadline:
      return "on_deadline";
    case CallKind::kPost:
      return "post";
    case CallKind::kPostReceives:
      return "post_receives";
    case CallKind::kCompletions:
      return "poll_completions";
    case CallKind::kEvents:
      return "poll_events";
    case CallKind::kConnect:
      return "connect";
    case CallKind::kClose:
      return "close";
    case CallKind::kNetworkHint:
      return "on_network_hint";
    case CallKind::kPlaneState:
      return "on_plane_state";
    case CallKind::kChangePort:
      return "change_port";
    case CallKind::kAddRegion:
      return "regions.add";
    case CallKind::kRemoveRegion:
      return "regions.remove";
    case CallKind::kTune:
      return "tune";
    case CallKind::kCount:
      break;
  }
  return "?";
}

Recorder::Recorder(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

Expected<std::unique_ptr<Recorder>, std::string> Recorder::create(
    const std::string& path, const engine::EngineConfig& config, const Rng& rng,
    Duration to_wall_clock, Time begin) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) {
    return unexpected(fmt::format("cannot write the recording {}: {}", path, strerror(errno)));
  }
  std::unique_ptr<Recorder> recorder(new Recorder(fd, path));
  recorder->configuration(config, rng, to_wall_clock, begin);
  if (!recorder->error_.empty()) return unexpected(recorder->error_);
  return recorder;
}

Recorder::~Recorder() {
  if (!finished_) flush_block();
  ::close(fd_);
}

void Recorder::configuration(const engine::EngineConfig& config, const Rng& rng,
                             Duration to_wall_clock, Time begin) {
  ByteWriter head;
  head.raw(kRecordMagic.data(), kRecordMagic.size());
  head.u32(kRecordVersion);
  head.u32(0);
  write_all(head.bytes().data(), head.size());
  int count = 0;
  setting_table(count);
  block_.number(static_cast<uint64_t>(count));
#define MR_SETTING(type, name, value, minimum, maximum, unit, meaning) \
  block_.text(#name);                                                  \
  block_.signed_number(static_cast<int64_t>(config.settings.name));
#include "base/settings.def"
#undef MR_SETTING
  block_.number(config.local.size());
  for (const SocketAddress& a : config.local) block_.address(a);
  block_.number(config.plane_mtu.size());
  for (const uint16_t mtu : config.plane_mtu) block_.number(mtu);
  block_.u8(config.accept ? 1 : 0);
  block_.number(config.first_source_port);
  block_.number(config.payload_alignment);
  for (const uint64_t word : rng.state()) block_.u64(word);
  block_.signed_number(to_wall_clock.ns);
  block_.signed_number(begin.ns);
  flush_block();
}

// ---- inputs -------------------------------------------------------------------------------------

void Recorder::begin(CallKind kind, Time now) {
  call_.clear();
  kind_ = kind;
  has_time_ = now != last_;
  delta_ = now.ns - last_.ns;
  last_ = now;
}

void Recorder::begin(CallKind kind) {
  call_.clear();
  kind_ = kind;
  has_time_ = false;
}

void Recorder::address(const SocketAddress& a) {
  const auto known = std::find(addresses_.begin(), addresses_.end(), a);
  call_.number(static_cast<uint64_t>(known - addresses_.begin()));
  if (known != addresses_.end()) return;
  call_.address(a);
  if (addresses_.size() < kKnownAddresses) addresses_.push_back(a);
}

void Recorder::packets(Time now, std::span<const engine::RxPacket> list) {
  begin(CallKind::kPackets, now);
  call_.number(list.size());
  for (const engine::RxPacket& p : list) {
    const size_t keep = p.bytes.empty() ? 0 : kept_length(p.bytes[0], p.bytes.size());
    call_.u8(static_cast<uint8_t>(static_cast<uint8_t>(p.ecn) | (p.plane << 2)));
    address(p.from);
    call_.number(p.bytes.size());
    call_.raw(p.bytes.data(), keep);
  }
}

void Recorder::transmit(Time now, size_t capacity) {
  begin(CallKind::kTransmit, now);
  call_.number(capacity);
}

void Recorder::deadline(Time now) { begin(CallKind::kDeadline, now); }

namespace {

uint8_t flags_of(const engine::WorkRequest& r) {
  return static_cast<uint8_t>(r.solicited | r.fence << 1 | r.unordered << 2 | r.copied << 3 |
                              r.signalled << 4);
}

}  // namespace

void Recorder::post(Time now, std::span<const engine::WorkRequest> requests) {
  begin(CallKind::kPost, now);
  call_.number(requests.size());
  for (const engine::WorkRequest& r : requests) {
    call_.number(r.id);
    call_.u32(r.connection);
    call_.number(r.stream);
    call_.u8(static_cast<uint8_t>(r.operation));
    call_.u8(flags_of(r));
    call_.number(std::bit_cast<uint64_t>(r.local));
    call_.number(std::bit_cast<uint64_t>(r.result));
    call_.number(r.length);
    call_.number(r.remote_address);
    call_.u32(r.remote_key);
    call_.u32(r.immediate);
    call_.number(r.operand);
    call_.number(r.swap);
    segments(r.segments);
  }
}

void Recorder::segments(std::span<const engine::Segment> list) {
  const auto n = std::min<size_t>(list.size(), engine::kMaxSegments + 1);  // more is refused anyway
  call_.number(n);
  for (const engine::Segment& s : list.first(n)) {
    call_.number(std::bit_cast<uint64_t>(s.address));
    call_.number(s.length);
  }
}

void Recorder::post_receives(Time now, std::span<const engine::ReceiveRequest> requests) {
  begin(CallKind::kPostReceives, now);
  call_.number(requests.size());
  for (const engine::ReceiveRequest& r : requests) {
    call_.number(r.id);
    call_.u32(r.connection);
    call_.number(r.stream);
    call_.number(std::bit_cast<uint64_t>(r.buffer));
    call_.number(r.length);
    call_.u32(r.shared_queue);
    segments(r.segments);
  }
}

void Recorder::completions(size_t capacity) {
  begin(CallKind::kCompletions);
  call_.number(capacity);
}

void Recorder::events(size_t capacity) {
  begin(CallKind::kEvents);
  call_.number(capacity);
}

void Recorder::connect(Time now, const engine::ConnectRequest& request) {
  begin(CallKind::kConnect, now);
  call_.number(request.peer.size());
  for (const SocketAddress& a : request.peer) call_.address(a);
}

void Recorder::close(Time now, engine::ConnectionHandle connection, uint32_t code) {
  begin(CallKind::kClose, now);
  call_.u32(connection);
  call_.u32(code);
}

void Recorder::network_hint(Time now, engine::ConnectionHandle connection, uint8_t path,
                            engine::NetworkHint hint, uint32_t value) {
  begin(CallKind::kNetworkHint, now);
  call_.u32(connection);
  call_.u8(path);
  call_.u8(static_cast<uint8_t>(hint));
  call_.u32(value);
}

void Recorder::plane_state(Time now, uint8_t plane, bool up) {
  begin(CallKind::kPlaneState, now);
  call_.u8(plane);
  call_.u8(up ? 1 : 0);
}

void Recorder::change_port(Time now, engine::ConnectionHandle connection, uint8_t path,
                           uint16_t port) {
  begin(CallKind::kChangePort, now);
  call_.u32(connection);
  call_.u8(path);
  call_.number(port);
}

void Recorder::add_region(const void* base, uint64_t length, uint8_t rights, uint64_t remote_base) {
  begin(CallKind::kAddRegion);
  call_.number(std::bit_cast<uint64_t>(base));
  call_.number(length);
  call_.u8(rights);
  call_.number(remote_base);
}

void Recorder::tune(Time now, const Tune& t) {
  begin(CallKind::kTune, now);
  call_.u8(static_cast<uint8_t>(t.what));
  call_.u32(t.connection);
  call_.number(t.stream);
  for (const uint64_t n : {t.a, t.b, t.c, t.d, t.e}) call_.number(n);
}

void Recorder::remove_region(uint32_t index) {
  begin(CallKind::kRemoveRegion);
  call_.number(index);
}

// ---- blocks -------------------------------------------------------------------------------------

void Recorder::done(bool quiet, Time next_deadline) {
  quiet = quiet && next_deadline == next_deadline_;
  next_deadline_ = next_deadline;
  if (!quiet) hash_.mix(static_cast<uint64_t>(next_deadline.ns));
  if (!error_.empty() || finished_) return;
  block_.u8(static_cast<uint8_t>(static_cast<uint8_t>(kind_) | (has_time_ ? kHasTime : 0) |
                                 (quiet ? 0 : kHasHash)));
  if (has_time_) block_.signed_number(delta_);
  block_.raw(call_.bytes().data(), call_.size());
  if (!quiet) block_.u32(static_cast<uint32_t>(hash_.value()));
  ++calls_;
  if (block_.size() >= kBlockTarget || last_ - flushed_at_ > seconds(1)) {
    flushed_at_ = last_;
    flush_block();
  }
}

void Recorder::finish(uint64_t state_hash) {
  if (finished_) return;
  finished_ = true;
  block_.u8(static_cast<uint8_t>(CallKind::kEnd));
  block_.u64(calls_);
  block_.u64(state_hash);
  block_.u64(hash_.value());
  flush_block();
}

void Recorder::flush_block() {
  if (block_.size() == 0 || !error_.empty()) return;
  ByteWriter head;
  head.u32(kBlockMagic);
  head.u32(static_cast<uint32_t>(block_.size()));
  head.u64(block_first_);
  head.u64(checksum(block_.bytes()));
  write_all(head.bytes().data(), head.size());
  write_all(block_.bytes().data(), block_.size());
  block_.clear();
  block_first_ = calls_;
}

void Recorder::write_all(const void* data, size_t length) {
  const auto* p = static_cast<const char*>(data);
  while (length > 0 && error_.empty()) {
    const ssize_t n = ::write(fd_, p, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      error_ = fmt::format("the recording {} ends after {} bytes: {}", path_, written_,
                           n < 0 ? strerror(errno) : "nothing was written");
      return;
    }
    p += n;
    length -= static_cast<size_t>(n);
    written_ += static_cast<uint64_t>(n);
  }
}

}  // namespace metaroce::telemetry
