#include "lab/bpf_links.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "base/assert.h"
#include "lab/bpf/link.h"
#include "lab/netns.h"
#ifdef MR_LAB_BPF
#include "link_program.h"  // generated
#else
constexpr unsigned char kLinkProgram[1] = {};
#endif

namespace metaroce::lab {

namespace {

#ifdef MR_LAB_BPF
constexpr bool kBuilt = true;
#else
constexpr bool kBuilt = false;
#endif

/// While it lives, what libbpf would print is kept: an error can then end with its reason.
class Listener {
 public:
  Listener() : before_(libbpf_set_print(take)) { heard_.clear(); }
  ~Listener() { libbpf_set_print(before_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// The last line, or what errno says when nothing was said.
  std::string reason(int error) const {
    const std::string why = std::strerror(error);
    return heard_.empty() ? why : fmt::format("{}; libbpf: {}", why, heard_);
  }

 private:
  __attribute__((format(printf, 2, 0))) static int take(libbpf_print_level level, const char* text,
                                                        va_list list) {
    if (level == LIBBPF_DEBUG) return 0;
    char line[1024];
    std::vsnprintf(line, sizeof line, text, list);
    std::string_view words = line;
    if (words.starts_with("libbpf: ")) words.remove_prefix(8);
    while (words.ends_with('\n')) words.remove_suffix(1);
    words.remove_prefix(std::min(words.size(), words.rfind('\n') + 1));
    if (!words.empty()) heard_ = words;
    return 0;
  }

  static thread_local std::string heard_;
  libbpf_print_fn_t before_;
};
thread_local std::string Listener::heard_;

std::string load_error(const Listener& listener, int error) {
  if (error == EPERM) {  // EACCES is what the verifier says
    return fmt::format("BPF needs root outside of a user namespace (CAP_BPF and CAP_NET_ADMIN): {}",
                       std::strerror(error));
  }
  if (error == ENOSYS) return "this kernel has no BPF (CONFIG_BPF_SYSCALL)";
  return fmt::format("this kernel does not take the BPF program: {}", listener.reason(error));
}

/// How long `bytes` take at the rate. Doubles: a long queue at a low rate is more than 64 bits of
/// intermediate result, and nobody counts the nanoseconds of a limit.
uint64_t duration_ns(double bytes, uint64_t rate_bps) {
  constexpr double kMost = 4e18;
  return static_cast<uint64_t>(std::min(kMost, bytes * 8e9 / static_cast<double>(rate_bps)));
}

mr_link_rules rules_of(const LinkRules& rules) {
  mr_link_rules out{};
  out.loss_ppm = rules.loss_ppm;
  out.burst_in_ppm = rules.burst_in_ppm;
  out.burst_out_ppm = rules.burst_out_ppm;
  out.corrupt_ppm = rules.corrupt_ppm;
  out.duplicate_ppm = rules.duplicate_ppm;
  out.flap_ns = uint64_t{rules.flap_ms} * 1000000;
  out.dark = rules.dark;
  out.bleach = rules.bleach;
  out.trim = rules.trim;
  if (rules.rate_bps == 0) return out;
  out.rate_bps = rules.rate_bps;
  out.queue_ns = duration_ns(queue_of(rules), out.rate_bps);
  if (rules.mark_bytes != 0) {
    // At least one: 0 means that there are no marks.
    out.mark_ns = std::max<uint64_t>(1, duration_ns(rules.mark_bytes, out.rate_bps));
  }
  return out;
}

/// Same seed, other link: other dice.
uint64_t seed_of(uint64_t seed, uint32_t link) {
  return seed + (uint64_t{link} + 1) * 0xd1342543de82ef95ull;
}

}  // namespace

struct BpfLinks::State {
  ~State() { bpf_object__close(object); }

  bpf_object* object = nullptr;
  int program = -1, rules = -1, counts = -1;
  uint32_t links = 0, first_interface = 0;
  std::vector<uint32_t> generations;
};

BpfLinks::~BpfLinks() = default;

Expected<std::unique_ptr<BpfLinks>, std::string> BpfLinks::load(uint32_t links,
                                                                uint32_t first_interface) {
  MR_ASSERT(links != 0);
  if (!kBuilt) {
    return unexpected(
        "this build has no BPF program (clang was not there); install clang and build anew");
  }
  const Listener listener;
  auto state = std::make_unique<State>();
  state->object = bpf_object__open_mem(kLinkProgram, sizeof kLinkProgram, nullptr);
  if (state->object == nullptr) return unexpected(load_error(listener, errno));
  const auto map = [&](const char* name) {
    return bpf_object__find_map_by_name(state->object, name);
  };
  for (const char* name : {"rules", "states", "counts"}) {
    bpf_map* m = map(name);
    MR_ASSERT(m != nullptr);
    if (bpf_map__set_max_entries(m, links) != 0) return unexpected(load_error(listener, errno));
  }
  if (bpf_object__load(state->object) != 0) return unexpected(load_error(listener, errno));
  state->program = bpf_program__fd(bpf_object__find_program_by_name(state->object, "link_egress"));
  state->rules = bpf_map__fd(map("rules"));
  state->counts = bpf_map__fd(map("counts"));
  state->links = links;
  state->first_interface = first_interface;
  state->generations.resize(links);
  const uint32_t zero = 0;
  const mr_link_config config{first_interface, links};
  if (bpf_map_update_elem(bpf_map__fd(map("config")), &zero, &config, BPF_ANY) != 0) {
    return unexpected(load_error(listener, errno));
  }
  std::unique_ptr<BpfLinks> out(new BpfLinks);
  out->state_ = std::move(state);
  return out;
}

Expected<bool, std::string> BpfLinks::attach(uint32_t link, int netns) {
  MR_ASSERT(link < state_->links);
  const mr_link_counts none{};
  if (bpf_map_update_elem(state_->counts, &link, &none, BPF_ANY) != 0) {
    return unexpected(fmt::format("counts of link {}: {}", link, std::strerror(errno)));
  }
  const InNetns inside(netns);
  if (inside.error() != 0) {
    return unexpected(
        fmt::format("cannot enter a network namespace: {}", std::strerror(inside.error())));
  }
  const Listener listener;
  const uint32_t interface = state_->first_interface + link;
  bpf_tc_hook hook{};
  hook.sz = sizeof hook;
  hook.ifindex = static_cast<int>(interface);
  hook.attach_point = BPF_TC_EGRESS;
  bpf_tc_opts options{};
  options.sz = sizeof options;
  options.prog_fd = state_->program;
  options.flags = BPF_TC_F_REPLACE;
  options.handle = 1;
  options.priority = 1;
  int error = bpf_tc_hook_create(&hook);
  if (error == 0 || error == -EEXIST) error = bpf_tc_attach(&hook, &options);
  if (error == 0) return true;
  return unexpected(fmt::format("no BPF program at the egress of interface {}: {}", interface,
                                listener.reason(-error)));
}

Expected<bool, std::string> BpfLinks::set(uint32_t link, const LinkRules& rules, uint64_t seed) {
  MR_ASSERT(link < state_->links);
  if (rules.delay_us != 0 || rules.jitter_us != 0 || rules.reorder_ppm != 0) {
    return unexpected(
        "delay, jitter and reorder are not for BPF, which cannot hold packets; build the link as "
        "a wire");
  }
  mr_link_rules_slot slot{};
  slot.rules = rules_of(rules);
  slot.rules.seed = seed_of(seed, link);
  slot.rules.generation = ++state_->generations[link];
  if (bpf_map_update_elem(state_->rules, &link, &slot, BPF_F_LOCK) != 0) {
    return unexpected(fmt::format("rules of link {}: {}", link, std::strerror(errno)));
  }
  return true;
}

LinkCounts BpfLinks::counts(uint32_t link) const {
  MR_ASSERT(link < state_->links);
  mr_link_counts c{};
  const bool read = bpf_map_lookup_elem(state_->counts, &link, &c) == 0;
  MR_ASSERT(read);
  LinkCounts out;
  out.seen = c.seen;
  out.passed = c.passed;
  out.dark = c.dark;
  out.lost = c.lost;
  out.full = c.full;
  out.marked = c.marked;
  out.trimmed = c.trimmed;
  out.corrupted = c.corrupted;
  out.duplicated = c.duplicated;
  out.bleached = c.bleached;
  return out;
}

}  // namespace metaroce::lab
