#include "lab/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace metaroce::lab {

namespace {

using nlohmann::json;

/// The smallest burst that keeps the rate exact: a token bucket must hold the largest packet.
uint32_t burst_for(uint32_t mtu) { return std::max(12'000u, mtu + 1000); }

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
      LinkRules& rules = lab->links_[link_of(d)].rules;
      const auto parsed = parse_rules(line.words, rules);
      if (!parsed) return unexpected(fmt::format("{}: {}", line.between, parsed.error()));
      rules = *parsed;
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
      (state.cut || needs_wire(rules[0]) || needs_wire(rules[1]) || (any && bpf_ == nullptr))) {
    const auto made = make_wire(cable);
    if (!made) return made;
  }
  for (const bool from_a : {true, false}) {
    const uint32_t link = 2 * cable + (from_a ? 0 : 1);
    if (state.wire != nullptr) {
      state.wire->set(from_a, rules[from_a ? 0 : 1]);
      continue;
    }
    const auto done = apply_in_kernel(link, rules[from_a ? 0 : 1]);
    if (!done) return done;
  }
  return true;
}

Expected<bool, std::string> Lab::apply_in_kernel(uint32_t link, const LinkRules& rules) {
  LinkState& state = links_[link];
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
  } else if (state.applied.rate_bps != 0) {
    (*netlink)->remove_qdisc(interface);
  }
  const auto done = (*netlink)->flush();
  if (!done) return unexpected(fmt::format("{}: {}", c.name, done.error()));
  state.applied = rules;
  return true;
}

Expected<bool, std::string> Lab::make_wire(uint32_t cable) {
  const Cable& c = plan().cables[cable];
  // What hung on the old interfaces goes with them, whether or not the rest works.
  cables_[cable].cut = true;
  for (const uint32_t link : {2 * cable, 2 * cable + 1}) {
    links_[link].attached = false;
  }
  const auto cut = fabric_.cut(cable);
  if (!cut) return unexpected(fmt::format("{}: {}", c.name, cut.error()));
  auto wire = Wire::start(fabric_.wire_netns(), Fabric::wire_name(cable, true),
                          Fabric::wire_name(cable, false), plan().topology.mtu, seed_of(2 * cable));
  if (!wire) return unexpected(fmt::format("{}: {}", c.name, wire.error()));
  cables_[cable].wire = std::move(*wire);
  return true;
}

void Lab::on_child_end(int pid) {
  for (CableState& cable : cables_) {
    if (cable.wire != nullptr && cable.wire->pid() == pid) cable.wire.reset();
  }
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
  return apply_all(*links, rules);
}

/// A cable whose rules cannot be applied keeps its old ones; the others get theirs.
Expected<std::string, std::string> Lab::apply_all(const std::vector<Direction>& links,
                                                  const std::vector<LinkRules>& rules) {
  std::map<uint32_t, std::array<LinkRules, 2>> before;
  for (size_t i = 0; i < links.size(); ++i) {
    const uint32_t cable = links[i].cable;
    before.try_emplace(cable, std::array{links_[2 * cable].rules, links_[2 * cable + 1].rules});
    links_[link_of(links[i])].rules = rules[i];
  }
  std::string error;
  size_t wires = 0;
  for (const auto& [cable, old] : before) {
    const auto done = apply(cable);
    wires += cables_[cable].wire != nullptr;
    if (done) continue;
    links_[2 * cable].rules = old[0];
    links_[2 * cable + 1].rules = old[1];
    if (error.empty()) error = done.error();
  }
  if (!error.empty()) return unexpected(error);
  return fmt::format("{} direction{} of {} link{}: {}{}", links.size(),
                     links.size() == 1 ? "" : "s", before.size(), before.size() == 1 ? "" : "s",
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
  std::set<uint32_t> dark, cables;
  for (const Direction& d : *links) {
    if (how == Failure::kOneWay && !named && !away_from_first_leaf(d)) continue;
    cables.insert(d.cable);
    dark.insert(link_of(d));
    if (how == Failure::kSilent) dark.insert(link_of(d) ^ 1);
  }
  if (how == Failure::kDown) {
    const auto done = fabric_.set_up(cables, false);
    if (!done) return unexpected(done.error());
    return static_cast<uint32_t>(cables.size());
  }
  std::string error;
  for (const uint32_t link : dark) links_[link].failed = true;
  for (const uint32_t cable : cables) {
    const auto done = apply(cable);
    if (!done && error.empty()) error = done.error();
  }
  if (!error.empty()) return unexpected(error);
  return static_cast<uint32_t>(dark.size());
}

Expected<uint32_t, std::string> Lab::heal(const std::string& target) {
  const auto links = select_links(plan(), target);
  if (!links) return unexpected(links.error());
  std::set<uint32_t> troubled, down;
  for (const Direction& d : *links) {
    for (const uint32_t link : {2 * d.cable, 2 * d.cable + 1}) {
      if (!trouble_of(link).empty()) troubled.insert(d.cable);
    }
    if (fabric_.is_down(d.cable)) down.insert(d.cable);
  }
  std::string error;
  for (const uint32_t cable : troubled) {
    const bool before[2] = {links_[2 * cable].failed, links_[2 * cable + 1].failed};
    links_[2 * cable].failed = links_[2 * cable + 1].failed = false;
    const auto done = apply(cable);
    if (done) continue;
    links_[2 * cable].failed = before[0];
    links_[2 * cable + 1].failed = before[1];
    if (error.empty()) error = done.error();
  }
  const auto done = fabric_.set_up(down, true);
  if (!done && error.empty()) error = done.error();
  if (!error.empty()) return unexpected(error);
  return static_cast<uint32_t>(troubled.size());
}

std::string Lab::trouble_of(uint32_t link) const {
  const CableState& cable = cables_[link / 2];
  if (fabric_.is_down(link / 2)) return "down";
  if (cable.cut && cable.wire == nullptr) return "cut";
  return links_[link].failed ? "dark" : "";
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
                {"carried_by", carrier_of(link)},
                {"rules", print_rules(links_[link].rules)},
                {"failed", trouble_of(link)}};
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
    hosts.push_back({{"name", plan().nodes[h].name}, {"ipv4", v4}, {"ipv6", v6}});
  }
  const auto wires = std::count_if(cables_.begin(), cables_.end(),
                                   [](const CableState& c) { return c.wire != nullptr; });
  return {{"name", t.name},        {"planes", t.planes},       {"leaves", t.leaves},
          {"spines", t.spines},    {"hosts", hosts},           {"bpf", no_bpf_.empty()},
          {"no_bpf", no_bpf_},     {"notes", fabric_.notes()}, {"wires", wires},
          {"links", links_.size()}};
}

}  // namespace metaroce::lab
