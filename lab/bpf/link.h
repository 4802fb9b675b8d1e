// What the program at the egress of links (link.bpf.c) shares with those who load it, in the C of
// both. Map values are as they lie in memory here.
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

/// DSCP of a packet that was cut to its headers.
#define MR_TRIMMED_DSCP 0x2A
/// So much of the UDP payload stays.
#define MR_TRIMMED_PAYLOAD 64

/// Map "config", one entry.
struct mr_link_config {
  __u32 first_interface;  ///< link i is the interface with the index first_interface + i
  __u32 links;
};

struct mr_link_rules {
  __u64 seed;
  __u64 rate_bps;  ///< 0: no queue
  /// Sizes of the queue as the time their bytes take at the rate.
  __u64 queue_ns, mark_ns;
  __u64 flap_ns;
  __u32 generation;  ///< another one with each change
  __u32 loss_ppm, burst_in_ppm, burst_out_ppm, corrupt_ppm, duplicate_ppm;
  __u8 dark, bleach, trim, unused[5];
};

/// Map "rules", by link. Under the lock, a packet never sees one half of a change.
struct mr_link_rules_slot {
  struct bpf_spin_lock lock;
  __u32 unused;
  struct mr_link_rules rules;
};

/// Map "states", by link: what the program remembers between packets.
struct mr_link_state {
  struct bpf_spin_lock lock;
  __u32 generation;  ///< of the rules that this belongs to
  __u64 dice;
  __u64 free_at;  ///< ns, when the queue will have sent what it holds
  __u32 burst;    ///< in one
  __u32 unused;
};

/// Map "counts", by link; the words of LinkCounts.
struct mr_link_counts {
  __u64 seen, passed, dark, lost, full;
  __u64 marked, trimmed, corrupted, duplicated, bleached;
};
