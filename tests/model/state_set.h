// Set of visited states: open addressing over 128-bit fingerprints of the packed states, with the
// way each state was reached first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace metaroce::model {

struct Fingerprint {
  std::uint64_t a = 0;
  std::uint64_t b = 0;

  bool operator==(const Fingerprint&) const = default;
};

Fingerprint fingerprint(std::span<const std::uint8_t> bytes);

class StateSet {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  StateSet();
  // Index of the new state, or kNone when it was there.
  std::uint32_t insert(const Fingerprint& f, std::uint32_t parent, std::uint16_t action);
  std::uint64_t size() const { return entries_.size(); }
  // Actions that lead from the initial state (index 0) to `index`.
  std::vector<std::uint16_t> way_to(std::uint32_t index) const;

 private:
  void grow();
  std::size_t slot_of(const Fingerprint& f) const;

  struct Origin {
    std::uint32_t parent;
    std::uint16_t action;
  };
  std::vector<Fingerprint> entries_;
  std::vector<Origin> origins_;
  std::vector<std::uint32_t> slots_;
};

}  // namespace metaroce::model
