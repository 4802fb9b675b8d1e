// What a link does to its packets, at the egress (clsact) of its interface. One program serves all
// links of the lab: it knows a link by the index of the interface.
//
// A packet is read first, then all is decided under the link's lock, and then done. Who is dropped
// is "stolen", not "shot": a sender cannot see what becomes of a packet on the way, and a socket
// whose own interface is the link would see it in an error of send().
#include "link.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <stddef.h>

// After the types it uses.
#include <bpf/bpf_helpers.h>

#include <bpf/bpf_endian.h>

// None of the helpers here asks for a licence that is compatible with the GPL.
char LICENSE[] SEC("license") = "Apache-2.0";

#define INLINE static __always_inline
#define IP_AT ETH_HLEN
#define ECN_BITS 3
#define NS_PER_SECOND 1000000000ull
/// tc_index of a copy on its way through this program. Unlike skb->mark it means nothing to routing
/// on the other side, and nothing of its own has to be put back.
#define COPY 0x6d72

/// Entries are set by the loader, which knows the number of links.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct mr_link_config);
} config SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct mr_link_rules_slot);
} rules SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct mr_link_state);
} states SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct mr_link_counts);
} counts SEC(".maps");

struct packet {
  __u8 version;  ///< 4 or 6; 0: no IP
  __u8 ecn;
  bool cuttable;    ///< UDP right behind an IP header without options
  __u32 transport;  ///< where the UDP header is
  __u32 payload;    ///< of UDP or TCP: where it begins
  __u32 length;     ///< ... and how long it is; 0: there is none
};

enum fate {
  kDark = 1 << 0,
  kLost = 1 << 1,
  kFull = 1 << 2,
  kDropped = kDark | kLost | kFull,
  kBleach = 1 << 3,
  kMark = 1 << 4,
  kTrim = 1 << 5,
  kCorrupt = 1 << 6,
  kDuplicate = 1 << 7,
};

INLINE void read_payload(struct __sk_buff* skb, struct packet* p, __u8 protocol, __u32 at,
                         __u32 end) {
  __u32 header = sizeof(struct udphdr);
  if (protocol == IPPROTO_TCP) {
    __u8 words = 0;
    if (bpf_skb_load_bytes(skb, at + 12, &words, 1) != 0) return;
    header = (words >> 4) * 4;
    if (header < sizeof(struct tcphdr)) return;
  } else if (protocol != IPPROTO_UDP) {
    return;
  }
  if (end > skb->len) end = skb->len;
  if (at + header > end) return;
  p->transport = at;
  p->payload = at + header;
  p->length = end - p->payload;
  p->cuttable = protocol == IPPROTO_UDP;
}

INLINE void read_packet(struct __sk_buff* skb, struct packet* p) {
  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    struct iphdr ip;
    if (bpf_skb_load_bytes(skb, IP_AT, &ip, sizeof ip) != 0 || ip.version != 4) return;
    p->version = 4;
    p->ecn = ip.tos & ECN_BITS;
    // Fragments but the first have no header of UDP or TCP.
    const __u16 offset = bpf_ntohs(ip.frag_off);
    if ((offset & 0x1fff) != 0) return;
    read_payload(skb, p, ip.protocol, IP_AT + ip.ihl * 4, IP_AT + bpf_ntohs(ip.tot_len));
    if (ip.ihl != 5 || (offset & 0x2000) != 0) p->cuttable = false;
  } else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
    struct ipv6hdr ip;
    if (bpf_skb_load_bytes(skb, IP_AT, &ip, sizeof ip) != 0 || ip.version != 6) return;
    p->version = 6;
    p->ecn = (ip.flow_lbl[0] >> 4) & ECN_BITS;
    const __u32 at = IP_AT + sizeof ip;
    read_payload(skb, p, ip.nexthdr, at, at + bpf_ntohs(ip.payload_len));
  }
}

/// SplitMix64: any seed will do, and one word is all there is to keep.
INLINE __u32 throw_die(struct mr_link_state* s) {
  s->dice += 0x9e3779b97f4a7c15ull;
  __u64 z = s->dice;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return (z ^ (z >> 31)) >> 32;
}

INLINE bool hits(struct mr_link_state* s, __u32 ppm) {
  return ppm != 0 && ((throw_die(s) * 1000000ull) >> 32) < ppm;
}

/// A queue that is only counted: nothing waits in it. It is kept as time, so that no remainders of
/// bytes get lost between packets that come fast.
INLINE __u32 enqueue(struct mr_link_state* s, const struct mr_link_rules* r, const struct packet* p,
                     __u64 now, __u64 bytes, bool ect) {
  const __u64 backlog = s->free_at > now ? s->free_at - now : 0;
  __u64 cost = bytes * 8 * NS_PER_SECOND / r->rate_bps;
  __u32 fate = 0;
  if (backlog + cost > r->queue_ns) {
    if (!r->trim || !p->cuttable) return kFull;
    // As switches that trim: a second queue as long as the first, for headers only.
    const __u64 kept = p->length < MR_TRIMMED_PAYLOAD ? p->length : MR_TRIMMED_PAYLOAD;
    cost = (p->payload + kept) * 8 * NS_PER_SECOND / r->rate_bps;
    if (backlog + cost > 2 * r->queue_ns) return kFull;
    fate = kTrim;
  } else if (r->mark_ns != 0 && backlog > r->mark_ns && ect) {
    fate = kMark;
  }
  s->free_at = now + backlog + cost;
  return fate;
}

/// Called under the lock of the state. Each packet throws all the dice that the rules ask for,
/// whatever becomes of it: so packet n has the same luck in every run with the seed, though clocks
/// (flap, queue) differ.
INLINE __u32 decide(struct mr_link_state* s, const struct mr_link_rules* r, const struct packet* p,
                    __u64 now, __u32 bytes, __u32* die) {
  if (s->generation != r->generation) {
    s->generation = r->generation;
    s->dice = r->seed;
    s->free_at = 0;
    s->burst = 0;
  }
  const bool lost = hits(s, r->loss_ppm);
  if (r->burst_in_ppm != 0 && hits(s, s->burst ? r->burst_out_ppm : r->burst_in_ppm)) {
    s->burst = !s->burst;
  }
  const bool corrupt = hits(s, r->corrupt_ppm);
  if (r->corrupt_ppm != 0) *die = throw_die(s);
  const bool duplicate = hits(s, r->duplicate_ppm);
  // By the clock that all links have in common, so that both directions of a cable flap together.
  if (r->dark || (r->flap_ns != 0 && (now / r->flap_ns) % 2 == 1)) return kDark;
  if (lost || s->burst) return kLost;
  const bool bleach = r->bleach && p->ecn != 0;
  __u32 fate = bleach ? kBleach : 0;
  if (r->rate_bps != 0) {
    fate |= enqueue(s, r, p, now, bytes, !bleach && (p->ecn == 1 || p->ecn == 2));
    if (fate & kFull) return kFull;
  }
  // What was trimmed gets a new checksum, which would hide the error.
  if (corrupt && p->length != 0 && !(fate & kTrim)) fate |= kCorrupt;
  return duplicate ? fate | kDuplicate : fate;
}

/// Sets the bits of `mask` in TOS (IPv4) or traffic class (IPv6).
INLINE bool set_class(struct __sk_buff* skb, const struct packet* p, __u8 mask, __u8 value) {
  __u16 old = 0;
  if (bpf_skb_load_bytes(skb, IP_AT, &old, sizeof old) != 0) return false;
  const __u32 shift = p->version == 4 ? 0 : 4;
  const __u16 changed = bpf_htons((bpf_ntohs(old) & ~(mask << shift)) | (value << shift));
  if (p->version == 4 &&
      bpf_l3_csum_replace(skb, IP_AT + offsetof(struct iphdr, check), old, changed, 2) != 0) {
    return false;
  }
  return bpf_skb_store_bytes(skb, IP_AT, &changed, sizeof changed, 0) == 0;
}

INLINE bool corrupt(struct __sk_buff* skb, const struct packet* p, __u32 die) {
  const __u32 bit = die % (p->length * 8);
  __u8 byte = 0;
  if (bpf_skb_load_bytes(skb, p->payload + bit / 8, &byte, 1) != 0) return false;
  byte ^= 1 << (bit % 8);
  // Without BPF_F_RECOMPUTE_CSUM: checksums tell of it, where there are any.
  return bpf_skb_store_bytes(skb, p->payload + bit / 8, &byte, 1, 0) == 0;
}

INLINE __u16 fold(__u32 sum) {
  sum = (sum & 0xffff) + (sum >> 16);
  return (sum & 0xffff) + (sum >> 16);
}

/// The sum of the pseudo-header of UDP.
INLINE __u32 pseudo_sum(struct __sk_buff* skb, const struct packet* p, __u32 udp_length) {
  const __u32 seed = bpf_htons(udp_length) + bpf_htons(IPPROTO_UDP);
  __be32 addresses[8] = {};
  if (p->version == 4) {
    bpf_skb_load_bytes(skb, IP_AT + offsetof(struct iphdr, saddr), addresses, 8);
  } else {
    bpf_skb_load_bytes(skb, IP_AT + offsetof(struct ipv6hdr, saddr), addresses, 32);
  }
  return fold(bpf_csum_diff(NULL, 0, addresses, sizeof addresses, seed));
}

/// Whether somebody behind us will add the sum of the payload (CHECKSUM_PARTIAL). No helper tells;
/// but a change of the payload leaves the field as it is only then. Destroys the field.
INLINE bool is_sum_partial(struct __sk_buff* skb, __u32 field) {
  __u16 before = 0, after = 0;
  bpf_skb_load_bytes(skb, field, &before, sizeof before);
  bpf_l4_csum_replace(skb, field, 0, bpf_htons(1), sizeof before);
  bpf_skb_load_bytes(skb, field, &after, sizeof after);
  return before == after;
}

/// The UDP checksum in full, for the lengths that stand in the packet now.
INLINE bool renew_checksum(struct __sk_buff* skb, const struct packet* p, __u32 udp_length) {
  const __u32 field = p->transport + offsetof(struct udphdr, check);
  __u16 sum = 0;
  if (bpf_skb_load_bytes(skb, field, &sum, sizeof sum) != 0) return false;
  const bool none = p->version == 4 && sum == 0;
  const bool partial = is_sum_partial(skb, field);
  sum = pseudo_sum(skb, p, udp_length);
  if (!partial) {
    __be32 data[(sizeof(struct udphdr) + MR_TRIMMED_PAYLOAD) / 4] = {};
    // For the verifier, which has to see the bounds here; the compiler knows them already.
    __u64 bytes = udp_length;
    asm volatile("" : "+r"(bytes));
    if (bytes < sizeof(struct udphdr) || bytes > sizeof data) return false;
    if (bpf_skb_load_bytes(skb, p->transport, data, bytes) != 0) return false;
    ((struct udphdr*)data)->check = 0;
    sum = ~fold(bpf_csum_diff(NULL, 0, data, sizeof data, sum));
    if (sum == 0) sum = 0xffff;
    if (none) sum = 0;
  }
  return bpf_skb_store_bytes(skb, field, &sum, sizeof sum, 0) == 0;
}

INLINE bool trim(struct __sk_buff* skb, const struct packet* p) {
  const __u32 kept = p->length < MR_TRIMMED_PAYLOAD ? p->length : MR_TRIMMED_PAYLOAD;
  const __u32 udp_length = sizeof(struct udphdr) + kept;
  const __u32 end = p->transport + udp_length;
  if (skb->len > end && bpf_skb_change_tail(skb, end, 0) != 0) return false;
  if (!set_class(skb, p, 0xff & ~ECN_BITS, MR_TRIMMED_DSCP << 2)) return false;
  __be16 length = bpf_htons(udp_length);
  const __u32 udp_field = p->transport + offsetof(struct udphdr, len);
  if (bpf_skb_store_bytes(skb, udp_field, &length, sizeof length, 0) != 0) return false;
  __u32 field = IP_AT + offsetof(struct ipv6hdr, payload_len);
  if (p->version == 4) {
    field = IP_AT + offsetof(struct iphdr, tot_len);
    __be16 old = 0;
    length = bpf_htons(end - IP_AT);
    if (bpf_skb_load_bytes(skb, field, &old, sizeof old) != 0) return false;
    bpf_l3_csum_replace(skb, IP_AT + offsetof(struct iphdr, check), old, length, sizeof length);
  }
  if (bpf_skb_store_bytes(skb, field, &length, sizeof length, 0) != 0) return false;
  return renew_checksum(skb, p, udp_length);
}

INLINE void count(__u64* what) { __sync_fetch_and_add(what, 1); }

/// Carries out the fate of a packet that passes. False: it could not be trimmed.
INLINE bool carry_out(struct __sk_buff* skb, const struct packet* p, __u32 fate, __u32 die,
                      struct mr_link_counts* c) {
  if ((fate & kBleach) && set_class(skb, p, ECN_BITS, 0)) count(&c->bleached);
  if (fate & kTrim) {
    if (!trim(skb, p)) return false;
    count(&c->trimmed);
  }
  if ((fate & kMark) && bpf_skb_ecn_set_ce(skb) == 1) count(&c->marked);
  if ((fate & kCorrupt) && corrupt(skb, p, die)) count(&c->corrupted);
  if (fate & kDuplicate) {
    skb->tc_index = COPY;
    if (bpf_clone_redirect(skb, skb->ifindex, 0) == 0) count(&c->duplicated);
    skb->tc_index = 0;
  }
  return true;
}

SEC("tc")
int link_egress(struct __sk_buff* skb) {
  if (skb->tc_index == COPY) {
    skb->tc_index = 0;
    return TC_ACT_OK;
  }
  const __u32 zero = 0;
  const struct mr_link_config* where = bpf_map_lookup_elem(&config, &zero);
  if (where == NULL) return TC_ACT_OK;
  const __u32 link = skb->ifindex - where->first_interface;
  struct mr_link_rules_slot* slot = bpf_map_lookup_elem(&rules, &link);
  struct mr_link_state* state = bpf_map_lookup_elem(&states, &link);
  struct mr_link_counts* c = bpf_map_lookup_elem(&counts, &link);
  if (slot == NULL || state == NULL || c == NULL) return TC_ACT_OK;

  struct packet p = {};
  read_packet(skb, &p);
  // Everything that a call is needed for stands before the locks, under which there are none.
  const __u64 now = bpf_ktime_get_ns();
  const __u32 bytes = skb->wire_len;
  __u32 die = 0;
  bpf_spin_lock(&slot->lock);
  const struct mr_link_rules r = slot->rules;
  bpf_spin_unlock(&slot->lock);
  bpf_spin_lock(&state->lock);
  __u32 fate = decide(state, &r, &p, now, bytes, &die);
  bpf_spin_unlock(&state->lock);

  if (!(fate & kDropped) && !carry_out(skb, &p, fate, die, c)) fate = kFull;
  count(&c->seen);
  if (!(fate & kDropped)) {
    count(&c->passed);
    return TC_ACT_OK;
  }
  count(fate & kDark ? &c->dark : fate & kLost ? &c->lost : &c->full);
  return TC_ACT_STOLEN;
}
