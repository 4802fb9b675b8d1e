// One end of a run over one connection: moves payload in its directions and counts. The control
// messages are somebody else's (perf_link.h); the run only says when one is due.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/endpoint.h"
#include "perf_histogram.h"
#include "perf_pattern.h"
#include "perf_protocol.h"

namespace metaroce::tool {

enum class PerfSide : uint8_t { kClient, kServer };

/// User and system time of this process so far.
Duration process_cpu();

class PerfRun {
 public:
  /// `memory_limit`: bytes of payload memory this run may take.
  PerfRun(api::Endpoint& endpoint, api::ConnectionHandle connection, const PerfPlan& plan,
          PerfSide side, uint64_t memory_limit);
  /// The connection has to be gone, or endpoint and run end together: receives name the memory.
  ~PerfRun();
  PerfRun(const PerfRun&) = delete;
  PerfRun& operator=(const PerfRun&) = delete;

  /// Takes memory and posts receives; empty, or why it cannot be.
  std::string prepare();
  const PerfGrant& grant() const { return grant_; }
  /// Both ends are ready: a sender begins its warm-up.
  void start(Time now, const PerfGrant& peer);
  /// Completions of data streams (never stream 0).
  void on_completion(const api::Completion& completion, Time now);
  /// Posts what fits and moves on between warm-up, measuring and end. Call it in every round.
  void progress(Time now);
  /// Ends warm-up or measuring now; what is under way is waited for.
  void stop() { stop_ = true; }
  /// From the other end.
  void on_peer_mark(Time now, const PerfMark& mark);
  void on_peer_done(Time now, const PerfDone& done);

  bool sends() const { return sends_; }
  bool receives() const { return receives_; }
  /// True once each after the sender entered that state; they fill in what the other end is told.
  bool take_mark(PerfMark& mark);
  bool take_done(PerfDone& done);
  /// Everything the other end's DONE spoke of is here (always so before DONE).
  bool received_all() const { return !needs_receives() || received_ >= expected_; }
  /// The own direction has ended (or there is none).
  bool finished() const { return !sends_ || phase_ == Phase::kEnded; }
  bool measuring() const { return books_open_; }
  /// Empty, or the first error of an operation.
  const std::string& error() const { return error_; }
  uint64_t messages_sent() const { return completed_; }
  const PerfPlan& plan() const { return plan_; }
  const LatencyHistogram& latency() const { return histogram_; }
  /// When progress() has to be called at the latest.
  Time next_turn() const { return phase_ == Phase::kEnded ? kNever : phase_end_; }
  void note_shared() { shared_ = true; }

  PerfReport report(Time now);

 private:
  enum class Phase : uint8_t { kIdle, kWarm, kWarmDrain, kMeasure, kDrain, kEnded };
  struct Stream {
    uint32_t open = 0;  ///< sends under way
    uint64_t posted = 0;
    uint64_t completed = 0;
    uint64_t received = 0;
    uint32_t unposted = 0;  ///< receives that found no room
  };

  bool needs_receives() const { return takes_receives(plan_.op); }
  bool echoes() const { return plan_.ping_pong && needs_receives(); }
  bool is_pinger() const { return sends_; }
  void fill_slots();
  std::span<std::byte> tx_slot(size_t stream, uint64_t number);
  std::span<std::byte> rx_slot(size_t stream, uint64_t number);
  bool may_post(Time now) const;
  void post_sends(Time now);
  bool post_send(size_t stream, Time now);
  bool post_receive(size_t stream);
  void refill_receives(size_t stream);
  void on_received(const api::Completion& completion, Time now);
  void check(size_t stream, const api::Completion& completion);
  void check_fetched(size_t stream, const api::Completion& completion);
  void check_written();
  void drained(Time now);
  void count(Time now, Duration latency);
  void note_warm();
  void open_books(Time now);
  void close_books(Time now);
  void read_paths(std::vector<api::PathStatus>& out) const;
  void fail(std::string text);

  api::Endpoint& endpoint_;
  const api::ConnectionHandle connection_;
  const PerfPlan plan_;
  const PerfSide side_;
  const uint64_t memory_limit_;
  bool sends_ = false;
  bool receives_ = false;
  bool stop_ = false;
  bool mark_due_ = false;
  bool done_due_ = false;
  bool books_open_ = false;
  bool shared_ = false;
  bool awaiting_echo_ = false;
  uint64_t tx_slots_ = 1;  ///< of each stream
  uint64_t rx_slots_ = 1;
  uint32_t receives_each_ = 0;
  std::vector<std::byte> tx_memory_;
  std::vector<std::byte> rx_memory_;
  api::Region region_;
  bool registered_ = false;
  PerfGrant grant_;
  PerfGrant peer_;
  std::vector<Stream> streams_;
  size_t next_stream_ = 0;

  Phase phase_ = Phase::kIdle;
  Time phase_end_ = kNever;
  uint64_t open_ = 0;
  uint64_t quota_ = 0;      ///< messages still to post while counting
  uint64_t completed_ = 0;  ///< since measuring began
  Time measure_begin_{};
  Time measure_end_{};
  Time echo_sent_{};
  Duration longest_gap_{};
  LatencyHistogram histogram_;
  std::string error_;

  Time books_begin_{};
  Time books_end_{};
  Duration cpu_begin_{};
  Duration cpu_end_{};
  std::vector<api::PathStatus> paths_begin_;
  std::vector<api::PathStatus> paths_end_;
  uint64_t received_ = 0;  ///< messages, from the first on
  uint64_t received_begin_ = 0;
  uint64_t expected_ = 0;  ///< of received_, by the other end's DONE
  uint64_t warm_ = 0;      ///< messages of the own warm-up
  uint64_t verified_ = 0;
  uint64_t verify_errors_ = 0;
};

}  // namespace metaroce::tool
