#include "tests/model/state_set.h"

#include <algorithm>
#include <cstring>

namespace metaroce::model {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xe9846af9b1a615dULL;
  x ^= x >> 32;
  x *= 0xe9846af9b1a615dULL;
  x ^= x >> 28;
  return x;
}

}  // namespace

Fingerprint fingerprint(std::span<const std::uint8_t> bytes) {
  Fingerprint f{bytes.size(), 0x9e3779b97f4a7c15ULL};
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    f.a = mix(f.a ^ word) + 0xd1b54a32d192ed03ULL;
    f.b = mix(f.b + word * 0xff51afd7ed558ccdULL) ^ 0x8cb92ba72f3d8dd7ULL;
  }
  return f;
}

StateSet::StateSet() : slots_(1 << 16, kNone) {}

std::size_t StateSet::slot_of(const Fingerprint& f) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = f.a & mask;
  while (slots_[at] != kNone && !(entries_[slots_[at]] == f)) at = (at + 1) & mask;
  return at;
}

void StateSet::grow() {
  slots_.assign(slots_.size() * 2, kNone);
  for (std::uint32_t i = 0; i < entries_.size(); ++i) slots_[slot_of(entries_[i])] = i;
}

std::uint32_t StateSet::insert(const Fingerprint& f, std::uint32_t parent, std::uint16_t action) {
  if (entries_.size() * 3 >= slots_.size() * 2) grow();
  const std::size_t at = slot_of(f);
  if (slots_[at] != kNone) return kNone;
  const auto index = static_cast<std::uint32_t>(entries_.size());
  slots_[at] = index;
  entries_.push_back(f);
  origins_.push_back(Origin{parent, action});
  return index;
}

std::vector<std::uint16_t> StateSet::way_to(std::uint32_t index) const {
  std::vector<std::uint16_t> way;
  for (; index != 0; index = origins_[index].parent) way.push_back(origins_[index].action);
  std::reverse(way.begin(), way.end());
  return way;
}

}  // namespace metaroce::model
