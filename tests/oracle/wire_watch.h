// What a side has outstanding, seen on the wire alone: requests that left and answers that came.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "engine/api.h"

namespace metaroce::oracle {

class WireWatch {
 public:
  void sent(const engine::TxRun& run);
  void arrived(const engine::RxPacket& packet);
  /// The packets of a run in words, a line each.
  static std::string describe(const engine::TxRun& run);
  /// The stream failed: nothing of it counts any more. What was sent may be repeated still.
  void give_up(uint16_t stream);
  /// It is opened anew: its numbers may come again.
  void forget(uint16_t stream);
  /// Never more than are outstanding (MR-MSG-044).
  uint32_t outstanding() const { return static_cast<uint32_t>(open_.size()); }

  std::string names() const;

 private:
  using Key = uint64_t;                                  ///< stream, MSN
  std::map<Key, uint32_t> open_;                         ///< bytes that are missing
  std::set<Key> known_;                                  ///< ever sent
  std::map<std::pair<Key, uint32_t>, uint32_t> pieces_;  ///< of responses that came: bytes
};

}  // namespace metaroce::oracle
