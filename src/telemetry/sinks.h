// Sinks for the engine's events: counts, and a trace as JSON text sequences.
#pragma once

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/events.h"
#include "base/expected.h"

namespace metaroce::telemetry {

/// How often each kind happened.
class CountingSink final : public EventSink {
 public:
  void on_event(const Event& event) override { ++counts_[static_cast<size_t>(event.kind)]; }
  uint64_t count(EventKind kind) const { return counts_[static_cast<size_t>(kind)]; }
  uint64_t total() const;

 private:
  std::array<uint64_t, static_cast<size_t>(EventKind::kCount)> counts_{};
};

/// JSON text sequences (RFC 7464: RS, one JSON object, LF) in the manner of qlog: a first record
/// that says what follows, then one a event: {"time":ms,"name":"metaroce:KIND","data":{...}}.
/// Times are ms since the trace began. Writes through a buffer of 256 KiB.
class JsonTrace final : public EventSink {
 public:
  /// `to_wall_clock`: what to add to the engine's time to get ns since 1970.
  static Expected<std::unique_ptr<JsonTrace>, std::string> create(const std::string& path,
                                                                  Time begin,
                                                                  Duration to_wall_clock);
  ~JsonTrace();
  JsonTrace(const JsonTrace&) = delete;
  JsonTrace& operator=(const JsonTrace&) = delete;

  void on_event(const Event& event) override;
  void flush();
  uint64_t events() const { return events_; }
  /// Why the trace ends early, or "".
  const std::string& error() const { return error_; }

 private:
  JsonTrace(std::FILE* file, std::string path, Time begin)
      : file_(file), path_(std::move(path)), begin_(begin) {}
  void write(const std::string& text);

  std::FILE* file_;
  std::string path_;
  std::string error_;
  std::string line_;
  Time begin_;
  uint64_t events_ = 0;
};

}  // namespace metaroce::telemetry
