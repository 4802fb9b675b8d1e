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
  /// The stream failed or is new: nothing of it counts any more.
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
