#include "telemetry/recording.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstring>

namespace metaroce::telemetry {
namespace {

constexpr size_t kMaxPacket = 65536;
constexpr size_t kKnownAddresses = 64;
constexpr size_t kMaxSettings = 1000;
constexpr size_t kMaxRequests = 1u << 20;  // posted by one call, or completions asked for

}  // namespace

Recording::~Recording() {
  if (file_ != nullptr) std::fclose(file_);
}

Expected<std::unique_ptr<Recording>, std::string> Recording::open(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    return unexpected(fmt::format("cannot read {}: {}", path, strerror(errno)));
  }
  std::unique_ptr<Recording> recording(new Recording(file, path));
  std::byte head[kFileHeader];
  const size_t n = std::fread(head, 1, sizeof head, file);
  if (n < sizeof head || std::memcmp(head, kRecordMagic.data(), kRecordMagic.size()) != 0) {
    return unexpected(path + " is no recording (it does not begin with \"" +
                      std::string(kRecordMagic) + "\")");
  }
  uint32_t version = 0;
  std::memcpy(&version, head + kRecordMagic.size(), sizeof version);
  if (version != kRecordVersion) {
    return unexpected(fmt::format(
        "{} is a recording of version {}; this program reads version {}: use the program that "
        "wrote it",
        path, version, kRecordVersion));
  }
  recording->next_offset_ = kFileHeader;
  if (!recording->read_configuration()) return unexpected(recording->error_);
  return recording;
}

bool Recording::damaged(const std::string& what) {
  if (error_.empty()) {
    error_ = fmt::format("{} is damaged: {}, in the block at byte {}, after {} calls", path_, what,
                         offset_, calls_);
  }
  return false;
}

bool Recording::read_block(bool& end_of_file) {
  end_of_file = false;
  offset_ = next_offset_;
  std::byte head[kBlockHeader];
  const size_t n = std::fread(head, 1, sizeof head, file_);
  if (n == 0 && std::feof(file_) != 0) {
    end_of_file = true;
    return false;
  }
  if (n < sizeof head) return damaged("the file ends inside a block's header");
  ByteReader in(head);
  const uint32_t magic = in.u32();
  const uint32_t length = in.u32();
  const uint64_t first = in.u64();
  const uint64_t sum = in.u64();
  if (magic != kBlockMagic) return damaged("no block begins where one should");
  if (length > kMaxBlock) return damaged(fmt::format("a block of {} bytes", length));
  block_.resize(length);
  const size_t got = std::fread(block_.data(), 1, length, file_);
  if (got < length) {
    return damaged(fmt::format("the file ends after {} of {} bytes", got, length));
  }
  if (checksum(block_) != sum) return damaged("the checksum is wrong");
  if (first != calls_) return damaged(fmt::format("the block begins with call {}", first));
  next_offset_ = offset_ + kBlockHeader + length;
  in_ = ByteReader(block_);
  return true;
}

bool Recording::read_settings(ByteReader& in) {
  const uint64_t count = in.number(kMaxSettings);
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    const std::string name = in.text(64);
    const int64_t value = in.signed_number();
    bool known = false;
    bool in_range = true;
#define MR_SETTING(type, field, preset, minimum, maximum, unit, meaning)                  \
  if (name == #field) {                                                                   \
    known = true;                                                                         \
    in_range = value <= int64_t{maximum} &&                                               \
               (value >= int64_t{minimum} || (name == "inflight_packets" && value >= 0)); \
    config_.settings.field = static_cast<type>(value);                                    \
  }
#include "base/settings.def"
#undef MR_SETTING
    if (!known && in.ok()) {
      return damaged("it names the setting \"" + name + "\", which this program does not have");
    }
    if (!in_range) return damaged(fmt::format("the setting {} is {}", name, value));
  }
  return in.ok();
}

bool Recording::read_configuration() {
  bool end_of_file = false;
  if (!read_block(end_of_file)) {
    return end_of_file ? damaged("the configuration is missing") : false;
  }
  if (!read_settings(in_)) return damaged("the settings cannot be read");
  const uint64_t planes = in_.number(kMaxPlanes);
  for (uint64_t i = 0; i < planes; ++i) config_.local.push_back(in_.address());
  const uint64_t mtus = in_.number(kMaxPlanes);
  for (uint64_t i = 0; i < mtus; ++i) {
    config_.plane_mtu.push_back(static_cast<uint16_t>(in_.number(0xFFFF)));
  }
  config_.accept = in_.u8() != 0;
  config_.first_source_port = static_cast<uint16_t>(in_.number(0xFFFF));
  config_.payload_alignment = static_cast<uint32_t>(in_.number(65536));
  std::array<uint64_t, 4> state{};
  for (uint64_t& word : state) word = in_.u64();
  rng_ = Rng::from_state(state);
  to_wall_clock_ = nanoseconds(in_.signed_number());
  begin_ = Time{in_.signed_number()};
  if (!in_.ok() || config_.local.empty() || !in_.at_end()) {
    return damaged("the configuration cannot be read");
  }
  return true;
}

Recording::Next Recording::next(RecordedCall& call) {
  if (!error_.empty()) return Next::kDamaged;
  while (in_.at_end()) {
    bool end_of_file = false;
    if (!read_block(end_of_file)) return end_of_file ? Next::kCut : Next::kDamaged;
  }
  if (!read_call(call)) return Next::kDamaged;
  if (call.kind == CallKind::kEnd) return Next::kEnd;
  ++calls_;
  return Next::kCall;
}

SocketAddress Recording::address() {
  const uint64_t index = in_.number(addresses_.size());
  if (index < addresses_.size()) return addresses_[index];
  const SocketAddress a = in_.address();
  if (in_.ok() && addresses_.size() < kKnownAddresses) addresses_.push_back(a);
  return a;
}

bool Recording::read_call(RecordedCall& call) {
  const uint8_t first = in_.u8();
  if ((first & kKindMask) >= static_cast<uint8_t>(CallKind::kCount)) {
    return damaged(fmt::format("there is no call of kind {}", first & kKindMask));
  }
  call.kind = static_cast<CallKind>(first & kKindMask);
  call.has_hash = (first & kHasHash) != 0;
  if ((first & kHasTime) != 0) {
    now_ = Time{static_cast<int64_t>(static_cast<uint64_t>(now_.ns) +
                                     static_cast<uint64_t>(in_.signed_number()))};
  }
  call.now = now_;
  switch (call.kind) {
    case CallKind::kPackets:
      if (!read_packets(call)) return damaged("a packet cannot be read");
      break;
    case CallKind::kPost:
      read_work(call);
      break;
    case CallKind::kPostReceives:
      read_receives(call);
      break;
    default:
      read_rest(call);
  }
  if (call.has_hash) call.hash = in_.u32();
  if (!in_.ok()) return damaged(fmt::format("a call of {} is cut", to_string(call.kind)));
  return true;
}

bool Recording::read_packets(RecordedCall& call) {
  const uint64_t count = in_.number(kMaxBatch);
  call.packets.clear();
  call.known.clear();
  size_t total = 0;
  std::vector<size_t> begin;
  for (uint64_t i = 0; i < count && in_.ok(); ++i) {
    engine::RxPacket p;
    const uint8_t where = in_.u8();
    p.ecn = static_cast<Ecn>(where & 3);
    p.plane = where >> 2;
    if (p.plane >= config_.local.size()) return false;
    p.from = address();
    const size_t length = in_.number(kMaxPacket);
    // The first byte says how much of it was kept.
    const size_t keep = length == 0 ? 0 : kept_length(in_.peek(), length);
    const auto bytes = in_.raw(keep);
    if (!in_.ok()) return false;
    begin.push_back(total);
    total += length;
    if (packet_bytes_.size() < total) packet_bytes_.resize(total);
    if (keep > 0) std::memcpy(packet_bytes_.data() + begin.back(), bytes.data(), keep);
    p.bytes = {static_cast<const std::byte*>(nullptr), length};
    call.packets.push_back(p);
    call.known.push_back(static_cast<uint32_t>(keep));
  }
  for (size_t i = 0; i < call.packets.size(); ++i) {
    call.packets[i].bytes = {packet_bytes_.data() + begin[i], call.packets[i].bytes.size()};
  }
  return in_.ok();
}

void Recording::read_work(RecordedCall& call) {
  call.work.clear();
  call.segments.clear();
  const uint64_t count = in_.number(kMaxRequests);
  for (uint64_t i = 0; i < count && in_.ok(); ++i) {
    engine::WorkRequest r;
    r.id = in_.number();
    r.connection = in_.u32();
    r.stream = static_cast<uint16_t>(in_.number(0xFFFF));
    const uint8_t operation = in_.u8();
    if (operation > static_cast<uint8_t>(engine::Operation::kCompareSwap)) in_.fail();
    r.operation = static_cast<engine::Operation>(operation);
    const uint8_t flags = in_.u8();
    r.solicited = (flags & 1) != 0;
    r.fence = (flags & 2) != 0;
    r.unordered = (flags & 4) != 0;
    r.copied = (flags & 8) != 0;
    r.signalled = (flags & 16) != 0;
    r.local = std::bit_cast<const std::byte*>(in_.number());
    r.result = std::bit_cast<std::byte*>(in_.number());
    r.length = in_.number();
    r.remote_address = in_.number();
    r.remote_key = in_.u32();
    r.immediate = in_.u32();
    r.operand = in_.number();
    r.swap = in_.number();
    r.segments = read_segments(call);
    call.work.push_back(r);
  }
}

std::span<const engine::Segment> Recording::read_segments(RecordedCall& call) {
  const uint64_t count = in_.number(engine::kMaxSegments + 1);
  if (count == 0 || !in_.ok()) return {};
  std::vector<engine::Segment>& list = call.segments.emplace_back();
  for (uint64_t i = 0; i < count && in_.ok(); ++i) {
    const auto address = std::bit_cast<std::byte*>(in_.number());
    list.push_back({address, in_.number()});
  }
  return list;
}

void Recording::read_receives(RecordedCall& call) {
  call.receives.clear();
  call.segments.clear();
  const uint64_t count = in_.number(kMaxRequests);
  for (uint64_t i = 0; i < count && in_.ok(); ++i) {
    engine::ReceiveRequest r;
    r.id = in_.number();
    r.connection = in_.u32();
    r.stream = static_cast<uint16_t>(in_.number(0xFFFF));
    r.buffer = std::bit_cast<std::byte*>(in_.number());
    r.length = in_.number();
    r.shared_queue = in_.u32();
    r.segments = read_segments(call);
    call.receives.push_back(r);
  }
}

void Recording::read_rest(RecordedCall& call) {
  switch (call.kind) {
    case CallKind::kTransmit:
    case CallKind::kCompletions:
    case CallKind::kEvents:
      call.capacity = in_.number(call.kind == CallKind::kTransmit ? kMaxBatch : kMaxRequests);
      return;
    case CallKind::kConnect: {
      call.connect.peer.clear();
      const uint64_t count = in_.number(kMaxPlanes);
      for (uint64_t i = 0; i < count; ++i) call.connect.peer.push_back(in_.address());
      return;
    }
    case CallKind::kClose:
      call.connection = in_.u32();
      call.value = in_.u32();
      return;
    case CallKind::kNetworkHint:
      call.connection = in_.u32();
      call.path = in_.u8();
      call.hint = static_cast<engine::NetworkHint>(in_.u8());
      if (call.hint > engine::NetworkHint::kNotSent) in_.fail();
      call.value = in_.u32();
      return;
    case CallKind::kPlaneState:
      call.path = in_.u8();
      call.up = in_.u8() != 0;
      return;
    case CallKind::kChangePort:
      call.connection = in_.u32();
      call.path = in_.u8();
      call.value = static_cast<uint32_t>(in_.number(0xFFFF));
      return;
    case CallKind::kAddRegion:
      call.base = std::bit_cast<std::byte*>(in_.number());
      call.length = in_.number();
      call.rights = in_.u8();
      call.remote_base = in_.number();
      return;
    case CallKind::kTune: {
      const uint8_t what = in_.u8();
      if (what >= static_cast<uint8_t>(Tune::What::kCount)) return in_.fail();
      call.tune.what = static_cast<Tune::What>(what);
      call.tune.connection = in_.u32();
      call.tune.stream = static_cast<uint16_t>(in_.number(0xFFFF));
      for (uint64_t* n : {&call.tune.a, &call.tune.b, &call.tune.c, &call.tune.d, &call.tune.e}) {
        *n = in_.number();
      }
      return;
    }
    case CallKind::kRemoveRegion:
      call.value = static_cast<uint32_t>(in_.number(0xFFFFFFFF));
      return;
    case CallKind::kEnd:
      call.total_calls = in_.u64();
      call.state_hash = in_.u64();
      call.output_hash = in_.u64();
      return;
    default:
      return;
  }
}

}  // namespace metaroce::telemetry
