#include "telemetry/replay.h"

#include <fmt/format.h>

#include "telemetry/outputs.h"

namespace metaroce::telemetry {
namespace {

class Replay {
 public:
  Replay(Recording& recording, PcapWriter* pcap, engine::EngineConfig config)
      : recording_(recording), pcap_(pcap), engine_(std::move(config), recording.rng()) {}

  ReplayResult run();

 private:
  /// Makes the call; true when something came out of it (beyond a moved deadline).
  bool make(const RecordedCall& call);
  bool make_rest(const RecordedCall& call);
  bool posted(size_t n, Status status);
  void diverged(const RecordedCall& call, const char* how);
  void end(const RecordedCall& call);

  Recording& recording_;
  PcapWriter* pcap_;
  engine::Engine engine_;
  RollingHash hash_;
  ReplayResult result_;
  std::vector<engine::Placement> placements_;
  std::vector<engine::TxRun> runs_;
  std::vector<engine::Completion> completions_;
  std::vector<engine::ConnectionEvent> events_;
};

bool Replay::posted(size_t n, Status status) {
  hash_.mix(static_cast<uint64_t>(n) << 8 | static_cast<uint64_t>(status));
  return true;
}

bool Replay::make(const RecordedCall& call) {
  Status status = Status::kOk;
  switch (call.kind) {
    case CallKind::kPackets: {
      if (placements_.size() < call.packets.size()) placements_.resize(call.packets.size());
      for (size_t i = 0; pcap_ != nullptr && i < call.packets.size(); ++i) {
        pcap_->received(call.now, call.packets[i], call.known[i]);
      }
      const size_t n = engine_.on_packets(call.now, call.packets, placements_);
      mix_outputs(hash_, std::span<const engine::Placement>(placements_.data(), n));
      return true;
    }
    case CallKind::kTransmit: {
      if (runs_.size() < call.capacity) runs_.resize(call.capacity);
      const size_t n = engine_.poll_transmit(call.now, {runs_.data(), call.capacity});
      const std::span<const engine::TxRun> out(runs_.data(), n);
      if (pcap_ != nullptr) pcap_->sent(call.now, out, false);
      if (n > 0) mix_outputs(hash_, out);
      return n > 0;
    }
    case CallKind::kDeadline:
      engine_.on_deadline(call.now);
      return false;
    case CallKind::kPost: {
      const size_t n = engine_.post(call.now, call.work, status);
      return posted(n, status);
    }
    case CallKind::kPostReceives: {
      const size_t n = engine_.post_receives(call.now, call.receives, status);
      return posted(n, status);
    }
    case CallKind::kCompletions: {
      if (completions_.size() < call.capacity) completions_.resize(call.capacity);
      const size_t n = engine_.poll_completions({completions_.data(), call.capacity});
      if (n > 0) mix_outputs(hash_, std::span<const engine::Completion>(completions_.data(), n));
      return n > 0;
    }
    case CallKind::kEvents: {
      if (events_.size() < call.capacity) events_.resize(call.capacity);
      const size_t n = engine_.poll_events({events_.data(), call.capacity});
      mix_outputs(hash_, std::span<const engine::ConnectionEvent>(events_.data(), n));
      return true;
    }
    default:
      return make_rest(call);
  }
}

/// The calls that have nothing to do with the way of a packet.
bool Replay::make_rest(const RecordedCall& call) {
  switch (call.kind) {
    case CallKind::kConnect: {
      const auto handle = engine_.connect(call.now, call.connect);
      hash_.mix(handle ? *handle : static_cast<uint64_t>(handle.error()) << 32);
      return true;
    }
    case CallKind::kClose:
      engine_.close(call.now, call.connection, call.value);
      return false;
    case CallKind::kNetworkHint:
      engine_.on_network_hint(call.now, call.connection, call.path, call.hint, call.value);
      return false;
    case CallKind::kPlaneState:
      engine_.on_plane_state(call.now, call.path, call.up);
      return false;
    case CallKind::kChangePort:
      hash_.mix(engine_.change_port(call.now, call.connection, call.path,
                                    static_cast<uint16_t>(call.value)));
      return true;
    case CallKind::kAddRegion: {
      const auto info =
          engine_.regions().add_at(call.base, call.length, call.rights, call.remote_base);
      hash_.mix(info ? uint64_t{info->index} << 32 | info->key
                     : static_cast<uint64_t>(info.error()));
      return true;
    }
    case CallKind::kRemoveRegion:
      hash_.mix(static_cast<uint64_t>(engine_.regions().remove(call.value)));
      return true;
    case CallKind::kTune:
      hash_.mix(apply(engine_, call.now, call.tune));
      return true;
    default:
      return false;
  }
}

void Replay::diverged(const RecordedCall& call, const char* how) {
  result_.identical = false;
  const Duration since = call.now - result_.first;
  result_.text = fmt::format(
      "call {} ({}) at {}.{:09} s is the first that differs: {}; the {} calls before it are "
      "identical",
      recording_.calls(), to_string(call.kind), since.ns / 1'000'000'000, since.ns % 1'000'000'000,
      how, recording_.calls() - 1);
}

void Replay::end(const RecordedCall& call) {
  if (call.total_calls != recording_.calls()) {
    result_.damaged = true;
    result_.text = fmt::format("the recording is damaged: its end counts {} calls, {} are there",
                               call.total_calls, recording_.calls());
    return;
  }
  if (call.output_hash != hash_.value() || call.state_hash != engine_.state_hash()) {
    result_.identical = false;
    result_.text = call.output_hash != hash_.value()
                       ? "the hash over all outputs differs at the end"
                       : "the state of the engine differs at the end";
    return;
  }
  result_.complete = true;
  result_.text = fmt::format("{} calls identical", result_.calls);
}

ReplayResult Replay::run() {
  result_.identical = true;
  RecordedCall call;
  Time deadline = kNever;
  bool first = true;
  for (;;) {
    const Recording::Next next = recording_.next(call);
    if (next == Recording::Next::kDamaged) {
      result_.damaged = true;
      result_.text = recording_.error() + "; the calls before it are identical";
      return result_;
    }
    if (next == Recording::Next::kCut) {
      result_.text = fmt::format(
          "{} calls identical; the recording has no end: the process was killed or still runs",
          result_.calls);
      return result_;
    }
    if (next == Recording::Next::kEnd) {
      end(call);
      return result_;
    }
    if (first && call.now.ns != 0) {
      result_.first = call.now;
      first = false;
    }
    result_.last = call.now;
    const bool something = make(call);
    const bool quiet = !something && engine_.next_deadline() == deadline;
    deadline = engine_.next_deadline();
    if (!quiet) hash_.mix(static_cast<uint64_t>(deadline.ns));
    if (quiet == call.has_hash) {
      diverged(call, quiet ? "something came out then, nothing now"
                           : "nothing came out then, something now");
      return result_;
    }
    if (!quiet && static_cast<uint32_t>(hash_.value()) != call.hash) {
      diverged(call, "what came out or the next deadline");
      return result_;
    }
    ++result_.calls;
  }
}

}  // namespace

ReplayResult replay(Recording& recording, PcapWriter* pcap, EventSink* events) {
  engine::EngineConfig config = recording.config();
  config.events = events;
  config.memory = false;  // the addresses are those of another process
  return Replay(recording, pcap, std::move(config)).run();
}

}  // namespace metaroce::telemetry
