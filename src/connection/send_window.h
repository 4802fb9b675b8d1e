// What the sender knows of each undecided CPSN, and the lists of those that wait to be sent again.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/seq.h"
#include "base/slab.h"
#include "message/sender.h"

namespace metaroce::connection {

inline constexpr uint32_t kChunkEntries = 64;
inline constexpr uint16_t kNoList = 0xFFFF;
inline constexpr uint16_t kAnyList = 0xFFFE;      ///< any open path, windows obeyed
inline constexpr uint16_t kControlList = 0xFFFD;  ///< control, before everything else

struct SendEntry {
  enum class State : uint8_t { kFree, kUndecided, kDecided };
  message::Fragment fragment;  ///< of a control packet: send = its slot
  uint32_t next = 0;           ///< in a repair list
  uint32_t prev = 0;
  uint32_t lost_seq = 0;  ///< the sequence whose loss put it into the list
  uint32_t seq = 0;       ///< of the last transmission
  uint16_t list = kNoList;
  uint16_t lost_path = kNoList;
  uint8_t path = 0;  ///< of the last transmission
  uint8_t live = 0;  ///< transmissions whose fate is open
  State state = State::kFree;
  bool control = false;
  bool voided = false;    ///< a VOID goes out instead (MR-CPSN-024)
  bool sent = false;      ///< at least once
  bool repaired = false;  ///< more than once
  bool copied = false;    ///< an idle copy was sent (MR-LOSS-061)
};

struct SendChunk {
  SendEntry entries[kChunkEntries];
};

/// CPSNs from the lowest undecided to the next new one, in chunks of an engine's slab.
class SendWindow {
 public:
  SendWindow(Slab<SendChunk>& chunks, uint32_t window, uint32_t start)
      : chunks_(&chunks),
        table_(2 * window / kChunkEntries, kNone),
        slot_mask_(2 * window / kChunkEntries - 1),
        una_(start),
        next_(start),
        window_(window) {}
  ~SendWindow() {
    for (const uint32_t c : table_) {
      if (c != kNone) chunks_->release(c);
    }
  }
  SendWindow(const SendWindow&) = delete;
  SendWindow& operator=(const SendWindow&) = delete;

  uint32_t lowest_undecided() const { return una_; }
  uint32_t next() const { return next_; }
  uint32_t size() const { return next_ - una_; }
  uint32_t capacity() const { return window_; }
  size_t table_bytes() const { return table_.capacity() * sizeof(uint32_t); }

  /// How many new CPSNs may be taken now: MR-CPSN-009, and MR-CPSN-012 unless for control.
  uint32_t room(bool control) const {
    const uint32_t limit = window_ - (control ? 0 : 64);
    return size() >= limit ? 0 : limit - size();
  }

  /// Takes the next CPSN; null when the chunk slab is exhausted. room() must not be 0.
  SendEntry* create(uint32_t& cpsn) {
    uint32_t& chunk = table_[slot(next_)];
    if (chunk == kNone) chunk = chunks_->allocate_as_left();
    if (chunk == kNone) return nullptr;
    cpsn = next_++;  // MR-CPSN-001
    SendEntry& e = (*chunks_)[chunk].entries[cpsn % kChunkEntries];
    e = SendEntry{};
    e.state = SendEntry::State::kUndecided;
    return &e;
  }

  /// The entries of undecided CPSNs from `cpsn` on that stand side by side, at most `count`.
  std::span<SendEntry> side_by_side(uint32_t cpsn, uint32_t count) {
    MR_DASSERT(contains(cpsn));
    const uint32_t n = std::min({count, kChunkEntries - cpsn % kChunkEntries, next_ - cpsn});
    return {&at(cpsn), n};
  }

  /// Takes the next CPSNs for entries that differ from `like` in fragment and path sequence alone;
  /// the first gets like.seq. Returns the first CPSN. room() and chunks must suffice.
  uint32_t create_run(SendEntry like, std::span<const message::Fragment> fragments) {
    const uint32_t first = next_;
    for (size_t i = 0; i < fragments.size();) {
      uint32_t& chunk = table_[slot(next_)];
      if (chunk == kNone) chunk = chunks_->allocate_as_left();
      MR_ASSERT(chunk != kNone);
      SendEntry* entry = &(*chunks_)[chunk].entries[next_ % kChunkEntries];
      const size_t end =
          std::min<size_t>(fragments.size(), i + kChunkEntries - next_ % kChunkEntries);
      next_ += static_cast<uint32_t>(end - i);  // MR-CPSN-001
      for (; i < end; ++i, ++entry, ++like.seq) {
        like.fragment = fragments[i];
        *entry = like;
      }
    }
    return first;
  }

  bool contains(uint32_t cpsn) const { return cpsn - una_ < size(); }
  SendEntry& at(uint32_t cpsn) {
    MR_DASSERT(contains(cpsn));
    return (*chunks_)[table_[slot(cpsn)]].entries[cpsn % kChunkEntries];
  }
  const SendEntry& at(uint32_t cpsn) const { return const_cast<SendWindow*>(this)->at(cpsn); }

  /// Moves the lower edge over decided entries and gives chunks back.
  void advance() {
    while (una_ != next_) {
      const std::span<SendEntry> entries = side_by_side(una_, kChunkEntries);
      uint32_t n = 0;
      while (n < entries.size() && entries[n].state == SendEntry::State::kDecided) ++n;
      if (n == 0) return;
      const uint32_t passed = una_;
      una_ += n;
      if (una_ % kChunkEntries != 0 && una_ != next_) return;
      uint32_t& chunk = table_[slot(passed)];
      chunks_->release(chunk);
      chunk = kNone;
    }
  }

 private:
  static constexpr uint32_t kNone = Slab<SendChunk>::kNone;
  uint32_t slot(uint32_t cpsn) const { return (cpsn / kChunkEntries) & slot_mask_; }

  Slab<SendChunk>* chunks_;
  std::vector<uint32_t> table_;
  uint32_t slot_mask_;
  uint32_t una_;
  uint32_t next_;
  uint32_t window_;
};

/// A queue of CPSNs, linked through their entries.
struct RepairList {
  uint32_t head = 0;
  uint32_t tail = 0;
  uint32_t size = 0;

  void push(SendWindow& window, uint32_t cpsn, uint16_t id) {
    SendEntry& e = window.at(cpsn);
    MR_DASSERT(e.list == kNoList);
    e.list = id;
    e.prev = tail;
    e.next = cpsn;
    if (size == 0) {
      head = cpsn;
    } else {
      window.at(tail).next = cpsn;
    }
    tail = cpsn;
    ++size;
  }
  void remove(SendWindow& window, uint32_t cpsn) {
    SendEntry& e = window.at(cpsn);
    if (cpsn != head) window.at(e.prev).next = e.next;
    if (cpsn != tail) window.at(e.next).prev = e.prev;
    if (cpsn == head) head = e.next;
    if (cpsn == tail) tail = e.prev;
    e.list = kNoList;
    --size;
  }
};

}  // namespace metaroce::connection
