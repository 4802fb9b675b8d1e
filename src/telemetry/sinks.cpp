#include "telemetry/sinks.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <numeric>

#include "engine/api.h"

namespace metaroce::telemetry {
namespace {

constexpr size_t kBuffer = 256u << 10;
constexpr char kRecordSeparator = '\x1e';

const char* path_state(uint64_t state) {
  // path::State and engine::PathState differ in where "closed" stands.
  static constexpr const char* kNames[] = {"closed", "opening", "validating",
                                           "good",   "suspect", "dead"};
  return state < std::size(kNames) ? kNames[state] : "?";
}

/// The value as a reader wants it: names where the number stands for one.
std::string value_of(const Event& e, int field, uint64_t value) {
  const auto quoted = [](const char* text) { return fmt::format("\"{}\"", text); };
  switch (e.kind) {
    case EventKind::connection_state:
      if (field < 2) return quoted(engine::to_string(static_cast<engine::ConnectionState>(value)));
      return quoted(to_string(static_cast<Status>(value)));
    case EventKind::path_state:
      if (field < 2) return quoted(path_state(value));
      return quoted(engine::to_string(static_cast<engine::PathChange>(value)));
    case EventKind::stall_begin:
    case EventKind::stall_end:
      if (field == 0) return quoted(engine::to_string(static_cast<engine::StallReason>(value)));
      break;
    default:
      break;
  }
  return fmt::format("{}", value);
}

}  // namespace

uint64_t CountingSink::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
}

Expected<std::unique_ptr<JsonTrace>, std::string> JsonTrace::create(const std::string& path,
                                                                    Time begin,
                                                                    Duration to_wall_clock) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return unexpected(fmt::format("cannot write the trace {}: {}", path, strerror(errno)));
  }
  std::setvbuf(file, nullptr, _IOFBF, kBuffer);
  std::unique_ptr<JsonTrace> trace(new JsonTrace(file, path, begin));
  trace->write(fmt::format(
      "{}{{\"qlog_format\":\"JSON-SEQ\",\"qlog_version\":\"0.3\",\"title\":\"metaroce\","
      "\"trace\":{{\"common_fields\":{{\"protocol_type\":[\"METAROCE\"],\"time_format\":"
      "\"relative\",\"reference_time\":{:.6f}}}}}}}\n",
      kRecordSeparator, static_cast<double>((begin + to_wall_clock).ns) / 1e6));
  if (!trace->error_.empty()) return unexpected(trace->error_);
  return trace;
}

JsonTrace::~JsonTrace() { std::fclose(file_); }

void JsonTrace::write(const std::string& text) {
  if (!error_.empty()) return;
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) {
    error_ = fmt::format("the trace {} ends after {} events: {}", path_, events_, strerror(errno));
  }
}

void JsonTrace::flush() {
  if (std::fflush(file_) != 0 && error_.empty()) {
    error_ = fmt::format("the trace {}: {}", path_, strerror(errno));
  }
}

void JsonTrace::on_event(const Event& e) {
  const EventInfo& info = info_of(e.kind);
  const int64_t ns = (e.time - begin_).ns;
  line_ = fmt::format("{}{{\"time\":{}{}.{:06},\"name\":\"metaroce:{}\",\"data\":{{",
                      kRecordSeparator, ns < 0 ? "-" : "", std::abs(ns) / 1'000'000,
                      std::abs(ns) % 1'000'000, info.name);
  const char* comma = "";
  if (e.connection != 0) {
    line_ += fmt::format("\"connection\":\"{:08x}\"", e.connection);
    comma = ",";
  }
  if (e.path != 0xFF) {
    line_ += fmt::format("{}\"path\":{}", comma, e.path);
    comma = ",";
  }
  const uint64_t values[] = {e.a, e.b, e.c};
  for (int i = 0; i < 3; ++i) {
    if (info.field[i][0] == '\0') continue;
    line_ += fmt::format("{}\"{}\":{}", comma, info.field[i], value_of(e, i, values[i]));
    comma = ",";
  }
  line_ += "}}\n";
  write(line_);
  ++events_;
}

}  // namespace metaroce::telemetry
