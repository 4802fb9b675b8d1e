#include "perf_protocol.h"

#include <fmt/format.h>

namespace metaroce::tool {
namespace {

constexpr uint32_t kMagic = 0x4D525046;  // "MRPF"
constexpr size_t kMostText = 512;

enum Type : uint8_t {
  kStart = 1,
  kReady = 2,
  kRefuse = 3,
  kGo = 4,
  kMark = 5,
  kDone = 6,
  kStop = 7,
  kReport = 8,
};

class Writer {
 public:
  template <class T>
  void put(T value) {
    const auto wide = static_cast<uint64_t>(value);
    for (size_t i = sizeof(T); i-- > 0;) {
      bytes_.push_back(static_cast<std::byte>(wide >> (8 * i)));
    }
  }
  void head(Type type, uint16_t version) {
    put(static_cast<uint8_t>(type));
    put(version);
    put(kMagic);
  }
  void text(const std::string& text) {
    const size_t n = std::min(text.size(), kMostText);
    put(static_cast<uint16_t>(n));
    for (size_t i = 0; i < n; ++i) bytes_.push_back(static_cast<std::byte>(text[i]));
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads past the end give zero and are remembered.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  void get(T& value) {
    uint64_t wide = 0;
    for (size_t i = 0; i < sizeof(T); ++i) wide = (wide << 8) | next();
    value = static_cast<T>(wide);
  }
  void get_bool(bool& value) {
    uint8_t byte = 0;
    get(byte);
    if (byte > 1) bad_ = true;
    value = byte == 1;
  }
  void get_text(std::string& text) {
    uint16_t n = 0;
    get(n);
    if (n > kMostText || n > bytes_.size() - at_) {
      bad_ = true;
      return;
    }
    // The peer's words are shown on a terminal: no control characters.
    for (uint16_t i = 0; i < n; ++i) {
      const auto c = static_cast<char>(next());
      text += c >= 0x20 && c < 0x7F ? c : '?';
    }
  }
  bool exhausted() const { return !bad_ && at_ == bytes_.size(); }
  bool good() const { return !bad_; }
  void fail() { bad_ = true; }

 private:
  uint8_t next() {
    if (at_ == bytes_.size()) {
      bad_ = true;
      return 0;
    }
    return static_cast<uint8_t>(bytes_[at_++]);
  }
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool bad_ = false;
};

void put(Writer& w, const PerfPlan& p) {
  w.put(static_cast<uint8_t>(p.op));
  w.put(static_cast<uint8_t>(p.ping_pong));
  w.put(static_cast<uint8_t>(p.verify));
  w.put(p.direction);
  w.put(p.streams);
  w.put(p.depth);
  w.put(p.size);
  w.put(p.warmup_ns);
  w.put(p.time_ns);
  w.put(p.count);
  w.put(p.seed);
}

void get(Reader& r, PerfPlan& p) {
  uint8_t op = 0;
  r.get(op);
  if (op > static_cast<uint8_t>(PerfOp::kFetchAdd)) r.fail();
  p.op = static_cast<PerfOp>(op);
  r.get_bool(p.ping_pong);
  r.get_bool(p.verify);
  r.get(p.direction);
  r.get(p.streams);
  r.get(p.depth);
  r.get(p.size);
  r.get(p.warmup_ns);
  r.get(p.time_ns);
  r.get(p.count);
  r.get(p.seed);
}

void put(Writer& w, const PerfGrant& g) {
  w.put(g.key);
  w.put(g.address);
  w.put(g.slots);
}

void get(Reader& r, PerfGrant& g) {
  r.get(g.key);
  r.get(g.address);
  r.get(g.slots);
}

// One list of fields serves both directions, so that they cannot differ.
template <class Io, class Sent, class Field>
void each_field(Io& io, Sent& s, Field field) {
  field(io, s.messages);
  field(io, s.bytes);
  field(io, s.ns);
  field(io, s.gap_ns);
  field(io, s.latency.count);
  field(io, s.latency.min);
  field(io, s.latency.mean);
  field(io, s.latency.p50);
  field(io, s.latency.p90);
  field(io, s.latency.p99);
  field(io, s.latency.p999);
  field(io, s.latency.max);
}

template <class Io, class Path, class Field>
void each_path_field(Io& io, Path& p, Field field) {
  field(io, p.id);
  field(io, p.plane);
  field(io, p.state);
  field(io, p.port);
  field(io, p.pmtu);
  field(io, p.window);
  field(io, p.srtt_ns);
  field(io, p.packets);
  field(io, p.data);
  field(io, p.repairs);
  field(io, p.copies);
  field(io, p.probes);
  field(io, p.acked);
  field(io, p.lost);
  field(io, p.spurious);
  field(io, p.marks);
  field(io, p.in_flight);
}

constexpr auto kPut = [](Writer& w, const auto& value) { w.put(value); };
constexpr auto kGet = [](Reader& r, auto& value) { r.get(value); };

void put(Writer& w, const PerfReport& report) {
  each_field(w, report.sent, kPut);
  w.put(report.cpu_ns);
  w.put(report.cpu_span_ns);
  w.put(static_cast<uint8_t>(report.cpu_shared));
  w.put(report.packets_received);
  w.put(report.duplicates);
  w.put(report.messages_received);
  w.put(report.verified);
  w.put(report.verify_errors);
  const size_t n = std::min(report.paths.size(), kMostPerfPaths);
  w.put(static_cast<uint16_t>(n));
  for (size_t i = 0; i < n; ++i) each_path_field(w, report.paths[i], kPut);
}

void get(Reader& r, PerfReport& report) {
  each_field(r, report.sent, kGet);
  r.get(report.cpu_ns);
  r.get(report.cpu_span_ns);
  r.get_bool(report.cpu_shared);
  r.get(report.packets_received);
  r.get(report.duplicates);
  r.get(report.messages_received);
  r.get(report.verified);
  r.get(report.verify_errors);
  uint16_t n = 0;
  r.get(n);
  if (n > kMostPerfPaths) r.fail();
  for (uint16_t i = 0; i < n && r.good(); ++i) {
    PerfPath path;
    each_path_field(r, path, kGet);
    report.paths.push_back(path);
  }
}

struct Encode {
  Writer& w;
  void operator()(const PerfStart& m) const {
    w.head(kStart, m.version);
    put(w, m.plan);
  }
  void operator()(const PerfReady& m) const {
    w.head(kReady, m.version);
    put(w, m.grant);
  }
  void operator()(const PerfRefuse& m) const {
    w.head(kRefuse, m.version);
    w.text(m.text);
  }
  void operator()(const PerfGo& m) const {
    w.put(static_cast<uint8_t>(kGo));
    put(w, m.grant);
  }
  void operator()(const PerfMark& m) const {
    w.put(static_cast<uint8_t>(kMark));
    w.put(m.before);
  }
  void operator()(const PerfDone& m) const {
    w.put(static_cast<uint8_t>(kDone));
    w.put(m.messages);
  }
  void operator()(const PerfStop&) const { w.put(static_cast<uint8_t>(kStop)); }
  void operator()(const PerfReport& m) const {
    w.put(static_cast<uint8_t>(kReport));
    put(w, m);
  }
};

Expected<PerfMessage, std::string> decode_versioned(uint8_t type, Reader& r, size_t size) {
  uint16_t version = 0;
  uint32_t magic = 0;
  r.get(version);
  r.get(magic);
  if (!r.good() || magic != kMagic) {
    return unexpected(std::string("not a message of metaroce perf (its mark is missing)"));
  }
  // What follows the mark may differ in another version: only the number is taken.
  const bool same = version == kPerfVersion;
  PerfMessage message;
  if (type == kStart) {
    PerfStart start{version, {}};
    if (same) get(r, start.plan);
    message = start;
  } else if (type == kReady) {
    PerfReady ready{version, {}};
    if (same) get(r, ready.grant);
    message = ready;
  } else {
    PerfRefuse refuse{version, {}};
    if (same) r.get_text(refuse.text);
    message = refuse;
  }
  if (same && !r.exhausted()) {
    return unexpected(fmt::format("a message of type {} with {} bytes is malformed", type, size));
  }
  return message;
}

}  // namespace

const char* to_string(PerfOp op) {
  switch (op) {
    case PerfOp::kWrite:
      return "write";
    case PerfOp::kWriteImm:
      return "write-imm";
    case PerfOp::kSend:
      return "send";
    case PerfOp::kRead:
      return "read";
    case PerfOp::kFetchAdd:
      return "fetch-add";
  }
  return "?";
}

std::vector<std::byte> encode(const PerfMessage& message) {
  Writer w;
  std::visit(Encode{w}, message);
  return w.take();
}

Expected<PerfMessage, std::string> decode_perf(std::span<const std::byte> bytes) {
  if (bytes.empty()) return unexpected(std::string("an empty message"));
  if (bytes.size() > kMaxPerfMessage) {
    return unexpected(fmt::format("a message of {} bytes; at most {} are allowed", bytes.size(),
                                  kMaxPerfMessage));
  }
  const auto type = static_cast<uint8_t>(bytes[0]);
  Reader r(bytes.subspan(1));
  PerfMessage message;
  switch (type) {
    case kStart:
    case kReady:
    case kRefuse:
      return decode_versioned(type, r, bytes.size());
    case kGo: {
      PerfGo go;
      get(r, go.grant);
      message = go;
      break;
    }
    case kMark: {
      PerfMark mark;
      r.get(mark.before);
      message = mark;
      break;
    }
    case kDone: {
      PerfDone done;
      r.get(done.messages);
      message = done;
      break;
    }
    case kStop:
      message = PerfStop{};
      break;
    case kReport: {
      PerfReport report;
      get(r, report);
      message = std::move(report);
      break;
    }
    default:
      return unexpected(fmt::format("a message of unknown type {}", type));
  }
  if (!r.exhausted()) {
    return unexpected(
        fmt::format("a message of type {} with {} bytes is malformed", type, bytes.size()));
  }
  return message;
}

std::string check_plan(const PerfPlan& plan) {
  if (plan.direction < kForward || plan.direction > kBoth) {
    return fmt::format("direction {} does not exist", plan.direction);
  }
  if (plan.streams < 1 || plan.streams > kMostPerfStreams) {
    return fmt::format("{} streams; 1 to {} are possible", plan.streams, kMostPerfStreams);
  }
  if (plan.depth < 1 || plan.depth > kMostPerfDepth) {
    return fmt::format("queue depth {}; 1 to {} are possible", plan.depth, kMostPerfDepth);
  }
  if (plan.size < 1 || plan.size > kMostPerfSize) {
    return fmt::format("messages of {} bytes; 1 to {} are possible", plan.size, kMostPerfSize);
  }
  if (plan.op == PerfOp::kFetchAdd && plan.size != 8) {
    return fmt::format("fetch-add works on 8 bytes, not {}", plan.size);
  }
  if ((plan.time_ns == 0) == (plan.count == 0)) return "needs either a time or a count";
  if (plan.time_ns < 0 || plan.time_ns > kMostPerfTime || plan.warmup_ns < 0 ||
      plan.warmup_ns > kMostPerfTime) {
    return "a time must be at most 7 days";
  }
  if (plan.ping_pong && (plan.streams != 1 || plan.depth != 1)) {
    return "a latency run has one stream and one message under way";
  }
  if (plan.ping_pong && plan.direction == kBoth) {
    return "a latency run has one direction";
  }
  return {};
}

}  // namespace metaroce::tool
