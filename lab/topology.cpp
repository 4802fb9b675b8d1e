#include "lab/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "lab/strict_table.h"

namespace metaroce::lab {

namespace {

using Problem = TomlProblem;

class Reader : public StrictTable {
 public:
  using StrictTable::StrictTable;

  void number(const char* key, uint32_t& out, uint32_t low, uint32_t high) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    const auto value = node->value_exact<int64_t>();
    if (!value || *value < low || *value > high) {
      fail(*node, key, fmt::format("must be a whole number from {} to {}", low, high));
    }
    out = static_cast<uint32_t>(*value);
  }
};

LinkLine read_link(const toml::node& node) {
  if (!node.is_table()) Reader::fail(node, "link", "must be written as [[link]]");
  Reader reader(*node.as_table());
  LinkLine line;
  std::string rules;
  reader.text("between", line.between);
  reader.text("rules", rules);
  reader.finish(true);
  if (line.between.empty()) Reader::fail(node, "between", "is missing: which link?");
  // On their own they may lack a rate that an earlier line gives.
  const auto parsed = parse_rules(rules, LinkRules{.rate_bps = 1});
  if (!parsed) Reader::fail(node, "rules", parsed.error());
  line.words = rules;
  return line;
}

Topology read_table(const toml::table& table) {
  Topology t;
  Reader reader(table);
  reader.text("name", t.name);
  reader.number("planes", t.planes, 1, kMostPlanes);
  reader.number("hosts", t.hosts, 2, kMostHosts);
  reader.number("leaves", t.leaves, 1, kMostSwitches);
  reader.number("spines", t.spines, 1, kMostSwitches);
  reader.boolean("ipv4", t.ipv4);
  reader.boolean("ipv6", t.ipv6);
  reader.number("mtu", t.mtu, 1500, 65000);
  reader.number("seed", t.seed, 0, 1'000'000);
  reader.boolean("linkdown", t.linkdown);
  reader.boolean("neighbours", t.neighbours);
  reader.boolean("gso", t.gso);
  reader.boolean("checksum_offload", t.checksum_offload);
  if (const toml::node* links = reader.take("link"); links != nullptr) {
    if (!links->is_array()) Reader::fail(*links, "link", "must be written as [[link]]");
    for (const toml::node& link : *links->as_array()) t.links.push_back(read_link(link));
  }
  reader.finish(true);
  if (!is_lab_name(t.name)) {
    Reader::fail(*table.get("name"), "name", fmt::format("must be a name ({})", kLabNames));
  }
  if (!t.ipv4 && !t.ipv6) throw Problem{1, "ipv4 and ipv6 are both off; one is needed"};
  if (t.leaves > t.hosts) {
    throw Problem{1, fmt::format("{} leaves and {} hosts: a leaf has no host", t.leaves, t.hosts)};
  }
  return t;
}

}  // namespace

bool is_lab_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
         });
}

Expected<Topology, std::string> parse_topology(const std::string& text, const std::string& file) {
  try {
    Topology t = read_table(toml::parse(text, file));
    const Plan plan = make_plan(t);
    for (const LinkLine& line : t.links) {
      const auto found = select_links(plan, line.between);
      if (!found) return unexpected(fmt::format("{}: link: {}", file, found.error()));
    }
    return t;
  } catch (const toml::parse_error& e) {
    return unexpected(fmt::format("{}:{}: {}", file, e.source().begin.line, e.description()));
  } catch (const Problem& p) {
    return unexpected(fmt::format("{}:{}: {}", file, p.line, p.text));
  }
}

Expected<Topology, std::string> read_topology(const std::string& file) {
  std::ifstream in(file);
  if (!in) return unexpected(fmt::format("{}: cannot be read: {}", file, std::strerror(errno)));
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad() || text.fail()) {
    return unexpected(fmt::format("{}: cannot be read: it is empty, or no file", file));
  }
  return parse_topology(text.str(), file);
}

}  // namespace metaroce::lab
