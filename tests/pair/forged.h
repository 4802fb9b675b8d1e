// Datagrams of one who knows addresses and ports but not the connection: everything right, CRC
// included, except that the id, or else every sequence, is drawn at random.
#pragma once

#include <cstdint>

namespace metaroce::pair {

struct ForgedResult {
  uint64_t sent = 0;
  uint64_t dropped = 0;       ///< with a reason; all of them, it is to be hoped
  uint64_t placements = 0;
  uint64_t events = 0;
  uint64_t bytes = 0;
  uint64_t answers = 0;       ///< packets the engine sent back
  uint64_t answer_bytes = 0;
  bool state_unchanged = false;
  bool still_alive = false;   ///< the connection took a right packet afterwards
};

ForgedResult send_forged(uint64_t count, uint64_t seed);

}  // namespace metaroce::pair
