// The configurations and the broken readings.
#include "tests/model/config.h"

namespace metaroce::model {

const std::vector<Config>& all_configs() {
  static const std::vector<Config> configs = {
      {.name = "two-paths", .note = "two paths, loss, reorder, refusal, spurious repair",
       .items = 2, .sends = 4, .refusals = 1},
      {.name = "one-path", .note = "one path, span and data limit reached, VOID",
       .paths = 1, .items = 2, .map = 3, .range = 5, .sends = 6, .cpsns = 3, .voids = 1,
       .probes = 2},
      {.name = "window-three", .note = "three items in a window of three",
       .items = 3, .window = 3, .map = 3, .range = 6, .sends = 4, .cpsns = 4, .refusals = 1},
      {.name = "idle", .note = "idle copies and delayed ACKs",
       .items = 2, .sends = 4, .refusals = 1, .idle = true, .held = 1},
      {.name = "void", .note = "VOID against data in flight, re-cut",
       .items = 2, .sends = 4, .cpsns = 3, .refusals = 1, .voids = 2},
      {.name = "reopen", .note = "path death and re-opening, delayed ACK of the old generation",
       .items = 2, .sends = 4, .cpsns = 3, .refusals = 0, .generations = 1, .held = 1},
      {.name = "reopen-jump", .note = "the same with numbers half the space away",
       .items = 2, .sends = 4, .cpsns = 3, .refusals = 0, .generations = 1, .held = 1,
       .big_jump = true},
      {.name = "reopen-twice", .note = "generations overtake each other",
       .items = 1, .sends = 4, .cpsns = 3, .refusals = 0, .generations = 2, .probes = 0},
      {.name = "wide", .note = "wide ACK: floor in fours",
       .paths = 1, .items = 3, .window = 3, .map = 5, .range = 8, .unit = 4, .sends = 6,
       .cpsns = 4, .refusals = 1},
      {.name = "duplicates", .note = "the network delivers packets again",
       .items = 2, .sends = 4, .cpsns = 3, .refusals = 1, .duplicates = true},
      {.name = "full", .note = "all of it; minutes, several GiB",
       .items = 2, .window = 2, .sends = 5, .cpsns = 4, .refusals = 1, .voids = 1,
       .generations = 1, .idle = true, .held = 1},
  };
  return configs;
}

const Config* find_config(std::string_view name) {
  for (const Config& c : all_configs()) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

const std::vector<MutationInfo>& all_mutations() {
  using M = Mutation;
  static const std::vector<MutationInfo> mutations = {
      {"filter-slides-on-undecided", M::kFilterSlidesOnUndecided, "two-paths", "stuck",
       "the receiver's filter slides on its lowest undecided CPSN"},
      {"sender-unbound", M::kSenderUnbound, "window-three", "filter-forgot|stuck",
       "the sender is not bound to lowest undecided + window"},
      {"decided-through-completes", M::kDecidedThroughCompletes, "two-paths", "belief-wrong",
       "all below decided-through is taken as accepted"},
      {"decided-through-resolves", M::kDecidedThroughResolves, "two-paths", "forgotten",
       "all below decided-through is taken as resolved"},
      {"wide-floor-down", M::kWideFloorDown, "wide", "base-passed|belief-wrong",
       "the wide floor is rounded down"},
      {"no-data-limit", M::kNoDataLimit, "one-path", "stuck",
       "no data limit below base + R"},
      {"stale-ack-numbers-again", M::kStaleAckNumbersAgain, "reopen", "belief-wrong",
       "a re-opened path counts from its old start, so an old ACK fits"},
      {"stale-ack-unchecked", M::kStaleAckJumpUnchecked, "reopen-jump", "belief-wrong",
       "an ACK whose base lies beyond the next sequence is read"},
      {"forgotten-last-copy", M::kForgottenLastCopy, "idle", "forgotten",
       "a lost copy is forgotten because another one was sent, though that is lost too"},
      {"saturating-floor", M::kSaturatingFloor, "one-path", "base-passed|belief-wrong",
       "the floor field saturates instead of holding the sender back"},
      {"base-over-refused", M::kBaseOverRefused, "two-paths", "base-passed|belief-wrong",
       "the base moves over a refused packet"},
      {"one-bit-filter-accepted", M::kOneBitFilterAccepted, "two-paths",
       "decided-twice|placed-after-refused|placed-twice",
       "the filter remembers accepted CPSNs alone"},
      {"one-bit-filter-seen", M::kOneBitFilterSeen, "two-paths", "belief-wrong",
       "the filter remembers that a CPSN was seen, not what was decided"},
      {"reused-sequence", M::kReusedSequence, "two-paths", "sequence-reused",
       "a repair travels under the path sequence of the lost packet"},
      {"idle-copy-resolves", M::kIdleCopyResolves, "idle", "",
       "sending an idle copy resolves the sequences of its packet"},
      {"retry-on-same-cpsn", M::kRetryOnSameCpsn, "two-paths", "stuck|decided-twice",
       "refused data is retried under the same CPSN"},
      {"void-not-remembered", M::kVoidNotRemembered, "void",
       "decided-twice|placed-after-refused|placed-twice",
       "a VOID answers refused but leaves the CPSN unseen"},
      {"close-forgets", M::kCloseForgets, "reopen", "forgotten",
       "closing a path drops what only it carried"},
      {"full-span-bare-probe", M::kFullSpanBareProbe, "one-path", "stuck",
       "with a full span nothing is sent again to resolve the lowest sequence"},
      {"last-probe-not-repeated", M::kLastProbeNotRepeated, "one-path", "stuck",
       "the last probe at the data limit is sent once"},
      {"old-path-open-applied", M::kOldPathOpenApplied, "reopen-twice", "",
       "the receiver applies a PATH_OPEN whose generation is not newer"},
      {"probe-holds-floor", M::kProbeHoldsFloor, "one-path", "stuck",
       "an unanswered probe holds the floor"},
  };
  return mutations;
}

const MutationInfo* find_mutation(std::string_view name) {
  for (const MutationInfo& m : all_mutations()) {
    if (m.name == name) return &m;
  }
  return nullptr;
}

}  // namespace metaroce::model
