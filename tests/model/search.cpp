#include "tests/model/search.h"

#include <chrono>
#include <cstdio>
#include <sstream>

#include "tests/model/actions.h"
#include "tests/model/invariants.h"
#include "tests/model/state_set.h"

namespace metaroce::model {
namespace {

// Packed states of one depth, one after the other.
class Frontier {
 public:
  void push(std::uint32_t index, const Packed& p) {
    for (int i = 0; i < 4; ++i) bytes_.push_back(static_cast<std::uint8_t>(index >> (8 * i)));
    bytes_.push_back(static_cast<std::uint8_t>(p.size));
    bytes_.insert(bytes_.end(), p.bytes.begin(), p.bytes.begin() + p.size);
    ++count_;
  }
  bool pop(std::uint32_t& index, State& s) {
    if (at_ == bytes_.size()) return false;
    index = 0;
    for (int i = 0; i < 4; ++i) index |= static_cast<std::uint32_t>(bytes_[at_ + i]) << (8 * i);
    unpack(bytes_.data() + at_ + 5, s);
    at_ += 5 + bytes_[at_ + 4];
    return true;
  }
  std::uint64_t count() const { return count_; }
  void clear() {
    bytes_.clear();
    at_ = 0;
    count_ = 0;
  }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t at_ = 0;
  std::uint64_t count_ = 0;
};

class Search {
 public:
  Search(const Config& cfg, const SearchLimits& limits) : cfg_(cfg), limits_(limits) {}

  SearchResult run() {
    State first = initial_state(cfg_);
    normalise(cfg_, first);
    visit(first, 0, 0);
    while (next_.count() > 0 && !stopped_) {
      std::swap(now_, next_);
      next_.clear();
      std::uint32_t index = 0;
      State s;
      while (!stopped_ && now_.pop(index, s)) expand(index, s);
      if (!stopped_ && next_.count() > 0) ++result_.depth;
    }
    result_.states = set_.size();
    result_.exhausted = !stopped_;
    return result_;
  }

 private:
  void expand(std::uint32_t index, const State& s) {
    enumerate(cfg_, s, actions_);
    for (const Action& action : actions_) {
      State t = s;
      if (!apply(cfg_, t, action)) continue;
      ++result_.transitions;
      ++result_.steps[static_cast<std::size_t>(action.step)];
      visit(t, index, action.code());
      if (stopped_) return;
    }
    if ((++expanded_ & 1023) == 0) report();
  }

  void visit(const State& s, std::uint32_t parent, std::uint16_t action) {
    if (s.bad != Violation::kNone) {
      found(s.bad, parent, action);
      return;
    }
    pack(s, packed_);
    const Fingerprint f = fingerprint({packed_.bytes.data(), packed_.size});
    const std::uint32_t index = set_.insert(f, parent, action);
    if (index == StateSet::kNone) return;
    Violation v = check_state(cfg_, s);
    if (v == Violation::kNone) v = check_fair_run(cfg_, s, nullptr);
    if (v != Violation::kNone) {
      found(v, parent, action);
      return;
    }
    next_.push(index, packed_);
    if (set_.size() >= limits_.max_states) stopped_ = true;
  }

  void found(Violation v, std::uint32_t parent, std::uint16_t action) {
    result_.violation = v;
    result_.trace = set_.way_to(parent);
    result_.trace.push_back(action);
    stopped_ = true;
  }

  void report() {
    if (!limits_.progress) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::seconds(2)) return;
    last_ = now;
    std::fprintf(stderr, "%.*s: %llu states, depth %d, %llu waiting\n",
                 static_cast<int>(cfg_.name.size()), cfg_.name.data(),
                 static_cast<unsigned long long>(set_.size()), result_.depth,
                 static_cast<unsigned long long>(next_.count()));
  }

  const Config& cfg_;
  const SearchLimits& limits_;
  SearchResult result_;
  StateSet set_;
  Frontier now_;
  Frontier next_;
  Packed packed_;
  std::vector<Action> actions_;
  std::uint64_t expanded_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  bool stopped_ = false;
};

}  // namespace

SearchResult search(const Config& cfg, const SearchLimits& limits) {
  return Search(cfg, limits).run();
}

std::string render_trace(const Config& cfg, const SearchResult& result) {
  std::ostringstream o;
  State s = initial_state(cfg);
  normalise(cfg, s);
  int step = 0;
  for (const std::uint16_t code : result.trace) {
    const Action action = Action::from(code);
    o << ++step << ". " << describe(cfg, s, action) << "\n";
    apply(cfg, s, action);
  }
  o << "violation: " << violation_name(result.violation) << "\n" << describe(cfg, s);
  std::vector<std::string> log;
  if (s.bad == Violation::kNone && check_state(cfg, s) == Violation::kNone &&
      check_fair_run(cfg, s, &log) != Violation::kNone) {
    o << "the network loses all under way and nothing more after that:\n";
    constexpr std::size_t kShown = 30;
    for (std::size_t i = 0; i < log.size() && i < kShown; ++i) o << "  " << log[i] << "\n";
    if (log.size() > kShown) o << "  ... and so on\n";
  }
  return o.str();
}

}  // namespace metaroce::model
