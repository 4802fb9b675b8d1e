#include "lab/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace metaroce::lab {

namespace {

using nlohmann::json;

/// The smallest burst that keeps the rate exact: a token bucket must hold the largest packet.
uint32_t burst_for(uint32_t mtu) { return std::max(12'000u, mtu + 1000); }

bool is(const LinkRules& rules, const char* kind) {
  const auto needs = needs_of(rules);
  return std::find(needs.begin(), needs.end(), kind) != needs.end();
}

json counts_json(const LinkCounts& c) {
  return {{"seen", c.seen},       {"passed", c.passed},       {"dark", c.dark},
          {"lost", c.lost},       {"full", c.full},           {"marked", c.marked},
          {"trimmed", c.trimmed}, {"corrupted", c.corrupted}, {"duplicated", c.duplicated},
          {"late", c.late},       {"bleached", c.bleached}};
}

}  // namespace

Expected<std::unique_ptr<Lab>, std::string> Lab::build(const Topology& topology) {
  auto lab = std::make_unique<Lab>();
  const auto built = lab->fabric_.build(make_plan(topology));
  if (!built) return unexpected(built.error());
  const auto cables = static_cast<uint32_t>(lab->plan().cables.size());
  lab->links_.resize(2 * cables);
  lab->cables_.resize(cables);
  auto bpf = BpfLinks::load(2 * cables, kFirstInterface);
  if (bpf) {
    lab->bpf_ = std::move(*bpf);
  } else {
    lab->no_bpf_ = bpf.error();
  }
  std::set<uint32_t> changed;
  for (const LinkLine& line : topology.links) {
    const auto links = select_links(lab->plan(), line.between);
    if (!links) return unexpected(links.error());
    for (const Direction& d : *links) {
      lab->links_[link_of(d)].rules = line.rules;
      changed.insert(d.cable);
    }
  }
  for (const uint32_t cable : changed) {
    const auto done = lab->apply(cable);
    if (!done) return unexpected(done.error());
  }
  return lab;
}

LinkRules Lab::effective(uint32_t link) const {
  LinkRules rules = links_[link].rules;
  rules.dark = rules.dark || links_[link].failed;
  return rules;
}

uint64_t Lab::seed_of(uint32_t link) const { return plan().topology.seed * 100'003ull + link; }

/// A cable is carried by the kernel, or for good by a wire: when a rule needs one, or when there is
/// no BPF and any rule at all.
Expected<bool, std::string> Lab::apply(uint32_t cable) {
  const LinkRules rules[2] = {effective(2 * cable), effective(2 * cable + 1)};
  CableState& state = cables_[cable];
  const bool any = rules[0] != LinkRules{} || rules[1] != LinkRules{};
  if (state.wire == nullptr &&
      (is(rules[0], "wire") || is(rules[1], "wire") || (any && bpf_ == nullptr))) {
    const auto made = make_wire(cable);
    if (!made) return made;
  }
  for (const bool from_a : {true, false}) {
    const uint32_t link = 2 * cable + (from_a ? 0 : 1);
    if (state.wire != nullptr) {
      state.wire->set(from_a, effective(link));
      links_[link].applied = effective(link);
    } else {
      const auto done = apply_in_kernel(link);
      if (!done) return done;
    }
  }
  return true;
}

Expected<bool, std::string> Lab::apply_in_kernel(uint32_t link) {
  LinkState& state = links_[link];
  const LinkRules rules = effective(link);
  if (rules == state.applied) return true;
  const Cable& c = plan().cables[link / 2];
  const uint32_t node = link % 2 == 0 ? c.a.node : c.b.node;
  if (!state.attached) {
    const auto attached = bpf_->attach(link, fabric_.netns(node));
    if (!attached) return unexpected(fmt::format("{}: {}", c.name, attached.error()));
    state.attached = true;
  }
  const auto set = bpf_->set(link, rules, seed_of(link));
  if (!set) return unexpected(fmt::format("{}: {}", c.name, set.error()));
  const auto netlink = fabric_.netlink(node);
  if (!netlink) return unexpected(netlink.error());
  const uint32_t interface = interface_of(link / 2, link % 2 == 0);
  if (rules.rate_bps != 0) {
    // The program's queue decides what is dropped, and marks; this one only gives the delay.
    (*netlink)->set_tbf(interface, rules.rate_bps, 2 * queue_of(rules),
                        burst_for(plan().topology.mtu));
  } else if (state.queued) {
    (*netlink)->remove_qdisc(interface);
  }
  const auto done = (*netlink)->flush();
  if (!done) return unexpected(fmt::format("{}: {}", c.name, done.error()));
  state.queued = rules.rate_bps != 0;
  state.applied = rules;
  return true;
}

Expected<bool, std::string> Lab::make_wire(uint32_t cable) {
  const Cable& c = plan().cables[cable];
  const auto cut = fabric_.cut(cable);
  if (!cut) return unexpected(fmt::format("{}: {}", c.name, cut.error()));
  auto wire = Wire::start(fabric_.wire_netns(), Fabric::wire_name(cable, true),
                          Fabric::wire_name(cable, false), plan().topology.mtu, seed_of(2 * cable));
  if (!wire) return unexpected(fmt::format("{}: {}", c.name, wire.error()));
  cables_[cable].wire = std::move(*wire);
  for (const uint32_t link : {2 * cable, 2 * cable + 1}) {
    links_[link].attached = links_[link].queued = false;
  }
  if (!cables_[cable].down) return true;
  return fabric_.set_up({cable}, false);
}

Expected<std::string, std::string> Lab::set_rules(const std::string& target,
                                                  const std::string& words) {
  const auto links = select_links(plan(), target);
  if (!links) return unexpected(links.error());
  // All or none: a wrong word must not leave some of them changed.
  std::vector<LinkRules> rules;
  for (const Direction& d : *links) {
    const auto parsed = parse_rules(words, links_[link_of(d)].rules);
    if (!parsed) return unexpected(parsed.error());
    rules.push_back(*parsed);
  }
  std::set<uint32_t> changed;
  for (size_t i = 0; i < links->size(); ++i) {
    links_[link_of((*links)[i])].rules = rules[i];
    changed.insert((*links)[i].cable);
  }
  uint32_t wires = 0;
  for (const uint32_t cable : changed) {
    const auto done = apply(cable);
    if (!done) return unexpected(done.error());
    wires += cables_[cable].wire != nullptr;
  }
  return fmt::format("{} direction{} of {} link{}: {}{}", links->size(),
                     links->size() == 1 ? "" : "s", changed.size(), changed.size() == 1 ? "" : "s",
                     print_rules(rules.front()),
                     wires == 0 ? "" : fmt::format(" ({} carried by a wire)", wires));
}

bool Lab::away_from_first_leaf(const Direction& d) const {
  const Cable& c = plan().cables[d.cable];
  const Node& a = plan().nodes[c.a.node];
  // a is nearer to the hosts. Of leaf 0 and its hosts everything upwards goes away.
  const bool first = a.kind == NodeKind::kHost ? plan().leaf_of(a.index) == 0 : a.index == 0;
  return first == d.from_a;
}

Expected<uint32_t, std::string> Lab::fail(const std::string& target, Failure how) {
  const auto links = select_links(plan(), target);
  if (!links) return unexpected(links.error());
  const bool named = target.find(':') != std::string::npos;
  std::set<uint32_t> changed;
  uint32_t count = 0;
  for (const Direction& d : *links) {
    if (how == Failure::kOneWay && !named && !away_from_first_leaf(d)) continue;
    changed.insert(d.cable);
    if (how == Failure::kDown) continue;
    links_[link_of(d)].failed = true;
    if (named && how == Failure::kSilent) links_[link_of(d) ^ 1].failed = true;
    ++count;
  }
  if (how == Failure::kDown) {
    for (const uint32_t cable : changed) cables_[cable].down = true;
    const auto done = fabric_.set_up(changed, false);
    if (!done) return unexpected(done.error());
    return static_cast<uint32_t>(changed.size());
  }
  for (const uint32_t cable : changed) {
    const auto done = apply(cable);
    if (!done) return unexpected(done.error());
  }
  return count;
}

Expected<uint32_t, std::string> Lab::heal(const std::string& target) {
  const auto links = select_links(plan(), target);
  if (!links) return unexpected(links.error());
  std::set<uint32_t> healed, down;
  for (const Direction& d : *links) {
    const uint32_t cable = d.cable;
    if (cables_[cable].down) down.insert(cable);
    if (links_[2 * cable].failed || links_[2 * cable + 1].failed || cables_[cable].down) {
      healed.insert(cable);
    }
  }
  for (const uint32_t cable : healed) {
    links_[2 * cable].failed = links_[2 * cable + 1].failed = cables_[cable].down = false;
    const auto done = apply(cable);
    if (!done) return unexpected(done.error());
  }
  const auto done = fabric_.set_up(down, true);
  if (!done) return unexpected(done.error());
  return static_cast<uint32_t>(healed.size());
}

std::string Lab::carrier_of(uint32_t link) const {
  if (cables_[link / 2].wire != nullptr) return "wire";
  return links_[link].attached ? "bpf" : "kernel";
}

Expected<json, std::string> Lab::counters(const std::string& target) {
  const auto links = select_links(plan(), target.empty() ? "*" : target);
  if (!links) return unexpected(links.error());
  std::vector<std::vector<Netlink::Interface>> seen(plan().nodes.size());
  const auto look = [&](uint32_t node,
                        uint32_t index) -> Expected<Netlink::Interface, std::string> {
    if (seen[node].empty()) {
      const auto netlink = fabric_.netlink(node);
      if (!netlink) return unexpected(netlink.error());
      auto all = (*netlink)->interfaces();
      if (!all) return unexpected(all.error());
      seen[node] = std::move(*all);
    }
    const auto at = std::find_if(seen[node].begin(), seen[node].end(),
                                 [&](const auto& i) { return i.index == index; });
    return at == seen[node].end() ? Netlink::Interface{} : *at;
  };
  json out = json::array();
  for (const Direction& d : *links) {
    const Cable& c = plan().cables[d.cable];
    const End& from = d.from_a ? c.a : c.b;
    const End& to = d.from_a ? c.b : c.a;
    const auto sender = look(from.node, interface_of(d.cable, d.from_a));
    if (!sender) return unexpected(sender.error());
    const auto receiver = look(to.node, interface_of(d.cable, !d.from_a));
    if (!receiver) return unexpected(receiver.error());
    const uint32_t link = link_of(d);
    json row = {{"link", plan().nodes[from.node].name + ":" + plan().nodes[to.node].name},
                {"plane", c.plane},
                {"interface", from.interface},
                {"up", sender->up && sender->carrier},
                {"sent_packets", sender->counters.tx_packets},
                {"sent_bytes", sender->counters.tx_bytes},
                {"received_packets", receiver->counters.rx_packets},
                {"received_bytes", receiver->counters.rx_bytes},
                {"queue_dropped", sender->counters.tx_dropped},
                {"carried_by", carrier_of(link)},
                {"rules", print_rules(links_[link].rules)},
                {"failed", cables_[d.cable].down ? "down"
                           : links_[link].failed ? "dark"
                                                 : ""}};
    if (cables_[d.cable].wire != nullptr) {
      row["fates"] = counts_json(cables_[d.cable].wire->counts(d.from_a));
    } else if (links_[link].attached) {
      row["fates"] = counts_json(bpf_->counts(link));
    }
    out.push_back(std::move(row));
  }
  return out;
}

json Lab::info() const {
  const Topology& t = plan().topology;
  json hosts = json::array();
  for (uint32_t h = 0; h < t.hosts; ++h) {
    json v4 = json::array(), v6 = json::array();
    for (uint32_t p = 0; p < t.planes; ++p) {
      const End& end = plan().host_cable(p, h).a;
      if (!end.v4.empty()) v4.push_back(end.v4);
      if (!end.v6.empty()) v6.push_back(end.v6);
    }
    hosts.push_back({{"name", plan().nodes[plan().host(h)].name}, {"ipv4", v4}, {"ipv6", v6}});
  }
  const auto wires = std::count_if(cables_.begin(), cables_.end(),
                                   [](const CableState& c) { return c.wire != nullptr; });
  return {{"name", t.name},     {"planes", t.planes}, {"leaves", t.leaves},
          {"spines", t.spines}, {"hosts", hosts},     {"bpf", no_bpf_.empty()},
          {"no_bpf", no_bpf_},  {"wires", wires},     {"links", links_.size()}};
}

}  // namespace metaroce::lab
