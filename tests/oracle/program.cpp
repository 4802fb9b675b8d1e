#include "tests/oracle/program.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace metaroce::oracle {

namespace {

constexpr const char* kKinds[] = {
    "write",   "write_imm", "send",  "send_imm", "send_inv", "read",  "fetch_add", "compare_swap",
    "receive", "reset",     "drain", "reopen",   "remove",   "close", "abort",     "death"};
static_assert(std::size(kKinds) == static_cast<size_t>(StepKind::kCount));
constexpr const char* kFaults[] = {"none",    "bad_key", "bounds", "right",       "misaligned",
                                   "foreign", "mortal",  "window", "window_right"};
static_assert(std::size(kFaults) == static_cast<size_t>(Fault::kCount));

// Each visits the fields of one line; `v(name, field)`.
template <class V, class T>
void fields_of_program(V& v, T& p) {
  v("seed", p.seed);
  v("enough", p.enough);
}
template <class V, class T>
void fields_of_net(V& v, T& n) {
  v("planes", n.planes);
  v("paths", n.paths);
  v("mtu", n.mtu);
  v("rate_mbps", n.rate_mbps);
  v("delay_ns", n.delay_ns);
  v("spread_ns", n.spread_ns);
  v("loss_ppm", n.loss_ppm);
  v("duplicate_ppm", n.duplicate_ppm);
  v("reorder_ppm", n.reorder_ppm);
  v("reorder_ns", n.reorder_ns);
}
template <class V, class T>
void fields_of_limits(V& v, T& l) {
  v("sends", l.sends);
  v("receives", l.receives);
  v("open_messages", l.open_messages);
  v("pending", l.pending);
  v("responses", l.responses);
  v("outstanding", l.outstanding);
  v("span", l.span);
  v("segment_lists", l.segment_lists);
  v("copies", l.copies);
}
template <class V, class T>
void fields_of_dark(V& v, T& d) {
  v("plane", d.plane);
  v("path", d.path);
  v("direction", d.direction);
  v("begin_us", d.begin_us);
  v("end_us", d.end_us);
}
template <class V, class T>
void fields_of_stream(V& v, T& s) {
  v("in_order", s.in_order);
  v("rnr_a", s.rnr[0]);
  v("rnr_b", s.rnr[1]);
  v("shared_a", s.shared[0]);
  v("shared_b", s.shared[1]);
}
template <class V, class T>
void fields_of_step(V& v, T& s) {
  v("side", s.side);
  v("kind", s.kind);
  v("id", s.id);
  v("stream", s.stream);
  v("length", s.length);
  v("segments", s.segments);
  v("copied", s.copied);
  v("unsignalled", s.unsignalled);
  v("fence", s.fence);
  v("unordered", s.unordered);
  v("solicited", s.solicited);
  v("sync", s.sync);
  v("wait_ns", s.wait_ns);
  v("fault", s.fault);
  v("variant", s.variant);
}

/// Writes what differs from the default.
struct Writer {
  std::string& out;
  template <class T>
  void operator()(const char* name, const T& value) {
    if constexpr (std::is_same_v<T, StepKind> || std::is_same_v<T, Fault>) {
      if (value == T{} && std::is_same_v<T, Fault>) return;
      out += fmt::format(" {}={}", name, to_string(value));
    } else {
      out += fmt::format(" {}={}", name, value);
    }
  }
};

struct Reader {
  const std::string& key;
  const std::string& text;
  bool found = false;

  template <class T>
  void operator()(const char* name, T& value) {
    if (key != name) return;
    if constexpr (std::is_same_v<T, StepKind>) {
      find(kKinds, value);
    } else if constexpr (std::is_same_v<T, Fault>) {
      find(kFaults, value);
    } else {
      char* end = nullptr;
      value = static_cast<T>(std::strtoll(text.c_str(), &end, 10));
      found = end != text.c_str() && *end == '\0';
    }
  }
  template <size_t N, class T>
  void find(const char* const (&names)[N], T& value) {
    for (size_t i = 0; i < N; ++i) {
      if (text != names[i]) continue;
      value = static_cast<T>(i);
      found = true;
    }
  }
};

std::string shorter(const std::string& line) {
  // Zeros say nothing: every field but these has the default 0.
  std::istringstream in(line);
  std::string out, word;
  while (in >> word) {
    const bool zero = word.size() > 2 && word.substr(word.size() - 2) == "=0";
    const bool keep = word.rfind("rnr", 0) == 0 || word.rfind("plane=", 0) == 0 ||
                      word.rfind("path=", 0) == 0 || word.rfind("direction", 0) == 0 ||
                      word.rfind("segments", 0) == 0;
    if (zero && !keep) continue;
    if (word == "segments=1") continue;
    out += (out.empty() ? "" : " ") + word;
  }
  return out + "\n";
}

bool known(const Program& p, std::string& error) {
  for (const Step& s : p.steps) {
    if (s.side > 1 || s.stream >= p.streams.size() || s.segments > 16) {
      error = fmt::format("step {}: no such side, stream or number of segments", s.id);
      return false;
    }
  }
  return true;
}

bool parse_line(Program& p, const std::string& line) {
  std::istringstream in(line);
  std::string word;
  if (!(in >> word)) return true;
  const std::string what = word;
  if (what == "dark") p.dark.emplace_back();
  if (what == "stream") p.streams.emplace_back();
  if (what == "step") p.steps.emplace_back();
  while (in >> word) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return false;
    const std::string key = word.substr(0, equals), text = word.substr(equals + 1);
    Reader reader{key, text};
    if (what == "program") fields_of_program(reader, p);
    if (what == "network") fields_of_net(reader, p.net);
    if (what == "limits") fields_of_limits(reader, p.limits);
    if (what == "dark") fields_of_dark(reader, p.dark.back());
    if (what == "stream") fields_of_stream(reader, p.streams.back());
    if (what == "step") fields_of_step(reader, p.steps.back());
    if (!reader.found) return false;
  }
  return true;
}

}  // namespace

const char* to_string(StepKind kind) { return kKinds[static_cast<size_t>(kind)]; }
const char* to_string(Fault fault) { return kFaults[static_cast<size_t>(fault)]; }

std::string write_program(const Program& p) {
  std::string text;
  const auto line = [&text](const char* what, const auto& visit) {
    std::string out = what;
    Writer writer{out};
    visit(writer);
    text += shorter(out);
  };
  line("program", [&](Writer& w) { fields_of_program(w, p); });
  line("network", [&](Writer& w) { fields_of_net(w, p.net); });
  line("limits", [&](Writer& w) { fields_of_limits(w, p.limits); });
  for (const Dark& d : p.dark) line("dark", [&](Writer& w) { fields_of_dark(w, d); });
  for (const StreamPlan& s : p.streams) line("stream", [&](Writer& w) { fields_of_stream(w, s); });
  for (const Step& s : p.steps) line("step", [&](Writer& w) { fields_of_step(w, s); });
  return text;
}

Expected<Program, std::string> parse_program(const std::string& text) {
  Program p;
  std::istringstream in(text);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string code = line.substr(0, line.find('#'));
    // A field left out is 0, so that a line says only what is there.
    if (!parse_line(p, code)) return unexpected(fmt::format("line {}: {}", number, line));
  }
  std::string error;
  if (!known(p, error)) return unexpected(error);
  return p;
}

Expected<Program, std::string> read_program(const std::string& file) {
  std::ifstream in(file);
  if (!in) return unexpected(file + ": cannot be read");
  std::ostringstream text;
  text << in.rdbuf();
  auto program = parse_program(text.str());
  if (!program) return unexpected(file + ": " + program.error());
  return program;
}

}  // namespace metaroce::oracle
