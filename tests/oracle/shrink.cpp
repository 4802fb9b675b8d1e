// Makes a failing program small: each try runs in a process of its own, so that an assertion and a
// run without end count as failures.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "tests/oracle/command.h"

namespace metaroce::oracle {

namespace {

constexpr unsigned kChildSeconds = 30;

class Shrinker {
 public:
  Shrinker(const Program& program, int most)
      : best_(program), what_(kind_of(run_in_child(program).what)), left_(most) {}

  Program run() {
    for (size_t before = 0; before != size() && left_ > 0;) {
      before = size();
      drop_steps();
      simplify();
    }
    return best_;
  }

 private:
  size_t size() const { return write_program(best_).size(); }

  bool keep(const Program& candidate) {
    if (left_ <= 0 || candidate == best_) return false;
    --left_;
    const ChildOutcome outcome = run_in_child(candidate);
    if (!outcome.failed || kind_of(outcome.what) != what_) return false;
    best_ = candidate;
    return true;
  }

  /// What a failure says, without what differs from one program to the next: a small program must
  /// not show another mistake than the large one.
  static std::string kind_of(const std::string& what) {
    std::string kind;
    for (const char c : what.substr(0, what.find('('))) {
      if (c < '0' || c > '9') kind += c;
    }
    for (const char* name : {"write_imm", "write", "send_imm", "send_inv", "send", "read",
                             "fetch_add", "compare_swap", "side a", "side b"}) {
      for (size_t at = kind.find(name); at != std::string::npos; at = kind.find(name)) {
        kind.replace(at, std::strlen(name), "*");
      }
    }
    return kind;
  }

  /// Halves, then quarters, down to single steps.
  void drop_steps() {
    for (size_t chunk = best_.steps.size() / 2; chunk > 0; chunk /= 2) {
      for (size_t at = 0; at < best_.steps.size() && left_ > 0;) {
        Program p = best_;
        const size_t end = std::min(at + chunk, p.steps.size());
        p.steps.erase(p.steps.begin() + static_cast<std::ptrdiff_t>(at),
                      p.steps.begin() + static_cast<std::ptrdiff_t>(end));
        if (!keep(p)) at += chunk;
      }
    }
  }

  void change(const std::function<void(Program&)>& how) {
    Program p = best_;
    how(p);
    keep(p);
  }

  void simplify() {
    change([](Program& p) { p.enough = 0; });
    change([](Program& p) { p.net.loss_ppm = 0; });
    change([](Program& p) { p.net.duplicate_ppm = 0; });
    change([](Program& p) { p.net.reorder_ppm = p.net.reorder_ns = 0; });
    change([](Program& p) { p.net.spread_ns = 0; });
    change([](Program& p) { p.net.planes = 1; });
    change([](Program& p) { p.net.paths = 1; });
    change([](Program& p) { p.dark.clear(); });
    change([](Program& p) { p.limits = Limits{}; });
    for (size_t i = 0; i < best_.dark.size(); ++i) {
      change([i](Program& p) { p.dark.erase(p.dark.begin() + static_cast<std::ptrdiff_t>(i)); });
    }
    drop_streams();
    for (size_t i = 0; i < best_.streams.size(); ++i) {
      change([i](Program& p) { p.streams[i] = StreamPlan{}; });
      change([i](Program& p) { p.streams[i].in_order = 0; });
      change([i](Program& p) { p.streams[i].shared = {0, 0}; });
      change([i](Program& p) { p.streams[i].rnr = {7, 7}; });
    }
    for (size_t i = 0; i < best_.steps.size() && left_ > 0; ++i) simplify_step(i);
  }

  void drop_streams() {
    for (size_t i = best_.streams.size(); i-- > 0;) {
      Program p = best_;
      bool used = p.streams.size() == 1;
      for (Step& s : p.steps) {
        used = used || s.stream == i;
        if (s.stream > i) --s.stream;
      }
      if (used) continue;
      p.streams.erase(p.streams.begin() + static_cast<std::ptrdiff_t>(i));
      keep(p);
    }
  }

  void simplify_step(size_t i) {
    change([i](Program& p) {
      Step plain;
      const Step& s = p.steps[i];
      plain.id = s.id;
      plain.side = s.side;
      plain.kind = s.kind;
      plain.stream = s.stream;
      plain.length = s.length;
      plain.fault = s.fault;
      plain.variant = s.variant;
      p.steps[i] = plain;
    });
    for (uint32_t Step::*field :
         {&Step::segments, &Step::copied, &Step::unsignalled, &Step::fence, &Step::unordered,
          &Step::solicited, &Step::sync, &Step::wait_ns}) {
      const uint32_t value = field == &Step::segments ? 1 : 0;
      change([i, field, value](Program& p) { p.steps[i].*field = value; });
    }
    change([i](Program& p) { p.steps[i].length /= 2; });
    change([i](Program& p) { p.steps[i].fault = Fault::kNone; });
  }

  Program best_;
  std::string what_;
  int left_;
};

}  // namespace

ChildOutcome run_in_child(const Program& program) {
  int ends[2];
  if (pipe(ends) != 0) return {true, fmt::format("pipe: {}", std::strerror(errno))};
  const pid_t child = fork();
  if (child < 0) return {true, fmt::format("fork: {}", std::strerror(errno))};
  if (child == 0) {
    close(ends[0]);
    dup2(ends[1], 2);  // what an assertion says
    alarm(kChildSeconds);
    const Outcome out = run_program(program);
    if (out.differences.empty()) _exit(0);
    const std::string& text = out.differences.front();
    if (write(ends[1], text.data(), text.size()) < 0) _exit(3);
    _exit(1);
  }
  close(ends[1]);
  ChildOutcome result;
  char buffer[512];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    result.what.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  if (WIFSIGNALED(status)) {
    result.what += WTERMSIG(status) == SIGALRM ? fmt::format("no end after {} s", kChildSeconds)
                                               : fmt::format(" (signal {})", WTERMSIG(status));
  }
  return result;
}

Program shrink(const Program& program, int most_runs) { return Shrinker(program, most_runs).run(); }

}  // namespace metaroce::oracle
