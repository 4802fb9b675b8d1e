#include "wire/packet.h"

#include <gtest/gtest.h>
#ifdef MR_HAVE_RAPIDCHECK
#include <rapidcheck/gtest.h>
#endif

#include <algorithm>
#include <string>

#include "base/rng.h"
#include "wire_table.h"

namespace metaroce::wire::table {
namespace {

// Any values in any allowed combination, for a form of the field table.
template <class P>
P random_packet(const Form<P>& form, Rng& rng) {
  P p = form.base;
  for (const Field<P>& f : form.fields) {
    Bits b(f.width);
    for (size_t i = 0; i < f.width; ++i) b[i] = (rng.next() & 1) != 0;
    if (f.value_count > 0) {
      b = bits_of_number(f.values[rng.below(f.value_count)], f.width);
    } else if (f.width <= 32) {
      b = bits_of_number(f.low + rng.below(f.high - f.low + 1), f.width);
    }
    f.set(p, b);
  }
  return p;
}

void keep_refused_inside_map(AckPacket& a) { a.refused = a.refused & a.map; }
void keep_refused_inside_map(AckWidePacket& a) {
  for (size_t i = 0; i < a.map.size(); ++i) a.refused[i] &= a.map[i];
}
template <class P>
void keep_refused_inside_map(P&) {}

// An address without family has no bytes; the four bytes of IPv4 are the first.
void trim(SocketAddress& a) {
  if (a.family == 0) a = {};
  if (a.family == 4) std::fill(a.bytes.begin() + 4, a.bytes.end(), uint8_t{0});
}
void trim_addresses(ControlPacket& c) {
  trim(c.address[0]);
  trim(c.address[1]);
}
template <class P>
void trim_addresses(P&) {}

template <class P>
bool round_trips(const Form<P>& form, Rng& rng) {
  P p = random_packet(form, rng);
  keep_refused_inside_map(p);
  trim_addresses(p);
  size_t payload = form.payload_least;
  if constexpr (std::is_same_v<P, DataPacket>) {
    p.payload_begin = static_cast<uint32_t>(form.bytes);
    p.payload_length = static_cast<uint32_t>(payload);
  }
  const Decoded<AnyPacket> back = decode(encoded(p, payload));
  return back && *back == AnyPacket(p);
}

// decode(encode(decode(x))) == decode(x), and no read behind the end (sanitizers see it).
bool is_total(const std::vector<std::byte>& bytes) {
  const Decoded<AnyPacket> first = decode(bytes);
  if (!first) return first.error() != DropReason::kNone && first.error() < DropReason::kCount;
  return std::visit(
      [&](const auto& p) {
        size_t payload = 0;
        if constexpr (std::is_same_v<std::decay_t<decltype(p)>, DataPacket>) {
          payload = p.payload_length;
        }
        const Decoded<AnyPacket> second = decode(encoded(p, payload));
        return second && *second == *first;
      },
      *first);
}

// Bytes that get past the first checks more often than noise would.
std::vector<std::byte> likely_bytes(Rng& rng) {
  std::vector<std::byte> bytes;
  const uint64_t pick = rng.below(34);
  uint64_t i = 0;
  for_each_form([&](const auto& form) {
    if (i++ == pick) bytes = encoded(random_packet(form, rng), rng.below(64));
  });
  for (uint64_t n = rng.below(4); n > 0; --n) {
    bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.next());
  }
  if (rng.below(4) == 0) bytes.resize(rng.below(bytes.size()));
  return bytes;
}

#ifdef MR_HAVE_RAPIDCHECK

RC_GTEST_PROP(Packet, EveryKindRoundTrips, (uint64_t seed)) {
  Rng rng(seed);
  for_each_form([&](const auto& form) {
    RC_LOG() << std::string(form.name);
    RC_ASSERT(round_trips(form, rng));
  });
}

RC_GTEST_PROP(Packet, AnyBytesGiveAPacketOrAReason, (const std::vector<uint8_t>& noise)) {
  std::vector<std::byte> bytes;
  for (const uint8_t b : noise) bytes.push_back(static_cast<std::byte>(b));
  RC_ASSERT(is_total(bytes));
}

#endif

TEST(Packet, DamagedPacketsGiveAPacketOrAReason) {
  Rng rng(7);
  size_t taken = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::vector<std::byte> bytes = likely_bytes(rng);
    ASSERT_TRUE(is_total(bytes)) << "packet " << i;
    if (decode(bytes)) ++taken;
  }
  EXPECT_GT(taken, 2'000u);  // both sides of the decoders are exercised
  EXPECT_LT(taken, 18'000u);
}

}  // namespace
}  // namespace metaroce::wire::table
