// The rules of the two ends, one function each. A rule that finds the protocol broken sets
// State::bad; a rule whose condition does not hold changes nothing and returns false.
#pragma once

#include "tests/model/state.h"

namespace metaroce::model {

// --- queries -----------------------------------------------------------------------------------
// Lowest unresolved path sequence of the sender, or the next one when all are resolved.
int lowest_unresolved(const State& s, int path);
// Index of the lowest CPSN undecided at the sender; cpsn_count when there is none.
int lowest_undecided(const State& s);
bool in_network(const Config& cfg, const Tx& t);
// True when path sequence and floor allow one more packet of this kind on the path.
bool may_send(const Config& cfg, const State& s, int path, Kind kind);
bool span_full(const Config& cfg, const State& s, int path);
bool at_data_limit(const Config& cfg, const State& s, int path);
// Item that needs a (further) CPSN because it has none or its last one was refused.
bool item_waits(const Config& cfg, const State& s, int item);
bool has_live(const State& s, int cpsn);
bool has_unresolved(const State& s, int path);

// --- sender ------------------------------------------------------------------------------------
bool send_new(const Config& cfg, State& s, int path, int item);
bool send_repair(const Config& cfg, State& s, int path, int cpsn);
bool send_idle_copy(const Config& cfg, State& s, int path, int cpsn);
bool send_void(const Config& cfg, State& s, int path, int cpsn);
bool send_probe(const Config& cfg, State& s, int path);
bool send_full_span(const Config& cfg, State& s, int path);
bool repeat_last_probe(const Config& cfg, State& s, int path);
// A live sequence is held lost, rightly or not.
bool judge_lost(const Config& cfg, State& s, int tx);
// A sequence that was held lost and re-sent is resolved.
bool resolve(const Config& cfg, State& s, int tx);
// First unanswered probe: everything outstanding on the path goes to the repair queue.
bool suspect(const Config& cfg, State& s, int path);
// The path reached the data limit: its sequences are resolved into the repair queue.
bool limit(const Config& cfg, State& s, int path);
bool close_path(const Config& cfg, State& s, int path);
// Sends PATH_OPEN of `path` on the other path.
bool reopen_path(const Config& cfg, State& s, int path);
void apply_ack(const Config& cfg, State& s, const Ack& ack);

// --- receiver ----------------------------------------------------------------------------------
bool deliver(const Config& cfg, State& s, int tx, bool no_buffer);
Ack snapshot(const State& s, int path);

}  // namespace metaroce::model
