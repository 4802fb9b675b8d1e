// Constants and switches of one run of the model checker.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace metaroce::model {

// A broken reading of the protocol that the checker has to catch (protocol core, section 10).
enum class Mutation : std::uint8_t {
  kNone,
  kFilterSlidesOnUndecided,
  kSenderUnbound,
  kDecidedThroughCompletes,
  kDecidedThroughResolves,
  kWideFloorDown,
  kNoDataLimit,
  kGenerationNumbersAgain,
  kStaleAckUnchecked,
  kForgottenLastCopy,
  kSaturatingFloor,
  kBaseOverRefused,
  kOneBitFilterAccepted,
  kOneBitFilterSeen,
  kReusedSequence,
  kRetryOnSameCpsn,
  kVoidNotRemembered,
  kCloseForgets,
  kFullSpanBareProbe,
  kLastProbeNotRepeated,
  kNoProbeSlot,
  kLimitKeepsFloor,
  kOldPathOpenApplied,
  kDataBeforeProof,
  kProbeHoldsFloor,
  kIdleCopyResolves,
  kOldAcksRead,
  kLostBelowBaseAccepted,
};

// Bounds are inclusive. All sequence numbers wrap: path sequences at 256, CPSNs at 16 (15 when
// the window is 3), both start two below the wrap.
struct Config {
  std::string_view name;
  std::string_view note;
  int paths = 2;
  int items = 2;        // data packets the program wants delivered (one byte range each)
  int window = 2;       // CPSN window
  int map = 2;          // bits of the ACK map; the span is the largest multiple of unit below it
  int range = 4;        // R
  int unit = 1;         // 4: wide ACK, floor counted in fours
  int sends = 5;        // transmissions of any kind
  int cpsns = 3;        // CPSNs the search may use
  int refusals = 1;     // first arrivals that find no buffer
  int voids = 0;        // VOIDed CPSNs
  int generations = 0;  // re-openings of one path
  int probes = 1;       // probes sent
  bool idle = false;    // idle copies
  int held = 0;         // delayed ACKs at one time (0 to 2); current ones are always possible
  bool duplicates = false;  // the network may deliver a packet again
  bool big_jump = false;    // re-opening jumps so far that old numbers look like future ones
  bool close_any = false;   // both paths may die; otherwise path 1 alone, as they are alike
  Mutation mutation = Mutation::kNone;

  int span() const { return (map - 1) / unit * unit; }
};

struct MutationInfo {
  std::string_view name;
  Mutation mutation;
  std::string_view config;
  std::string_view expected;  // names of acceptable violations, separated by '|'
  std::string_view text;
};

const std::vector<Config>& all_configs();
// Null when the name is unknown.
const Config* find_config(std::string_view name);
const std::vector<MutationInfo>& all_mutations();
const MutationInfo* find_mutation(std::string_view name);

}  // namespace metaroce::model
