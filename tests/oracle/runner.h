// Runs a program on two engines and lets the model judge.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/oracle/model.h"
#include "tests/oracle/wire_watch.h"
#include "tests/pair/pair.h"

namespace metaroce::oracle {

struct Outcome {
  std::vector<std::string> differences;
  Table table;
  uint64_t operations = 0;
  uint64_t packets = 0;
  int64_t virtual_ns = 0;
  uint64_t hash = 0;
  std::string trace;
};

Outcome run_program(const Program& program, bool tracing = false);

/// The engines, their memory and keys, and the model of one run.
class Runner {
 public:
  Runner(const Program& program, Outcome& out);
  void run();
  void trace(bool on) { model_.tracing = on; }

 private:
  static constexpr uint32_t kMortals = 2;
  static constexpr uint32_t kWindows = 3;
  static constexpr uint32_t kBadKey = 0x13572468;

  struct Keys {
    memory::RegionInfo written, counters, quarry, foreign;
    memory::RegionInfo foreign_counters;  ///< for atomics
    memory::RegionInfo only_read, only_write, no_atomics, foreign_window, everlasting;
    std::array<uint32_t, kMortals + kWindows> newest{};  ///< index into the model's mortals
    std::array<uint32_t, kMortals + kWindows> before{};  ///< the one it stands for now
    std::vector<bool> live;                              ///< by region index
    uint32_t next_counter = 0;
    uint32_t shared_queue = 0;
    bool replacing = false;
    uint32_t replaced = 0;  ///< shared receives that ended and have a successor
    bool over = false;
  };
  struct Cursor {
    std::vector<uint32_t> steps;
    size_t next = 0;
    uint32_t tries = 0;
  };
  enum class Went : uint8_t { kDone, kAgain };

  // Set-up.
  pair::PairConfig config() const;
  void make_memory();
  void make_keys(uint32_t s);
  void make_mortal(uint32_t s, uint32_t slot);
  void make_streams();
  void listen();
  void note_region(uint32_t s, const memory::RegionInfo& info);

  // Steps.
  void schedule(uint32_t s, int64_t wait_ns);
  void turn(uint32_t s);
  Went execute(const Step& step);
  void skip_to_the_end(uint32_t s);
  Went post(const Step& step);
  Went post_receive(const Step& step, uint32_t length);
  void reopen(uint32_t stream);
  void try_reopen(uint32_t stream, uint32_t tries);
  void reset(uint32_t s, uint32_t stream);
  void remove(const Step& step);
  void end(uint32_t s, bool abort);

  // Requests.
  bool prepare(const Step& step, Request& r, engine::WorkRequest& w);
  bool aim(const Step& step, Request& r, engine::WorkRequest& w);
  bool aim_write(const Step& step, Request& r, engine::WorkRequest& w);
  bool aim_read(const Step& step, Request& r, engine::WorkRequest& w);
  void aim_atomic(const Step& step, Request& r, engine::WorkRequest& w);
  void aim_invalidate(const Step& step, Request& r, engine::WorkRequest& w);
  bool spoil(const Step& step, Request& r, engine::WorkRequest& w);
  void use_mortal(const Step& step, uint32_t slot, Request& r, engine::WorkRequest& w);
  uint32_t land(uint32_t s, uint64_t name, uint32_t length, uint32_t segments);
  void judge_refusal(uint32_t s, const Request& r, Status status);
  bool refused_for_good(uint32_t s, const Step& step, Status status);

  // The end.
  void finale();
  void rescue();
  void rescue_stream(uint32_t s, uint32_t stream);
  bool done(uint32_t s) const;
  bool is_busy(uint32_t s) const;
  bool steps_done() const;
  bool settled();
  bool pools_empty();
  void check_pools(const char* when);
  void check_ended();

  void on_place(uint32_t s, const engine::RxPacket& packet, const engine::Placement& p);

  const Program& program_;
  Outcome& out_;
  Model model_;
  std::unique_ptr<pair::Pair> pair_;
  std::array<Keys, 2> keys_;
  std::array<Cursor, 2> cursors_;
  std::vector<uint32_t> reopening_;  ///< by stream: a reopening is under way
  std::array<WireWatch, 2> watch_;
  std::array<std::byte, 256> inlined_{};
};

}  // namespace metaroce::oracle
