// The configurations and the broken readings.
#include "tests/model/config.h"

namespace metaroce::model {

namespace {

const std::vector<Config> kConfigs = {
    {.name = "two-paths", .note = "loss, reorder, refusal, late buffer, spurious repair"},
    {.name = "one-path",
     .note = "data limit before the span, VOID",
     .paths = 1,
     .map = 3,
     .range = 5,
     .voids = 1},
    {.name = "span",
     .note = "span before the data limit",
     .paths = 1,
     .range = 6,
     .sends = 6,
     .probes = 2},
    {.name = "window-three",
     .note = "three items in a window of three",
     .items = 3,
     .window = 3,
     .map = 3,
     .range = 6,
     .sends = 4,
     .cpsns = 4},
    {.name = "idle", .note = "idle copies and a delayed ACK", .sends = 4, .idle = true, .held = 1},
    {.name = "void", .note = "VOID against data in flight, re-cut", .sends = 4, .voids = 1},
    {.name = "reopen",
     .note = "path death and re-opening, a delayed ACK of the old generation",
     .sends = 4,
     .refusals = 0,
     .generations = 1,
     .held = 1},
    {.name = "reopen-jump",
     .note = "the same with numbers half the space away",
     .sends = 4,
     .refusals = 0,
     .generations = 1,
     .held = 1,
     .big_jump = true},
    {.name = "reopen-used",
     .note = "re-opening of a path that had several packets under way",
     .sends = 5,
     .refusals = 0,
     .generations = 1,
     .held = 1},
    {.name = "reopen-twice",
     .note = "generations overtake each other",
     .items = 1,
     .window = 3,
     .sends = 4,
     .refusals = 0,
     .generations = 2},
    {.name = "wide",
     .note = "wide ACK: floor in fours",
     .paths = 1,
     .items = 2,
     .window = 3,
     .map = 5,
     .range = 8,
     .unit = 4,
     .sends = 5},
    {.name = "duplicates",
     .note = "the network delivers packets again",
     .sends = 4,
     .duplicates = true},
    {.name = "full",
     .note = "all of it with four transmissions; minutes",
     .sends = 4,
     .cpsns = 4,
     .voids = 1,
     .generations = 1,
     .idle = true,
     .held = 1,
     .close_any = true},
    {.name = "full-five",
     .note = "the same with five; as far as --max-states goes",
     .cpsns = 4,
     .voids = 1,
     .generations = 1,
     .idle = true,
     .held = 1,
     .close_any = true},
};

}  // namespace

const std::vector<Config>& all_configs() { return kConfigs; }

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
      {"no-data-limit", M::kNoDataLimit, "one-path", "stuck", "no data limit below base + R"},
      {"generation-numbers-again", M::kGenerationNumbersAgain, "reopen-used",
       "base-passed|belief-wrong",
       "a re-opened path counts from its old start, so old packets and ACKs fit"},
      {"stale-ack-unchecked", M::kStaleAckUnchecked, "reopen-jump", "belief-wrong",
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
      {"retry-on-same-cpsn", M::kRetryOnSameCpsn, "two-paths", "stuck|decided-twice",
       "refused data is retried under the same CPSN"},
      {"void-not-remembered", M::kVoidNotRemembered, "void",
       "decided-twice|placed-after-refused|placed-twice",
       "a VOID answers refused but leaves the CPSN unseen"},
      {"close-forgets", M::kCloseForgets, "reopen", "forgotten",
       "closing a path drops what only it carried"},
      {"full-span-bare-probe", M::kFullSpanBareProbe, "span", "stuck",
       "with a full span nothing is sent again to resolve the lowest sequence"},
      {"last-probe-not-repeated", M::kLastProbeNotRepeated, "one-path", "stuck",
       "the last probe at the data limit is sent once"},
      {"no-probe-slot", M::kNoProbeSlot, "one-path", "stuck",
       "probes end at the same number as data"},
      {"limit-keeps-floor", M::kLimitKeepsFloor, "one-path", "stuck",
       "a path at the data limit keeps its sequences unresolved"},
      {"old-path-open-applied", M::kOldPathOpenApplied, "reopen-twice", "base-passed|belief-wrong",
       "the receiver applies a PATH_OPEN whose generation is not newer"},
      {"data-before-proof", M::kDataBeforeProof, "reopen", "unproven",
       "a re-opened path carries data before a probe was answered"},
      {"probe-holds-floor", M::kProbeHoldsFloor, "span", "stuck",
       "an unanswered probe holds the floor"},
      // Rules whose breach costs time, not safety: the search ends without a violation.
      {"idle-copy-resolves", M::kIdleCopyResolves, "idle", "none",
       "sending an idle copy resolves the sequences of its packet"},
      {"old-acks-read", M::kOldAcksRead, "reopen", "none",
       "no check against the start of the generation: the jump alone guards"},
      {"lost-below-base-accepted", M::kLostBelowBaseAccepted, "two-paths", "none",
       "a sequence held lost and not yet resolved counts as accepted below the base"},
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
