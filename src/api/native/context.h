// What stands behind an mr_context.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/endpoint.h"
#include "api/native/process.h"
#include "api/native/status_map.h"
#include "base/slab.h"
#include "driver/common/clock.h"
#include "driver/common/loop.h"
#include "metaroce/metaroce.h"

namespace metaroce::api::native {

/// A stream as this end opened it.
struct StreamRecord {
  uint16_t id = 0;
  bool open = true;
  uint32_t posted = 0;  ///< requests whose completion was not polled yet
};

/// A connection as this interface knows it, from its beginning until its last event is made.
struct ConnectionRecord {
  enum class Stage { kConnecting, kOpen, kEnded };
  Stage stage = Stage::kConnecting;
  bool aborted = false;  ///< nothing of it is told any more
  bool waited = false;   ///< mr_connect waits: how its set-up ends is told to nobody else
  Status status = Status::kOk;
  uint32_t detail = 0;  ///< of the event that ended it
  SocketAddress peer;
  Time since{};
  std::vector<StreamRecord> streams;  ///< sorted by id; closed ones stay, a number serves once
};

/// One posted request; its index is the id that the engine knows.
struct PostedRecord {
  uint64_t id = 0;
  ConnectionHandle connection = 0;
  uint32_t region = 0;                    ///< index + 1, 0: none
  uint32_t next = Slab<uint32_t>::kNone;  ///< record that holds a further region
  uint32_t queue = 0;                     ///< shared queue it was posted to; 0: none
  uint16_t stream = 0;
  bool silent = false;  ///< tells only of a failure
};

struct RegionRecord {
  Region region;
  std::byte* memory = nullptr;
  uint64_t length = 0;
  uint32_t generation = 0;
  uint32_t posted = 0;
  bool used = false;
};

class Context {
 public:
  Context() = default;
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  mr_status open(const mr_context_options& options, std::string& error);

  bool ours() const { return mark_.ours(); }
  bool threaded() const { return threaded_; }
  Endpoint& endpoint() { return *endpoint_; }
  const Settings& settings() const { return settings_; }

  /// Keeps the text for mr_last_error and returns the status.
  mr_status fail(mr_status status, std::string text) {
    error_ = std::move(text);
    return status;
  }
  const std::string& error() const { return error_; }

  // Around every call: the lock, and with a progress thread news for others.
  void enter();
  void leave();

  // --- waiting (waiting.cpp) ---
  /// One round without blocking; news go to the queues of this interface.
  size_t step();
  /// Waits until `done()`, a wake if `wakeable`, or `until`. True: done.
  template <class Done>
  bool wait(Time until, bool wakeable, Done done) {
    for (;;) {
      const size_t work = step();
      if (done()) return true;
      if (wakeable && woken_.load()) return false;
      if (driver::now() >= until) return false;
      if (work == 0) pause(until);
    }
  }
  void wake();
  mr_status arm();
  int fd() const { return notify_fd_; }
  bool has_news() const { return endpoint_->has_news() || !events_.empty(); }
  /// True once for a wake that somebody asked for.
  bool take_woken() { return woken_.exchange(false); }
  /// The loop around the descriptor has come round: a wake it saw is done with.
  void note_polled();

  // --- connections (connections.cpp) ---
  ConnectionRecord* find(ConnectionHandle connection);
  mr_status unknown(ConnectionHandle connection);
  StreamRecord* find_stream(ConnectionHandle connection, uint16_t stream);
  ConnectionRecord& add(ConnectionHandle connection, const SocketAddress& peer, Time now);
  void drain_events();
  void forget(ConnectionHandle connection);
  /// The receives of a shared queue that is gone.
  uint32_t posted_to(mr_queue queue) const;
  void disown_queue(mr_queue queue);
  /// Posted requests of a connection loosen their hold on regions; their completions vanish.
  void disown(ConnectionHandle connection);
  /// Fills one event for the program; false: there is none.
  bool next_event(mr_event& out);
  bool take_accepted(ConnectionHandle& out);
  bool accepts() const { return accepts_; }

  // --- regions (regions.cpp) ---
  RegionRecord* find_region(mr_region region, uint32_t& index);
  std::vector<RegionRecord>& regions() { return regions_; }

  // --- work (work.cpp) ---
  Slab<PostedRecord>& posted() { return *posted_; }
  /// What a request says of its place and its memory.
  struct Posting {
    uint64_t id = 0;
    ConnectionHandle connection = 0;
    uint16_t stream = 0;
    mr_queue queue = 0;  ///< not 0: no connection and no stream
    bool silent = false;
    size_t position = 0;  ///< in the caller's list, for texts
    std::span<const mr_segment> memory;
    uint64_t limit = 0;  ///< bytes all together
  };
  /// Why this may not be posted, or MR_OK; takes a record for it.
  mr_status admit(const Posting& posting, uint32_t& record);
  /// Its completion was polled, or it was not taken after all.
  void release(uint32_t record);

 private:
  mr_status hold(const mr_segment& segment, size_t position, uint32_t& region);
  void let_go(uint32_t record);
  mr_status open_waiting(bool with_thread, std::string& error);
  void pause(Time until);
  void drain_path_events();
  void describe(const ConnectionEvent& event, Duration took, mr_event& out) const;
  void run();
  void give_way();
  void announce();

  ProcessMark mark_;
  std::unique_ptr<Endpoint> endpoint_;
  Settings settings_;
  std::string error_;

  std::unordered_map<ConnectionHandle, ConnectionRecord> connections_;
  ConnectionHandle last_connection_ = 0;  ///< of last_record_, looked up most recently
  ConnectionRecord* last_record_ = nullptr;
  std::deque<std::pair<ConnectionEvent, Duration>> events_;  ///< with the time a set-up took
  std::deque<PathEvent> path_events_;
  uint32_t path_events_missed_ = 0;
  std::vector<RegionRecord> regions_;
  std::unique_ptr<Slab<PostedRecord>> posted_;

  // Waiting. notify_fd_ is what programs see: with a progress thread an eventfd, else an epoll
  // descriptor over the sockets, the timer and the endpoint's wake descriptor.
  int notify_fd_ = -1;
  int timer_fd_ = -1;
  bool armed_ = false;      ///< with a progress thread: the next news go to notify_fd_
  bool fd_in_use_ = false;  ///< armed since the last mr_poll
  std::atomic<bool> woken_{false};

  std::mutex mutex_;
  std::condition_variable news_;
  std::atomic<int> callers_{0};  ///< that wait for the lock: the progress thread lets them in
  std::unique_ptr<driver::Loop> thread_loop_;
  Time sleeping_until_{std::numeric_limits<int64_t>::min()};
  bool threaded_ = false;  ///< fixed before the thread starts
  bool stop_ = false;
  bool accepts_ = false;
  std::thread thread_;
};

/// The time `timeout_ns` from now; kNever for negative ones.
Time after(int64_t timeout_ns);

/// Puts `text` into a buffer of the caller, cut to fit.
mr_status give_text(const std::string& text, char* out, size_t size);

}  // namespace metaroce::api::native

struct mr_context : metaroce::api::native::Context {};

namespace metaroce::api::native {

/// Runs `body` on a context of this process under its lock; nothing is ever thrown into C.
template <class Body>
mr_status guarded(mr_context* context, Body&& body) noexcept {
  if (context == nullptr) return MR_INVALID;
  if (!context->ours()) return MR_FORKED;
  struct Inside {
    explicit Inside(Context& c) : context(c) { context.enter(); }
    ~Inside() { context.leave(); }
    Context& context;
  };
  try {
    const Inside inside(*context);
    return body(*context);
  } catch (const std::bad_alloc&) {
    return MR_NO_MEMORY;
  } catch (...) {
    return MR_SYSTEM;
  }
}

}  // namespace metaroce::api::native
