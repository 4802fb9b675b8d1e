// The oracle: a sequential model of two sides and the streams between them. It is told what was
// posted and what ended how, and says what does not fit.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "message/work.h"
#include "tests/oracle/ground.h"
#include "tests/oracle/program.h"
#include "tests/oracle/table.h"

namespace metaroce::oracle {

inline constexpr uint32_t kNothing = 0xFFFFFFFFu;
inline constexpr uint64_t kReceiveBit = 1ull << 32;  ///< in the ids of receives

/// A key that may end while it is used: a mortal region or a window.
struct Mortal {
  uint32_t region = kNothing;  ///< index in the engine
  uint32_t key = 0;
  bool dead = false;
  bool removed = false;            ///< by its own side
  uint32_t ended_by = 0;           ///< SEND_INVs posted for it
  std::vector<uint32_t> enders{};  ///< these, as requests of the other side
};

struct Request {
  Step step;
  uint32_t length = 0;
  uint32_t place = 0;          ///< in Direction::posts
  uint32_t number = kNothing;  ///< among the stream's messages that take a receive
  uint32_t range = kNothing;   ///< of a Write: where it goes; of a Read: the range it reads
  uint32_t writer = kNothing;  ///< of a Read: the request whose bytes it must bring; none: quarry
  uint32_t quarry = 0;         ///< of a Read of the quarry: where
  uint32_t landing = 0;        ///< of a Read or an atomic: first of its segments
  uint32_t landings = 0;
  uint32_t key = 0;  ///< of a SendInv
  int mortal = -1;   ///< index into Model::mortals of the peer
  uint64_t operand = 0;
  uint64_t swap = 0;
  uint64_t old_value = 0;  ///< of an atomic on the stream's own counter: what must come back
  uint64_t new_value = 0;
  bool own_counter = false;
  bool consumes = false;
  bool list = false;  ///< holds a segment list
  bool copied = false;
  bool done = false;
  bool received = false;
  Status must = Status::kOk;   ///< it can only end so (or be flushed)
  Cause cause = Cause::kNone;  ///< of `must`
  bool is_atomic() const {
    return step.kind == StepKind::kFetchAdd || step.kind == StepKind::kCompareSwap;
  }
  bool is_write() const {
    return step.kind == StepKind::kWrite || step.kind == StepKind::kWriteImm;
  }
  bool is_send() const { return consumes && step.kind != StepKind::kWriteImm; }
};

struct Receive {
  uint32_t stream = 0;
  uint32_t length = 0;
  uint32_t number = kNothing;  ///< of a stream's own
  uint32_t landing = 0;
  uint32_t landings = 0;
  bool shared = false;
  bool nowhere = false;  ///< has no memory
  bool list = false;
  bool done = false;
};

/// Bytes of a side that a Write goes to.
struct Range {
  uint32_t offset = 0;
  uint32_t length = 0;
  uint32_t writer = kNothing;    ///< newest request
  uint32_t previous = kNothing;  ///< the one before it, complete when the newest was posted
  uint32_t readers = 0;          ///< Reads of it that are not complete
  bool settled = false;          ///< the newest is complete
};

/// What one side sends on one stream, since it was opened.
struct Direction {
  std::vector<uint32_t> posts;      ///< requests of the sender
  std::vector<uint32_t> consuming;  ///< those that take a receive
  std::vector<uint32_t> receives;   ///< of the stream itself, at the receiver
  size_t head = 0;                  ///< first post that has not ended
  size_t receive_head = 0;
  size_t verified = 0;  ///< posts before it are known to be placed at the receiver
  bool failed = false;
  Cause cause = Cause::kNone;
  bool reset_here = false;   ///< by the sender
  bool reset_there = false;  ///< by the receiver
  bool draining = false;     ///< it did not fail before that
  bool drained = false;      ///< takes nothing more
  bool flushed = false;      ///< a receive was
  bool owes = false;         ///< ... so the sender must find that a request failed
  uint32_t last_range = kNothing;
  uint32_t counter = kNothing;  ///< word of the receiver that only this direction changes
  uint64_t value = 0;           ///< of it when everything posted is executed
  std::vector<uint32_t> chain;  ///< requests that change it, in order
  size_t executed = 0;
};

/// One word that many streams add to.
struct SharedCounter {
  std::vector<uint32_t> adds;  ///< requests of the other side
};

class Model {
 public:
  Model(const Program& program, Table& table) : program_(program), table_(table) {
    for (auto& side : directions_) side.resize(program.streams.size());
  }

  struct Side {
    std::vector<Request> requests;
    std::vector<Receive> receives;
    std::vector<Range> ranges;  ///< of its memory
    std::vector<Mortal> mortals;
    std::vector<engine::Segment> landings;
    Ground written;  ///< target of Writes
    Ground landed;   ///< target of receives, Reads and old values
    Ground counters;
    std::array<SharedCounter, 2> shared;
    uint32_t shortest_shared = 0xFFFFFFFF;  ///< receive ever posted to its shared queue
    bool closed = false;                    ///< it closed the connection
    bool aborted = false;                   ///< by an abort
    bool over = false;                      ///< it knows of the end
    uint32_t open_requests = 0;
    uint32_t open_receives = 0;
    uint32_t shared_done = 0;  ///< receives of the shared queue that ended
    uint32_t open_shared = 0;  ///< of them: posted to the shared queue
    uint32_t open_lists = 0;
    uint32_t open_copies = 0;
    uint32_t receive_lists = 0;
  };

  Side& side(uint32_t s) { return sides_[s]; }
  Direction& direction(uint32_t sender, uint32_t stream) { return directions_[sender][stream]; }
  Request& request(uint32_t s, uint32_t index) { return sides_[s].requests[index]; }

  /// The request was taken by the engine of side `s`; returns nothing, remembers everything.
  void posted(uint32_t s, const Request& request);
  void receive_posted(uint32_t s, const Receive& receive);
  void completed(uint32_t s, const engine::Completion& completion);
  /// Looks at the counters of side `s`.
  void look_at_counters(uint32_t s);
  /// Nothing is under way any more: what had no completion because it is unsignalled is complete.
  void settle_silent();
  /// Both directions begin anew.
  void reopened(uint32_t stream);
  /// A request failed for want of a receive: the peer is not told, and keeps what came behind it
  /// until the stream is reset.
  bool may_end_before(uint32_t s, const Request& r, const Mortal& m) const;
  /// At the end: all memory.
  void check_image();

  bool waits(uint32_t s, uint32_t stream) const;  ///< something signalled is not complete
  bool all_done() const;
  /// Everything not complete may be complete without a word.
  bool all_quiet() const;

  void differ(const std::string& what);
  const std::vector<std::string>& differences() const { return differences_; }
  bool long_dark = false;  ///< the network ends for good
  std::string trace;       ///< filled when `tracing`
  bool tracing = false;
  int64_t now_ns = 0;

 private:
  struct Verdict {
    bool allowed = false;
    Cause cause = Cause::kNone;
  };
  void take_off(uint32_t s, Request& r);
  void request_done(uint32_t s, const engine::Completion& c);
  void request_ok(uint32_t s, uint32_t index, uint64_t old_value, bool told);
  void request_failed(uint32_t s, Request& r, Status status);
  Verdict first_failure(uint32_t s, const Request& r, const Direction& d, Status status);
  Verdict ended(uint32_t s, Status status) const;
  Cause end_of(uint32_t s) const;
  void receive_done(uint32_t s, const engine::Completion& c);
  void receive_failed(uint32_t s, uint32_t index, Receive& r, Direction& d, Status status);
  uint32_t find_message(uint32_t s, const Receive& r, const engine::Completion& c, Direction& d);
  bool fits(uint32_t s, const Receive& r, const Request& m, const engine::Completion& c);
  bool may_come(uint32_t sender, const Direction& d, uint32_t place_in_consuming);
  void delivered(uint32_t s, const Request& m, Direction& d, uint32_t stream);
  void verify_before(uint32_t sender, Direction& d, size_t end, const char* by);
  void check_write(uint32_t sender, const Request& r, const char* when);
  void check_landing(uint32_t s, const Request& r, uint64_t old_value);
  bool same(uint32_t s, uint32_t landing, uint32_t landings, const std::byte* bytes,
            uint32_t length);
  const std::byte* bytes_of(const Request& r);
  void check_shared(uint32_t s, uint32_t word);
  void check_ranges(uint32_t s);
  std::string name(uint32_t s, const Request& r) const;

  const Program& program_;
  Table& table_;
  std::array<Side, 2> sides_;
  std::array<std::vector<Direction>, 2> directions_;
  std::vector<std::string> differences_;
  std::vector<std::byte> scratch_;
};

}  // namespace metaroce::oracle
