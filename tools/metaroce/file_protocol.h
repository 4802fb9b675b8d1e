// The messages of a file transfer (docs/file-transfer.md), one struct each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/expected.h"

namespace metaroce::tool {

using Bytes = std::vector<std::byte>;
using Sha256 = std::array<uint8_t, 32>;

inline constexpr uint16_t kFileProtocolVersion = 1;
inline constexpr uint64_t kUnknownSize = ~uint64_t{0};
inline constexpr size_t kMaxControlBytes = 8192;  ///< longest message on stream 0
inline constexpr size_t kMaxDataMessageBytes = 64;  ///< longest message on a data stream
inline constexpr size_t kMaxText = 1024;
inline constexpr uint16_t kControlStream = 0;
inline constexpr uint16_t kDataStreams = 8;  ///< streams 1 to 8 carry DATA and the writes
inline constexpr uint32_t kMaxOpenItems = 64;  ///< offers without a verdict

struct Hello {
  uint16_t version = kFileProtocolVersion;
  uint64_t session_high = 0;
  uint64_t session_low = 0;
  uint16_t link = 0;   ///< index of this connection in the session; 0 carries the control messages
  uint16_t links = 1;  ///< connections of the session
};

struct Welcome {
  uint16_t version = kFileProtocolVersion;
  uint32_t key = 0;
  uint64_t address = 0;
  uint32_t slot_bytes = 0;
  uint16_t slots = 0;
};

enum class ItemKind : uint8_t { kFile = 0, kDirectory = 1 };

struct Offer {
  uint32_t item = 0;
  ItemKind kind = ItemKind::kFile;
  uint64_t size = kUnknownSize;
  uint16_t mode = 0644;
  int64_t mtime_ns = 0;  ///< since 1970; 0: not known
  std::string name;
};

struct Answer {
  uint32_t item = 0;
  bool accepted = false;
  std::string text;  ///< why not
};

struct Data {
  uint32_t item = 0;
  uint64_t offset = 0;
  uint32_t length = 0;
  uint16_t slot = 0;
};

struct Free {
  uint16_t slot = 0;
};

struct Done {
  uint32_t item = 0;
  uint64_t size = 0;
  Sha256 sha256{};
};

/// The sender cannot finish an item that was accepted.
struct Cancel {
  uint32_t item = 0;
  std::string text;
};

struct Verdict {
  uint32_t item = 0;
  bool stored = false;
  std::string text;  ///< the name it got, or why it is not there
};

/// Ends the session; either side.
struct Abort {
  std::string text;
};

/// From the sender when every item has its verdict; answered by one from the receiver.
struct Bye {
  uint32_t items = 0;
  uint64_t bytes = 0;
};

using Message = std::variant<Hello, Welcome, Offer, Answer, Data, Free, Done, Cancel, Verdict,
                             Abort, Bye>;

Bytes encode(const Message& message);
/// The error says what is wrong with the bytes.
Expected<Message, std::string> decode(std::span<const std::byte> bytes);

std::string to_hex(const Sha256& digest);

}  // namespace metaroce::tool
