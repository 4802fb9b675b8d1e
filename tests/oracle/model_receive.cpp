// The part of the model that matches receives with messages.
#include <fmt/format.h>

#include "tests/oracle/model.h"

namespace metaroce::oracle {

using engine::Completion;

void Model::receive_done(uint32_t s, const Completion& c) {
  Side& side = sides_[s];
  const auto index = static_cast<uint32_t>(c.id & ~kReceiveBit);
  if (index >= side.receives.size()) return differ(fmt::format("unknown receive {}", index));
  Receive& r = side.receives[index];
  if (r.done) return differ(fmt::format("second completion of receive {}", index));
  if (c.stream == 0 || c.stream > program_.streams.size()) {
    return differ(fmt::format("receive {} of stream {}", index, c.stream));
  }
  if (!r.shared && c.stream != r.stream + 1) {
    differ(fmt::format("receive {} of stream {} went to stream {}", index, r.stream + 1, c.stream));
  }
  r.done = true;
  r.stream = c.stream - 1u;
  --side.open_receives;
  side.receive_lists -= r.list;
  side.open_shared -= r.shared;
  side.shared_done += r.shared;
  Direction& d = directions_[1 - s][r.stream];
  if (c.status != Status::kOk) return receive_failed(s, index, r, d, c.status);
  if (d.flushed) differ(fmt::format("receive {} succeeded behind flushed ones", index));
  const uint32_t message = find_message(s, r, c, d);
  if (message == kNothing) {
    return differ(
        fmt::format("receive {} of side {} ({} bytes, stream {}): no message that was "
                    "posted fits it",
                    index, s, c.bytes, r.stream));
  }
  table_.add(kRequestKinds, Cause::kNone, Status::kOk);
  Request& m = sides_[1 - s].requests[message];
  m.received = true;
  delivered(s, m, d, r.stream);
}

/// The message that this completion tells of.
uint32_t Model::find_message(uint32_t s, const Receive& r, const Completion& c, Direction& d) {
  const auto& requests = sides_[1 - s].requests;
  while (d.receive_head < d.consuming.size() && requests[d.consuming[d.receive_head]].received) {
    ++d.receive_head;
  }
  if (!r.shared) {
    if (r.number >= d.consuming.size()) return kNothing;
    const Request& m = requests[d.consuming[r.number]];
    const bool good = !m.received && fits(s, r, m, c) && may_come(1 - s, d, r.number);
    return good ? d.consuming[r.number] : kNothing;
  }
  for (size_t i = d.receive_head; i < d.consuming.size(); ++i) {
    const Request& m = requests[d.consuming[i]];
    if (m.received || !may_come(1 - s, d, static_cast<uint32_t>(i))) continue;
    if (fits(s, r, m, c)) return d.consuming[i];
  }
  return kNothing;
}

/// MR-MSG-013, MR-MSG-017.
bool Model::may_come(uint32_t sender, const Direction& d, uint32_t place) {
  const auto& requests = sides_[sender].requests;
  if (requests[d.consuming[place]].step.unordered != 0) return true;
  for (size_t i = d.receive_head; i < place; ++i) {
    if (!requests[d.consuming[i]].received) return false;
  }
  return true;
}

bool Model::fits(uint32_t s, const Receive& r, const Request& m, const Completion& c) {
  const StepKind kind = m.step.kind;
  const bool immediate = kind == StepKind::kWriteImm || kind == StepKind::kSendImm;
  const bool ends_key = kind == StepKind::kSendInv;
  if (c.bytes != m.length || c.has_immediate != immediate || c.invalidated != ends_key)
    return false;
  if (c.solicited != (m.step.solicited != 0)) return false;
  if (immediate && c.immediate != m.step.id) return false;
  if (ends_key && c.immediate != m.key) return false;
  if (!m.is_send() || r.nowhere) return true;
  return m.length <= r.length && same(s, r.landing, r.landings, bytes_of(m), m.length);
}

void Model::delivered(uint32_t s, const Request& m, Direction& d, uint32_t) {
  if (m.must != Status::kOk) differ("delivered, and it cannot succeed: " + name(1 - s, m));
  if (m.is_write()) check_write(1 - s, m, "when it is told");
  if (m.step.unordered == 0) {
    verify_before(1 - s, d, m.place, "a receive");
  }
  if (m.step.kind == StepKind::kSendInv && m.mortal >= 0) {
    sides_[s].mortals[static_cast<size_t>(m.mortal)].dead = true;
  }
}

/// Why the connection ended, as side `s` sees it.
Cause Model::end_of(uint32_t s) const {
  if (sides_[s].closed) return Cause::kOwnClose;
  if (!sides_[1 - s].closed) return Cause::kDeath;
  return sides_[1 - s].aborted ? Cause::kPeerAbort : Cause::kPeerClose;
}

void Model::receive_failed(uint32_t s, uint32_t index, Receive& r, Direction& d, Status status) {
  const auto refuse = [&] {
    differ(fmt::format("receive {} of side {} ended as {}", index, s, metaroce::to_string(status)));
  };
  if (!r.shared) {
    for (const uint32_t earlier : d.receives) {
      if (earlier == index) break;
      if (!sides_[s].receives[earlier].done) {
        differ(fmt::format("receive {} of side {} ended before receive {}", index, s, earlier));
      }
    }
  }
  const bool connection = sides_[s].closed || sides_[s].over || sides_[1 - s].closed || long_dark;
  Verdict v = ended(s, status);
  if (!v.allowed && status == Status::kFlushed) {
    // A failure shows here before the sender has heard the fate of all its packets.
    const bool reset = d.reset_there || d.reset_here || d.failed || d.draining || d.flushed ||
                       d.head < d.posts.size();
    if (!connection && !d.reset_there && !d.reset_here && !d.draining) d.owes = true;
    v.allowed = reset || connection;
    v.cause = Cause::kPeerReset;
    if (d.draining) v.cause = Cause::kDrain;
    if (d.reset_there) v.cause = Cause::kOwnReset;
    if (connection) v.cause = end_of(s);
  }
  if (!v.allowed && status == Status::kLength) {
    const auto& requests = sides_[1 - s].requests;
    if (r.shared) {
      v.allowed = true;
    } else if (r.number < d.consuming.size()) {
      v.allowed = requests[d.consuming[r.number]].length > r.length;
    }
    v.cause = Cause::kTooShort;
  }
  if (!v.allowed) refuse();
  d.flushed = true;
  table_.add(kRequestKinds, v.cause, status);
}

}  // namespace metaroce::oracle
