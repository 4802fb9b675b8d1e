#include "secure/session.h"

#include <algorithm>

#include "base/assert.h"

namespace metaroce::secure {
namespace {

/// No sender skips more within a generation; what is farther off is not worth a decryption.
constexpr int64_t kReach = 1 << 19;

/// The count of 64 bits whose low 32 are `sequence`, nearest to `newest` (MR-SEC-004).
uint64_t extend(uint64_t newest, uint32_t sequence) {
  const auto step = static_cast<int32_t>(sequence - static_cast<uint32_t>(newest));
  return newest + static_cast<uint64_t>(static_cast<int64_t>(step));
}

}  // namespace

Session::Session(Suite suite, const Secret& send, const Secret& receive, uint32_t paths)
    : suite_(suite),
      send_secret_(send),
      receive_secret_(receive),
      send_(std::make_unique<Key>(suite, Cipher::Direction::kSeal)),
      receive_before_(std::make_unique<Key>(suite, Cipher::Direction::kOpen)),
      receive_(std::make_unique<Key>(suite, Cipher::Direction::kOpen)),
      receive_next_(std::make_unique<Key>(suite, Cipher::Direction::kOpen)),
      send_paths_(paths),
      receive_paths_(paths) {
  install(*send_, send_secret_);
  install(*receive_, receive_secret_);
  install(*receive_before_, receive_secret_);  // never used before the first update
  next_traffic(receive_secret_);
  install(*receive_next_, receive_secret_);
  send_acks_.open = receive_acks_.open = true;
}

Session::~Session() = default;

void Session::install(Key& key, const Secret& traffic) {
  TrafficKeys keys;
  traffic_keys(traffic, keys);
  key.cipher.set_key(Bytes(keys.key).first(key_bytes(suite_)));
  key.iv = keys.iv;
}

Nonce Session::nonce(const Key& key, const PacketName& name, uint16_t generation,
                     uint64_t counter) {
  Nonce n = key.iv;
  n[0] ^= static_cast<std::byte>(name.ack ? 1 : 0);
  n[1] ^= static_cast<std::byte>(name.path);
  n[2] ^= static_cast<std::byte>(generation >> 8);
  n[3] ^= static_cast<std::byte>(generation);
  for (size_t i = 0; i < 8; ++i) n[4 + i] ^= static_cast<std::byte>(counter >> (56 - 8 * i));
  return n;
}

void Session::open_send_path(uint8_t path, uint16_t generation, uint32_t start) {
  MR_ASSERT(path < send_paths_.size());
  send_paths_[path] = {true, generation, start};
}

void Session::open_receive_path(uint8_t path, uint16_t generation, uint32_t start) {
  if (path >= receive_paths_.size()) return;
  receive_paths_[path] = {true, generation, start};
}

void Session::seal(const PacketName& name, Bytes header, const std::byte* in, size_t length,
                   std::byte* out, std::byte* tag) {
  Path& path = name.ack ? send_acks_ : send_paths_[name.path];
  const uint64_t counter = extend(path.newest, name.sequence);
  path.newest = std::max(path.newest, counter);
  // MR-SEC-004, MR-SEC-005: class, path, generation and count make it one of its kind.
  send_->cipher.seal(nonce(*send_, name, path.generation, counter), header, in, length, out, tag);
}

void Session::update_send_key() {
  next_traffic(send_secret_);
  install(*send_, send_secret_);
  ++send_generation_;
  sent_under_key_ = 0;
}

bool Session::try_open(Key& key, const Nonce& nonce, Bytes header, std::byte* data, size_t length,
                       const std::byte* tag, bool last_try) {
  if (key.cipher.open(nonce, header, data, length, tag)) return true;
  // The ciphers are streams: the same again gives back what came, for the next key to try.
  if (!last_try) key.cipher.open(nonce, header, data, length, tag);
  return false;
}

void Session::advance_receive_key(Time now, Duration keep) {
  std::swap(receive_before_, receive_);
  std::swap(receive_, receive_next_);
  next_traffic(receive_secret_);
  install(*receive_next_, receive_secret_);
  ++receive_generation_;
  before_until_ = now + keep;
}

Opened Session::open(Time now, Duration keep, const PacketName& name, bool phase, Bytes header,
                     std::byte* data, size_t length, const std::byte* tag) {
  if (!name.ack && (name.path >= receive_paths_.size() || !receive_paths_[name.path].open)) {
    return Opened::kUnknownPath;
  }
  Path& path = name.ack ? receive_acks_ : receive_paths_[name.path];
  const uint64_t counter = extend(path.newest, name.sequence);
  const auto step = static_cast<int64_t>(counter - path.newest);
  if (step >= kReach || step <= -kReach) return Opened::kTooFar;
  const uint16_t generation = path.generation;
  bool good = false;
  if (phase == ((receive_generation_ & 1) != 0)) {
    good = try_open(*receive_, nonce(*receive_, name, generation, counter), header, data, length,
                    tag, true);
  } else {
    // MR-SEC-006: late under the key before, or the first under the next one.
    good = now < before_until_ &&
           try_open(*receive_before_, nonce(*receive_before_, name, generation, counter), header,
                    data, length, tag, false);
    if (!good) {
      good = try_open(*receive_next_, nonce(*receive_next_, name, generation, counter), header,
                      data, length, tag, true);
      if (good) advance_receive_key(now, keep);
    }
  }
  if (!good) return Opened::kBadTag;
  path.newest = std::max(path.newest, counter);  // only what verified moves the count (MR-SEC-004)
  return Opened::kYes;
}

}  // namespace metaroce::secure
