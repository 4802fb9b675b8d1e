// metaroce replay: repeats a recording in virtual time and compares what comes out.
#include <fmt/format.h>

#include <cstdio>

#include "cli_common.h"
#include "telemetry/replay.h"
#include "telemetry/sinks.h"

namespace metaroce::tool {
namespace {

void print(const ReplayOptions& options, const telemetry::ReplayResult& result,
           uint64_t datagrams) {
  const double seconds = static_cast<double>((result.last - result.first).ns) / 1e9;
  if (options.json) {
    const nlohmann::json out{{"identical", result.identical}, {"complete", result.complete},
                             {"damaged", result.damaged},     {"calls", result.calls},
                             {"seconds", seconds},            {"datagrams", datagrams},
                             {"text", result.text}};
    std::printf("%s\n", out.dump(2).c_str());
    return;
  }
  if (result.damaged || !result.identical) return say("metaroce replay: " + result.text);
  std::printf("%s (%.3f s)\n", result.text.c_str(), seconds);
  if (!options.pcap.empty()) {
    std::printf("%llu datagrams in %s\n", static_cast<unsigned long long>(datagrams),
                options.pcap.c_str());
  }
}

}  // namespace

int run_replay(const ReplayOptions& options) {
  auto recording = telemetry::Recording::open(options.file);
  if (!recording) {
    say("metaroce replay: " + recording.error());
    return kExitUnreadable;
  }
  std::unique_ptr<telemetry::PcapWriter> pcap;
  if (!options.pcap.empty()) {
    auto made = telemetry::PcapWriter::create(options.pcap, (*recording)->config().local,
                                              (*recording)->to_wall_clock());
    if (!made) {
      say("metaroce replay: " + made.error());
      return kExitFailed;
    }
    pcap = std::move(*made);
  }
  std::unique_ptr<telemetry::JsonTrace> trace;
  if (!options.trace.empty()) {
    auto made = telemetry::JsonTrace::create(options.trace, (*recording)->begin(),
                                             (*recording)->to_wall_clock());
    if (!made) {
      say("metaroce replay: " + made.error());
      return kExitFailed;
    }
    trace = std::move(*made);
  }
  const telemetry::ReplayResult result =
      telemetry::replay(**recording, pcap.get(), trace.get());
  bool written = true;
  if (trace != nullptr) {
    trace->flush();
    written = trace->error().empty();
    if (!written) say("metaroce replay: " + trace->error());
  }
  if (pcap != nullptr) {
    pcap->flush();
    written &= pcap->error().empty();
    if (!pcap->error().empty()) say("metaroce replay: " + pcap->error());
  }
  print(options, result, pcap == nullptr ? 0 : pcap->packets());
  if (result.damaged) return kExitUnreadable;
  return result.identical && written ? kExitOk : kExitFailed;
}

}  // namespace metaroce::tool
