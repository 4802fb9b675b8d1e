// The part of Sender that deals with refusals: retries, back-off, failed streams.
#include <algorithm>

#include "base/assert.h"
#include "base/seq.h"
#include "message/send_stream.h"
#include "message/sender.h"

namespace metaroce::message {

namespace {

constexpr Duration kLongestRetry = milliseconds(100);
constexpr int kMostDoublings = 20;

/// kOk: the bytes are sent again; otherwise how the request ends.
Status verdict(wire::Refusal reason) {
  switch (reason) {
    case wire::Refusal::kLength:
      return Status::kLength;
    case wire::Refusal::kKey:
    case wire::Refusal::kBounds:
    case wire::Refusal::kAccess:
      return Status::kAccess;
    case wire::Refusal::kUnsupported:
      return Status::kUnsupported;
    case wire::Refusal::kStreamClosed:
      return Status::kPeerFailed;  // MR-MSG-007
    case wire::Refusal::kUnknown:
    case wire::Refusal::kVoid:
    case wire::Refusal::kNotReady:
    case wire::Refusal::kNoOpenMessage:
    case wire::Refusal::kNoPending:
    case wire::Refusal::kStreamNotReady:
    case wire::Refusal::kNoResource:
    case wire::Refusal::kSpan:
      break;
  }
  return Status::kOk;  // a reason of a later revision is retried like an unknown one
}

}  // namespace

void Sender::on_refused(Time now, const Fragment& fragment, wire::Refusal reason, Duration delay) {
  SendRecord& r = pools_.sends()[fragment.send];
  const uint32_t index = r.stream;
  MR_DASSERT(r.undecided > 0);
  --r.undecided;
  SendStream& s = pools_.streams()[index];
  if (r.ordered) --s.undecided;
  if (s.responses ? r.aborted : s.failed && seq_ge(r.msn, s.fail_msn)) {
    unclaim(r);
    r.torn = true;
    if (r.undecided == 0) settle(fragment.send);
    return;
  }
  const Status status = verdict(reason);
  if (status != Status::kOk) {
    unclaim(r);
    // A response that is not wanted ends alone: the others are of other requests.
    if (s.responses) return abort_response(fragment.send, wire::Refusal::kUnknown);
    r.torn = true;
    fail(fragment.send, status);
    return;
  }
  if (reason == wire::Refusal::kNotReady && r.consumes && s.rnr_retry != kRetryForEver &&
      now >= r.retry_due && s.rnr_tries++ >= s.rnr_retry) {
    unclaim(r);
    r.torn = true;
    return fail(fragment.send, Status::kNotReady);
  }
  r.asking = reason == wire::Refusal::kUnknown;
  const bool whole_stream =
      reason == wire::Refusal::kNotReady || reason == wire::Refusal::kStreamNotReady || r.ordered;
  if (reason == wire::Refusal::kVoid) {
    add_retry(now, fragment, now);
  } else {
    const Time due = now + stretch(now, r, delay);
    add_retry(now, fragment, whole_stream ? now : due);
    if (whole_stream && due > now) {
      back_off(index, r, due, reason == wire::Refusal::kNotReady);
    }
  }
  reschedule(index);
  refresh(index);
}

/// The delay to wait now: doubled for each round of refusals that brought nothing (MR-MSG-029).
Duration Sender::stretch(Time now, SendRecord& r, Duration delay) {
  const Duration cap = std::max(delay * 16, kLongestRetry);
  if (delay <= Duration{}) return Duration{};
  if (now < r.retry_due) {  // the same round
    r.retry_due = std::max(r.retry_due, now + delay);
    return r.retry_due - now;
  }
  Duration wait = delay;
  for (int i = 0; i < r.doublings && wait < cap; ++i) wait = std::min(wait * 2, cap);
  if (r.doublings < kMostDoublings) ++r.doublings;
  r.retry_due = now + wait;
  return wait;
}

/// MR-MSG-066: what was refused because earlier messages were missing is wanted once it is the
/// oldest.
void Sender::hasten_oldest(uint32_t index) {
  auto& retries = pools_.retries();
  SendStream& s = pools_.streams()[index];
  if (s.delayed.empty() || s.head == kNoIndex) return;
  SendRecord& r = pools_.sends()[s.head];
  // The oldest was mostly refused longest, so its ranges stand near the end.
  uint32_t waiting = r.claims - r.undecided;
  for (uint32_t i = s.delayed.tail; i != kNoIndex && waiting > 0;) {
    const uint32_t previous = retries[i].link.prev;
    if (retries[i].send == s.head) {
      --waiting;
      list_remove<&RetryRecord::link>(retries, s.delayed, i);
      list_insert_after<&RetryRecord::link>(retries, s.ready, kNoIndex, i);
    }
    i = previous;
  }
  r.doublings = 0;
  r.retry_due = Time{};
  reschedule(index);
}

void Sender::back_off(uint32_t index, const SendRecord& r, Time until, bool for_credit) {
  SendStream& s = pools_.streams()[index];
  if (!s.backing_off) {
    s.backing_off = true;
    s.backoff_until = until;
    s.wants_credit = for_credit;
    s.refused_rq = r.rq_seq;
    return;
  }
  s.backoff_until = std::max(s.backoff_until, until);
  if (for_credit && s.wants_credit) {
    s.refused_rq = seq_lt(r.rq_seq, s.refused_rq) ? r.rq_seq : s.refused_rq;
  } else {
    s.wants_credit = false;  // something else than credit is missing as well
  }
}

/// A waiting range of the same message that touches the fragment, or kNoIndex.
uint32_t Sender::find_neighbour(const ListEnds& list, const Fragment& f, bool only_tail) const {
  for (uint32_t i = list.tail; i != kNoIndex; i = pools_.retries()[i].link.prev) {
    const RetryRecord& retry = pools_.retries()[i];
    if (retry.send == f.send &&
        (retry.offset + retry.length == f.offset || f.offset + f.length == retry.offset)) {
      return i;
    }
    if (only_tail) break;
  }
  return kNoIndex;
}

/// The claim of the fragment passes to the range. Never short of a record: see Sender::claim.
void Sender::add_retry(Time now, const Fragment& f, Time due) {
  SendRecord& r = pools_.sends()[f.send];
  SendStream& s = pools_.streams()[r.stream];
  bytes_waiting_ += f.length;
  // Beyond the shared claims the rest of a split range is certain to wait; join them again.
  const bool only_tail = pools_.shared_claims <= pools_.max_shared_claims;
  ListEnds* list = due > now ? &s.delayed : &s.ready;
  uint32_t i = find_neighbour(*list, f, only_tail);
  if (i == kNoIndex && !only_tail) {
    list = due > now ? &s.ready : &s.delayed;
    i = find_neighbour(*list, f, false);
  }
  if (i != kNoIndex) {
    RetryRecord& retry = pools_.retries()[i];
    list_remove<&RetryRecord::link>(pools_.retries(), *list, i);
    retry.offset = std::min(retry.offset, f.offset);
    retry.length += f.length;
    retry.due = std::max(retry.due, due);
    unclaim(r);
  } else {
    i = pools_.retries().allocate();
    MR_ASSERT(i != kNoIndex);
    RetryRecord& retry = pools_.retries()[i];
    retry.send = f.send;
    retry.offset = f.offset;
    retry.length = f.length;
    retry.due = due;
  }
  insert_retry(now, i);
}

void Sender::insert_retry(Time now, uint32_t i) {
  auto& retries = pools_.retries();
  const RetryRecord& retry = retries[i];
  SendStream& s = pools_.streams()[pools_.sends()[retry.send].stream];
  if (retry.due <= now) {
    uint32_t after = s.ready.tail;
    // In-order mode repeats from the front (MR-MSG-060).
    const SendRecord& r = pools_.sends()[retry.send];
    while (r.ordered && after != kNoIndex && comes_before(r, retry, retries[after])) {
      after = retries[after].link.prev;
    }
    list_insert_after<&RetryRecord::link>(retries, s.ready, after, i);
    return;
  }
  uint32_t after = s.delayed.tail;
  while (after != kNoIndex && retries[after].due > retry.due) after = retries[after].link.prev;
  list_insert_after<&RetryRecord::link>(retries, s.delayed, after, i);
}

/// Does `retry`, of `r`, belong before `other` of the same stream?
bool Sender::comes_before(const SendRecord& r, const RetryRecord& retry,
                          const RetryRecord& other) const {
  const uint32_t msn = pools_.sends()[other.send].msn;
  return r.msn == msn ? retry.offset < other.offset : seq_lt(r.msn, msn);
}

/// The request and all later ones of its stream are over; earlier ones go on.
void Sender::fail(uint32_t send, Status status) {
  SendRecord& r = pools_.sends()[send];
  SendStream& s = pools_.streams()[r.stream];
  r.status = status;
  s.failed = true;  // only this stream: MR-MSG-004, MR-MSG-005
  // MR-MSG-061: of a receiver that was asked often enough nothing is wrong, and what it posts stays
  // posted; but who drains has said that nothing more will come. The last failure decides.
  s.silent_reset = status == Status::kNotReady && !s.draining;
  s.fail_msn = r.msn;
  drop_unsent(s);
  drop_retries(s, s.ready);
  drop_retries(s, s.delayed);
  reschedule(r.stream);
  advance(r.stream);
  refresh(r.stream);
}

void Sender::drop_unsent(SendStream& s) {
  while (s.cut != kNoIndex) {
    const SendRecord& r = pools_.sends()[s.cut];
    if (!r.aborted) bytes_waiting_ -= r.length - r.cut;
    s.cut = r.next;
  }
}

void Sender::drop_retries(SendStream& s, ListEnds& list) {
  auto& retries = pools_.retries();
  for (uint32_t i = list.head; i != kNoIndex;) {
    const RetryRecord& retry = retries[i];
    const uint32_t next = retry.link.next;
    SendRecord& r = pools_.sends()[retry.send];
    if (seq_ge(r.msn, s.fail_msn)) {
      r.torn = true;
      bytes_waiting_ -= retry.length;
      unclaim(r);
      list_remove<&RetryRecord::link>(retries, list, i);
      retries.release(i);
    }
    i = next;
  }
}

void Sender::drop_retries_of(SendStream& s, uint32_t send) {
  auto& retries = pools_.retries();
  for (ListEnds* list : {&s.ready, &s.delayed}) {
    for (uint32_t i = list->head; i != kNoIndex;) {
      const uint32_t next = retries[i].link.next;
      if (retries[i].send == send) {
        bytes_waiting_ -= retries[i].length;
        unclaim(pools_.sends()[send]);
        list_remove<&RetryRecord::link>(retries, *list, i);
        retries.release(i);
      }
      i = next;
    }
  }
}

Status Sender::may_set_options(uint16_t stream, const StreamOptions& options) const {
  const uint32_t index = find_stream(stream);
  if (index == kNoIndex) {
    return pools_.streams_used == pools_.max_streams ? Status::kFull : Status::kOk;
  }
  const SendStream& s = pools_.streams()[index];
  return s.in_order != options.in_order && s.head != kNoIndex ? Status::kInvalid : Status::kOk;
}

Status Sender::set_options(uint16_t stream, const StreamOptions& options) {
  const uint32_t index = get_stream(stream);
  if (index == kNoIndex) return Status::kFull;
  SendStream& s = pools_.streams()[index];
  s.rnr_retry = std::min(options.rnr_retry, kRetryForEver);
  s.in_order = options.in_order;
  return Status::kOk;
}

Status Sender::drain(uint16_t stream) {
  const uint32_t index = get_stream(stream);
  if (index == kNoIndex) return Status::kFull;
  SendStream& s = pools_.streams()[index];
  s.draining = true;
  s.silent_reset = false;
  advance(index);
  return Status::kOk;
}

Status Sender::reset(uint16_t stream) {
  const uint32_t index = get_stream(stream);
  if (index == kNoIndex) return Status::kFull;
  SendStream& s = pools_.streams()[index];
  s.silent_reset = false;
  // Those before one that failed already go no further either.
  const bool goes_on =
      s.head != kNoIndex && !(s.failed && seq_ge(pools_.sends()[s.head].msn, s.fail_msn));
  if (goes_on) {
    fail(s.head, Status::kFlushed);
    return Status::kOk;
  }
  if (!s.failed) {
    s.failed = s.error_given = true;
    s.fail_msn = s.next_msn;
  }
  advance(index);
  refresh(index);
  return Status::kOk;
}

void Sender::on_reset_accepted(uint16_t stream, bool halt) {
  const uint32_t index = find_stream(stream);
  if (index == kNoIndex) return;
  SendStream& s = pools_.streams()[index];
  if (halt) {
    s.halt_accepted = s.halt_told;
    advance(index);
  } else if (s.reset_told) {
    s.reset_accepted = true;
  }
}

bool Sender::may_reopen(uint16_t stream) const {
  const uint32_t index = find_stream(stream);
  if (index == kNoIndex || dead_) return !dead_;
  const SendStream& s = pools_.streams()[index];
  // Answers of its past name the same messages as those of its next life.
  if (find_responses(stream) != kNoIndex) return false;
  return s.failed && s.reset_accepted && s.head == kNoIndex;
}

bool Sender::reopen(uint16_t stream) {
  const uint32_t index = find_stream(stream);
  if (index == kNoIndex) return !dead_;
  if (!may_reopen(stream)) return false;
  SendStream& s = pools_.streams()[index];
  s.failed = s.error_given = s.reset_told = s.reset_accepted = s.draining = false;
  s.halt_told = s.halt_accepted = s.silent_reset = false;
  s.known = true;
  s.next_msn = s.known_msn;  // MR-MSG-064
  s.next_rq = s.known_rq;
  s.rnr_tries = 0;
  return true;
}

bool Sender::next_reset(uint16_t& stream, uint32_t& final_msn, bool& halt) {
  if (first_reset_ == kNoIndex) return false;
  SendStream& s = pools_.streams()[first_reset_];
  stream = s.id;
  final_msn = s.fail_msn;
  halt = !s.reset_told;  // one follows the other, never both at once
  first_reset_ = s.next_reset;
  return true;
}

void Sender::end_responses(uint32_t index) {
  SendStream& s = pools_.streams()[index];
  for (uint32_t k = s.head; k != kNoIndex; k = pools_.sends()[k].next) {
    SendRecord& r = pools_.sends()[k];
    r.aborted = true;
    r.error = wire::Refusal::kUnknown;
  }
}

void Sender::fail_all(Status first) {
  dead_ = true;
  first_reset_ = last_reset_ = kNoIndex;
  first_error_ = last_error_ = kNoIndex;
  while (!deferred_.empty()) drop_operation(next_deferred());
  for (uint32_t i = streams_; i != kNoIndex;) {
    SendStream& s = pools_.streams()[i];
    const uint32_t index = i;
    i = s.next_stream;
    s.reset_told = true;
    const uint32_t begin = s.head == kNoIndex ? s.next_msn : pools_.sends()[s.head].msn;
    s.failed = true;
    s.fail_msn = begin;
    s.backing_off = s.wants_credit = false;
    s.undecided = 0;
    drop_unsent(s);
    while (!s.ready.empty()) drop_retries_of(s, pools_.retries()[s.ready.head].send);
    while (!s.delayed.empty()) drop_retries_of(s, pools_.retries()[s.delayed.head].send);
    for (uint32_t k = s.head; k != kNoIndex; k = pools_.sends()[k].next) {
      SendRecord& r = pools_.sends()[k];
      while (r.claims > 0) unclaim(r);
      r.undecided = 0;
    }
    if (s.responses) {
      end_responses(index);
    } else if (s.head != kNoIndex) {
      SendRecord& oldest = pools_.sends()[s.head];
      if (oldest.status == Status::kOk) oldest.status = first;
    }
    advance(index);
    s.error_given = true;
    reschedule(index);
    refresh(index);
    if (s.responses) settle_responses(index);
  }
}

}  // namespace metaroce::message
