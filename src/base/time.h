// Time as the engine sees it: an argument, never read from a clock.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace metaroce {

/// A span of time in nanoseconds.
struct Duration {
  int64_t ns = 0;

  constexpr auto operator<=>(const Duration&) const = default;
  constexpr Duration operator+(Duration o) const { return {ns + o.ns}; }
  constexpr Duration operator-(Duration o) const { return {ns - o.ns}; }
  constexpr Duration operator*(int64_t k) const { return {ns * k}; }
  constexpr Duration operator/(int64_t k) const { return {ns / k}; }
  constexpr Duration& operator+=(Duration o) {
    ns += o.ns;
    return *this;
  }
};

constexpr Duration nanoseconds(int64_t n) { return {n}; }
constexpr Duration microseconds(int64_t n) { return {n * 1'000}; }
constexpr Duration milliseconds(int64_t n) { return {n * 1'000'000}; }
constexpr Duration seconds(int64_t n) { return {n * 1'000'000'000}; }

/// A point in time: nanoseconds since an origin that the driver chose (any monotonic one).
struct Time {
  int64_t ns = 0;

  constexpr auto operator<=>(const Time&) const = default;
  constexpr Time operator+(Duration d) const { return {ns + d.ns}; }
  constexpr Time operator-(Duration d) const { return {ns - d.ns}; }
  constexpr Duration operator-(Time o) const { return {ns - o.ns}; }
};

/// "No deadline": later than every real time; adding to it is not allowed.
inline constexpr Time kNever{std::numeric_limits<int64_t>::max()};

constexpr Time earlier(Time a, Time b) { return a < b ? a : b; }

/// Short times for records: 64 ns ticks, modulo 2^32 (275 s), the unit of time stamps on the wire.
constexpr uint32_t ticks(Time t) { return static_cast<uint32_t>(static_cast<uint64_t>(t.ns) >> 6); }
constexpr Duration since(Time now, uint32_t then) {
  return nanoseconds(static_cast<int64_t>(ticks(now) - then) << 6);
}

}  // namespace metaroce
