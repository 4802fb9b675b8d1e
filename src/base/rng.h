// The project's own random numbers: a run is a seed, sub-streams have names.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/random_source.h"

namespace metaroce {

/// xoshiro256** (Blackman and Vigna, 2018), seeded by splitmix64: for simulations and tests. Its
/// numbers can be guessed from earlier ones; a product gives it a source, and then every number,
/// of forks too, comes from there (MR-SEC-008).
class Rng {
 public:
  explicit Rng(uint64_t seed = 1) {
    for (auto& word : state_) word = splitmix(seed);
  }
  /// `source` outlives this and what is forked of it.
  explicit Rng(RandomSource& source) : Rng(1) { source_ = &source; }

  /// The whole state, to go on from it later (recordings).
  std::array<uint64_t, 4> state() const { return {state_[0], state_[1], state_[2], state_[3]}; }
  static Rng from_state(const std::array<uint64_t, 4>& words) {
    Rng rng;
    for (size_t i = 0; i < words.size(); ++i) rng.state_[i] = words[i];
    return rng;
  }

  uint64_t next() {
    if (source_ != nullptr) [[unlikely]] {
      uint64_t drawn = 0;
      source_->fill(std::as_writable_bytes(std::span(&drawn, 1)));
      return drawn;
    }
    const uint64_t result = rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotl(state_[3], 45);
    return result;
  }

  /// Key material, nonces: byte by byte the same on every machine for the same seed.
  void fill(std::span<std::byte> out) {
    if (source_ != nullptr) return source_->fill(out);
    uint64_t word = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      if (i % 8 == 0) word = next();
      out[i] = static_cast<std::byte>(word >> (8 * (i % 8)));
    }
  }

  uint32_t next32() { return static_cast<uint32_t>(next() >> 32); }

  /// Uniform in [0, bound); bound > 0. The bias of at most bound / 2^64 is accepted.
  uint64_t below(uint64_t bound) {
    __extension__ typedef unsigned __int128 Wide;  // g++ -Wpedantic wants it said
    return static_cast<uint64_t>((Wide{next()} * bound) >> 64);
  }

  /// True with a probability of parts / 2^32.
  bool chance(uint64_t parts) { return next32() < parts; }

  /// An independent stream, the same for the same seed, name and index.
  Rng fork(std::string_view name, uint64_t index = 0) const {
    if (source_ != nullptr) return *this;
    uint64_t h = state_[0] ^ 0x9e3779b97f4a7c15ull;
    for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    h ^= state_[3] + index * 0xd1342543de82ef95ull;
    return Rng(splitmix(h));
  }

 private:
  static constexpr uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  static uint64_t splitmix(uint64_t& x) {
    uint64_t z = (x += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

  uint64_t state_[4];
  RandomSource* source_ = nullptr;
};

}  // namespace metaroce
