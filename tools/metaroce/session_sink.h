// What one session stores: the items between offer and verdict. One thread, no transport.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "file_sink.h"
#include "transport.h"

namespace metaroce::tool {

/// A connection of the receiver: which transport, which link.
struct LinkAddress {
  size_t port = 0;
  Link link = 0;
  bool operator==(const LinkAddress&) const = default;
};

struct ReceivedItem {
  std::string name;
  uint64_t bytes = 0;
  bool stored = false;
  Sha256 sha256{};
  std::string text;  ///< why it is not stored
};

struct SessionResult {
  std::string peer;
  bool complete = false;  ///< the sender said good-bye and every item was stored
  std::string text;       ///< why not
  uint32_t stored = 0;
  uint32_t failed = 0;
  uint64_t bytes = 0;  ///< of stored files
  Time begin{};
  Time end{};
  std::vector<ReceivedItem> items;  ///< the first kKeptItems
};
inline constexpr size_t kKeptItems = 1000;

/// A filled slot of receive memory; `keep` holds the memory until the bytes are stored.
struct Chunk {
  LinkAddress from;
  uint16_t slot = 0;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep;
};

class SessionSink {
 public:
  using Reply = std::function<void(const LinkAddress& to, const Message& message)>;
  using ItemDone = std::function<void(const ReceivedItem& item)>;

  /// `tag` makes the names of temporary files unique. `max_chunks` bounds what waits for order.
  SessionSink(const TargetFolder& folder, Overwrite overwrite, std::string tag, size_t max_chunks,
              Reply reply, ItemDone item_done);

  /// Each returns what the peer did wrong, or "": then the session has to be aborted.
  std::string offer(const LinkAddress& from, const Offer& offer);
  std::string data(const Data& data, Chunk chunk);
  std::string done(const Done& done);
  std::string cancel(const Cancel& cancel);
  std::string bye(const LinkAddress& from, const Bye& bye);
  /// Drops what is unfinished, with its temporary files.
  void end(const std::string& why, Time now);

  bool ended() const { return ended_; }
  uint64_t appended() const { return appended_; }
  SessionResult& result() { return result_; }

 private:
  struct Item {
    Offer offer;
    std::unique_ptr<IncomingFile> file;  // null once it failed: the rest is thrown away
    std::map<uint64_t, Chunk> waiting;
    bool has_done = false;
    Done done;
  };
  void append_ready(Item& item);
  void release(const Chunk& chunk);
  void fail(Item& item, const std::string& why);
  void finish(uint32_t id);
  void note(ReceivedItem item);

  const TargetFolder& folder_;
  Overwrite overwrite_;
  std::string tag_;
  size_t max_chunks_;
  Reply reply_;
  ItemDone item_done_;
  LinkAddress control_;
  std::map<uint32_t, Item> items_;
  size_t chunks_ = 0;
  uint64_t appended_ = 0;
  bool ended_ = false;
  SessionResult result_;
};

}  // namespace metaroce::tool
