#include "engine/listener.h"

#include <algorithm>

namespace metaroce::engine {
namespace {

constexpr Duration kRemembered = seconds(10);  // twice the longest set-up

void absorb(SipHash& hash, uint64_t value) { hash.update(std::as_bytes(std::span(&value, 1))); }

}  // namespace

Cookies::Cookies(Rng rng, Duration life)
    : key0_(rng.next()), key1_(rng.next()), half_life_ns_(std::max<int64_t>(life.ns / 2, 1)) {}

uint64_t Cookies::mac(uint32_t period, const SocketAddress& from, uint64_t nonce) const {
  SipHash key(key0_, key1_);
  absorb(key, period);
  SipHash hash(key.finish(), key1_ ^ period);
  hash.update(std::as_bytes(std::span(from.bytes)));
  absorb(hash, uint64_t{from.port} << 8 | from.family);
  absorb(hash, nonce);
  return hash.finish();
}

Cookie Cookies::make(Time now, const SocketAddress& from, uint64_t nonce) const {
  Cookie cookie{};
  const uint32_t period = period_at(now);
  const uint64_t m = mac(period, from, nonce);
  __builtin_memcpy(cookie.data(), &period, sizeof period);
  __builtin_memcpy(cookie.data() + 8, &m, sizeof m);
  return cookie;
}

bool Cookies::check(Time now, const SocketAddress& from, uint64_t nonce,
                    const Cookie& cookie) const {
  uint32_t period = 0;
  uint64_t m = 0;
  __builtin_memcpy(&period, cookie.data(), sizeof period);
  __builtin_memcpy(&m, cookie.data() + 8, sizeof m);
  // This half life or the one before: never older than the whole.
  return period_at(now) - period <= 1 && m == mac(period, from, nonce);
}

uint32_t HalfOpenList::of(const SocketAddress& source) const {
  return static_cast<uint32_t>(std::count_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.source.same_host(source);
  }));
}

void PastNonces::forget_old(Time now) {
  while (!ring_.empty() && (ring_.full() || now - ring_.front().at > kRemembered)) {
    index_.erase(ring_.front().nonce);
    ring_.pop();
  }
}

void PastNonces::add(Time now, uint64_t nonce) {
  forget_old(now);
  if (index_.find(nonce) != FlatMap::kNone) return;
  ring_.push({nonce, now});
  index_.insert(nonce, 0);
}

bool PastNonces::contains(Time now, uint64_t nonce) {
  while (!ring_.empty() && now - ring_.front().at > kRemembered) {
    index_.erase(ring_.front().nonce);
    ring_.pop();
  }
  return index_.find(nonce) != FlatMap::kNone;
}

bool SourceLimit::allows(Time now, const SocketAddress& source) {
  uint32_t h = source.family;
  for (const uint8_t b : source.bytes) h = (h ^ b) * 0x01000193u;
  Time& last = last_[(h >> 16) % last_.size()];
  if (now - last < interval_) return false;
  last = now;
  return true;
}

}  // namespace metaroce::engine
