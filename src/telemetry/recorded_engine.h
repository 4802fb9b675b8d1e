// An engine with taps: every call passes through, and is written down when somebody listens.
#pragma once

#include <optional>

#include "engine/engine.h"
#include "telemetry/outputs.h"
#include "telemetry/pcapng.h"
#include "telemetry/recorder.h"

namespace metaroce::telemetry {

/// What listens at an engine's boundary; nothing unless set.
struct Taps {
  Recorder* recorder = nullptr;
  PcapWriter* pcap = nullptr;
};

/// Has the calls of Engine that change it; a driver's loop and the owner of the engine use it in
/// the engine's place. Without taps a call costs one predictable branch more.
template <class AnyEngine>
class RecordedEngine {
 public:
  RecordedEngine(AnyEngine& engine, const Taps& taps) : engine_(engine), taps_(taps) {}

  size_t on_packets(Time now, std::span<const engine::RxPacket> packets,
                    std::span<engine::Placement> placements) {
    if (taps_.pcap != nullptr) taps_.pcap->received(now, packets);
    if (taps_.recorder == nullptr) return engine_.on_packets(now, packets, placements);
    taps_.recorder->packets(now, packets);
    const size_t n = engine_.on_packets(now, packets, placements);
    mix_outputs(taps_.recorder->hash(), std::span<const engine::Placement>(placements.first(n)));
    done(false);
    return n;
  }

  size_t poll_transmit(Time now, std::span<engine::TxRun> runs) {
    if (taps_.recorder != nullptr) taps_.recorder->transmit(now, runs.size());
    const size_t n = engine_.poll_transmit(now, runs);
    const std::span<const engine::TxRun> out = runs.first(n);
    if (taps_.pcap != nullptr && n > 0) taps_.pcap->sent(now, out);
    if (taps_.recorder == nullptr) return n;
    if (n > 0) mix_outputs(taps_.recorder->hash(), out);
    done(n == 0);
    return n;
  }

  Time next_deadline() const { return engine_.next_deadline(); }

  void on_deadline(Time now) {
    if (taps_.recorder != nullptr) taps_.recorder->deadline(now);
    engine_.on_deadline(now);
    if (taps_.recorder != nullptr) done(true);
  }

  size_t post(Time now, std::span<const engine::WorkRequest> requests, Status& status) {
    if (taps_.recorder != nullptr) taps_.recorder->post(now, requests);
    return posted(engine_.post(now, requests, status), status);
  }

  size_t post_receives(Time now, std::span<const engine::ReceiveRequest> requests, Status& status) {
    if (taps_.recorder != nullptr) taps_.recorder->post_receives(now, requests);
    return posted(engine_.post_receives(now, requests, status), status);
  }

  size_t poll_completions(std::span<engine::Completion> out) {
    if (taps_.recorder != nullptr) taps_.recorder->completions(out.size());
    const size_t n = engine_.poll_completions(out);
    if (taps_.recorder == nullptr) return n;
    if (n > 0) {
      mix_outputs(taps_.recorder->hash(), std::span<const engine::Completion>(out.first(n)));
    }
    done(n == 0);
    return n;
  }

  size_t poll_events(std::span<engine::ConnectionEvent> out) {
    const size_t n = engine_.poll_events(out);
    if (taps_.recorder == nullptr || n == 0) return n;  // fetching nothing changes nothing
    taps_.recorder->events(out.size());
    mix_outputs(taps_.recorder->hash(), std::span<const engine::ConnectionEvent>(out.first(n)));
    done(false);
    return n;
  }

  Expected<engine::ConnectionHandle, Status> connect(Time now,
                                                     const engine::ConnectRequest& request) {
    if (taps_.recorder != nullptr) taps_.recorder->connect(now, request);
    const auto handle = engine_.connect(now, request);
    if (taps_.recorder != nullptr) {
      taps_.recorder->hash().mix(handle ? *handle : static_cast<uint64_t>(handle.error()) << 32);
      done(false);
    }
    return handle;
  }

  void close(Time now, engine::ConnectionHandle connection, uint32_t code) {
    if (taps_.recorder != nullptr) taps_.recorder->close(now, connection, code);
    engine_.close(now, connection, code);
    if (taps_.recorder != nullptr) done(true);
  }

  void on_network_hint(Time now, engine::ConnectionHandle connection, uint8_t path,
                       engine::NetworkHint hint, uint32_t value) {
    if (taps_.recorder != nullptr) {
      taps_.recorder->network_hint(now, connection, path, hint, value);
    }
    engine_.on_network_hint(now, connection, path, hint, value);
    if (taps_.recorder != nullptr) done(true);
  }

  void on_plane_state(Time now, uint8_t plane, bool up) {
    if (taps_.recorder != nullptr) taps_.recorder->plane_state(now, plane, up);
    engine_.on_plane_state(now, plane, up);
    if (taps_.recorder != nullptr) done(true);
  }

  bool change_port(Time now, engine::ConnectionHandle connection, uint8_t path, uint16_t port) {
    if (taps_.recorder != nullptr) taps_.recorder->change_port(now, connection, path, port);
    const bool changed = engine_.change_port(now, connection, path, port);
    if (taps_.recorder != nullptr) {
      taps_.recorder->hash().mix(changed);
      done(false);
    }
    return changed;
  }

  /// Engine::regions().add_at; without `remote_base` peers use the memory's own address.
  Expected<memory::RegionInfo, Status> add_region(std::byte* base, uint64_t length, uint8_t rights,
                                                  std::optional<uint64_t> remote_base = {}) {
    const uint64_t remote = remote_base.value_or(std::bit_cast<uint64_t>(base));
    if (taps_.recorder != nullptr) taps_.recorder->add_region(base, length, rights, remote);
    const auto info = engine_.regions().add_at(base, length, rights, remote);
    if (taps_.recorder != nullptr) {
      taps_.recorder->hash().mix(info ? uint64_t{info->index} << 32 | info->key
                                      : static_cast<uint64_t>(info.error()));
      done(false);
    }
    return info;
  }

  Status remove_region(uint32_t index) {
    if (taps_.recorder != nullptr) taps_.recorder->remove_region(index);
    const Status status = engine_.regions().remove(index);
    if (taps_.recorder != nullptr) {
      taps_.recorder->hash().mix(static_cast<uint64_t>(status));
      done(false);
    }
    return status;
  }

  /// Sets something; the result is as of telemetry::apply.
  uint64_t tune(Time now, const Tune& what) {
    if (taps_.recorder != nullptr) taps_.recorder->tune(now, what);
    const uint64_t result = apply(engine_, now, what);
    if (taps_.recorder != nullptr) {
      taps_.recorder->hash().mix(result);
      done(false);
    }
    return result;
  }

 private:
  void done(bool quiet) { taps_.recorder->done(quiet, engine_.next_deadline()); }

  size_t posted(size_t n, Status status) {
    if (taps_.recorder == nullptr) return n;
    taps_.recorder->hash().mix(static_cast<uint64_t>(n) << 8 | static_cast<uint64_t>(status));
    done(false);
    return n;
  }

  AnyEngine& engine_;
  Taps taps_;
};

}  // namespace metaroce::telemetry
