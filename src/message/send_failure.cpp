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
  if (s.failed && seq_ge(r.msn, s.fail_msn)) {
    unclaim(r);
    if (r.undecided == 0) settle(fragment.send);
    return;
  }
  const Status status = verdict(reason);
  if (status != Status::kOk) {
    unclaim(r);
    fail(fragment.send, status);
    return;
  }
  const bool whole_stream =
      reason == wire::Refusal::kNotReady || reason == wire::Refusal::kStreamNotReady;
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
    list_push_back<&RetryRecord::link>(retries, s.ready, i);
    return;
  }
  uint32_t after = s.delayed.tail;
  while (after != kNoIndex && retries[after].due > retry.due) after = retries[after].link.prev;
  list_insert_after<&RetryRecord::link>(retries, s.delayed, after, i);
}

/// The request and all later ones of its stream are over; earlier ones go on.
void Sender::fail(uint32_t send, Status status) {
  SendRecord& r = pools_.sends()[send];
  SendStream& s = pools_.streams()[r.stream];
  r.status = status;
  s.failed = true;  // only this stream: MR-MSG-004, MR-MSG-005
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
    bytes_waiting_ -= r.length - r.cut;
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
      bytes_waiting_ -= retry.length;
      unclaim(r);
      list_remove<&RetryRecord::link>(retries, list, i);
      retries.release(i);
    }
    i = next;
  }
}

bool Sender::next_reset(uint16_t& stream, uint32_t& final_msn) {
  if (first_reset_ == kNoIndex) return false;
  SendStream& s = pools_.streams()[first_reset_];
  stream = s.id;
  final_msn = s.fail_msn;
  first_reset_ = s.next_reset;
  return true;
}

void Sender::fail_all(Status first) {
  dead_ = true;
  first_reset_ = last_reset_ = kNoIndex;
  for (uint32_t i = streams_; i != kNoIndex; i = pools_.streams()[i].next_stream) {
    SendStream& s = pools_.streams()[i];
    s.reset_told = true;
    const uint32_t begin = s.head == kNoIndex ? s.next_msn : pools_.sends()[s.head].msn;
    s.failed = true;
    s.fail_msn = begin;
    s.backing_off = s.wants_credit = false;
    drop_unsent(s);
    drop_retries(s, s.ready);
    drop_retries(s, s.delayed);
    for (uint32_t k = s.head; k != kNoIndex; k = pools_.sends()[k].next) {
      SendRecord& r = pools_.sends()[k];
      while (r.claims > 0) unclaim(r);
      r.undecided = 0;
    }
    if (s.head != kNoIndex) {
      SendRecord& oldest = pools_.sends()[s.head];
      if (oldest.status == Status::kOk) oldest.status = first;
    }
    advance(i);
    s.error_given = true;
    reschedule(i);
    refresh(i);
  }
}

}  // namespace metaroce::message
