#include "congestion/window.h"

#include <algorithm>

namespace metaroce::congestion {
namespace {
constexpr uint32_t kOne = 65536;
constexpr int kGainShift = 4;  // DCTCP's g = 1/16 (RFC 8257)
}  // namespace

void Window::on_ack(const AckInfo& ack, const Limits& limits) {
  if (before_cut_ != 0 && ack.now - last_cut_ > ack.srtt * 2) before_cut_ = 0;  // too old to undo
  round_packets_ += ack.packets;
  round_marked_ += std::min(ack.marked, ack.packets);
  round_limited_ |= ack.limited;
  if (slow_start_ && ack.marked > 0) {
    // The queue has just reached the marking threshold: end slow start at once, not a round later.
    slow_start_ = false;
    bytes_ = std::max(limits.minimum, bytes_ - bytes_ / 4);
    last_cut_ = ack.now;
    round_start_ = ack.now;
    round_packets_ = round_marked_ = 0;
    alpha_ = kOne / 4;
    return;
  }
  if (slow_start_) {
    if (ack.limited) bytes_ = std::min(limits.maximum, bytes_ + ack.bytes);
    return;
  }
  if (ack.now - round_start_ >= ack.srtt) end_round(ack, limits);
}

void Window::end_round(const AckInfo& ack, const Limits& limits) {
  if (round_packets_ > 0) {
    const uint32_t fraction =
        static_cast<uint32_t>(uint64_t{round_marked_} * kOne / round_packets_);
    alpha_ = alpha_ - (alpha_ >> kGainShift) + (fraction >> kGainShift);
    if (round_marked_ > 0) {
      const uint64_t cut = (bytes_ * alpha_) >> 17;  // half of the fraction
      bytes_ = std::max(limits.minimum, bytes_ - cut);
      last_cut_ = ack.now;
      before_cut_ = 0;
    } else if (round_limited_) {
      bytes_ = std::min(limits.maximum, bytes_ + limits.packet);
    }
  }
  round_start_ = ack.now;
  round_packets_ = round_marked_ = 0;
  round_limited_ = false;
}

void Window::on_congestion_loss(Time now, Duration srtt, const Limits& limits) {
  if (now - last_cut_ < srtt) return;
  before_cut_ = bytes_;
  slow_start_ = false;
  bytes_ = std::max(limits.minimum, bytes_ / 2);
  last_cut_ = now;
}

void Window::undo() {
  bytes_ = std::max(bytes_, before_cut_);
  before_cut_ = 0;
}

}  // namespace metaroce::congestion
