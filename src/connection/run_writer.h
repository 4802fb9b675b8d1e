// Fills TxRun after TxRun: packets of one path and equal size become one run (MR-WIRE-011).
#pragma once

#include <span>

#include "connection/io.h"
#include "message/gather.h"
#include "wire/data_packet.h"

namespace metaroce::connection {

class RunWriter {
 public:
  /// `session` seals what is sent; null: plain.
  RunWriter(std::span<TxRun> runs, uint32_t max_run, const message::GatherSpace& gather,
            secure::Session* session = nullptr)
      : runs_(runs), gather_(gather), max_run_(max_run), session_(session) {}

  size_t used() const { return used_; }
  bool full() const { return used_ == runs_.size() || gather_.scarce(); }

  /// A new run can always be begun while !full(). Ends the run before.
  TxRun& begin() {
    TxRun& run = runs_[used_++];
    run.count = 0;
    run.session = session_;
    run.trailer = session_ == nullptr ? wire::kCrcBytes : wire::kTagBytes;
    run.ecn = Ecn::kEct0;  // MR-ADDR-008
    run.is_data = true;
    run.needs_df = true;
    header_end_ = 0;
    wire_size_ = 0;
    ended_ = false;
    open_ = true;
    return run;
  }
  void end() { open_ = false; }

  /// May a packet of this size follow in the run that is open for this path?
  bool can_append(uint8_t path, uint32_t wire_size) const {
    if (!open_ || ended_) return false;
    const TxRun& run = runs_[used_ - 1];
    return run.path == path && run.count > 0 && run.count < max_run_ && wire_size <= wire_size_;
  }
  /// Packets that the open run could still take.
  uint32_t room() const { return open_ && !ended_ ? max_run_ - runs_[used_ - 1].count : 0; }
  bool is_open_for(uint8_t path) const { return open_ && runs_[used_ - 1].path == path; }

  /// Where the next header is written (at least 80 bytes are free in a run of data).
  std::byte* header() { return runs_[used_ - 1].headers + header_end_; }

  void commit(size_t header_bytes, const std::byte* payload, uint32_t payload_bytes) {
    TxRun& run = runs_[used_ - 1];
    run.header_length[run.count] = static_cast<uint16_t>(header_bytes);
    run.payload[run.count] = payload;
    run.payload_length[run.count] = payload_bytes;
    const uint32_t size = static_cast<uint32_t>(header_bytes) + payload_bytes;
    if (run.count == 0) {
      wire_size_ = size;
    } else if (size < wire_size_) {
      ended_ = true;  // a shorter packet ends its run
    }
    ++run.count;  // MR-ADDR-001
    header_end_ += header_bytes + run.trailer;
  }

  /// `count` packets (at most room()) that follow the last one, which `headers` started from.
  void commit_like(wire::HeaderRun headers, uint32_t count) {
    TxRun& run = runs_[used_ - 1];
    const uint32_t end = run.count + count;
    const uint16_t header = run.header_length[run.count - 1];
    const std::byte* payload = run.payload[run.count - 1];
    std::byte* out = run.headers + header_end_;
    for (uint32_t i = run.count; i < end; ++i) {
      headers.next(out);
      out += header + run.trailer;
      if (payload != nullptr) payload += headers.length();
      run.header_length[i] = header;
      run.payload[i] = payload;
      run.payload_length[i] = headers.length();
    }
    run.count = static_cast<uint8_t>(end);  // MR-ADDR-001
    header_end_ += count * (header + run.trailer);
  }

 private:
  std::span<TxRun> runs_;
  const message::GatherSpace& gather_;
  size_t used_ = 0;
  size_t header_end_ = 0;
  uint32_t max_run_;
  secure::Session* session_;
  uint32_t wire_size_ = 0;
  bool ended_ = false;
  bool open_ = false;
};

}  // namespace metaroce::connection
