#include "lab/topology.h"

#include <gtest/gtest.h>

#include <set>

namespace metaroce::lab {
namespace {

std::string error_of(const std::string& text) {
  const auto t = parse_topology(text, "t.toml");
  return t ? "" : t.error();
}

TEST(Topology, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_EQ(error_of(""), "");
  EXPECT_NE(error_of("planes = 2\nplains = 3\n").find("t.toml:2: unknown key 'plains'; there are"),
            std::string::npos);
  EXPECT_NE(error_of("\nhosts = 65").find("t.toml:2: 'hosts' must be a whole number from 2 to 64"),
            std::string::npos);
  EXPECT_NE(error_of("hosts = 2.5").find("whole number"), std::string::npos);
  EXPECT_NE(error_of("ipv6 = 1").find("true or false"), std::string::npos);
  EXPECT_NE(error_of("ipv4 = false\nipv6 = false").find("one is needed"), std::string::npos);
  EXPECT_NE(error_of("hosts = 2\nleaves = 3").find("a leaf has no host"), std::string::npos);
  EXPECT_NE(error_of("[[link]]\nrules = \"loss=1%\"").find("t.toml:1: 'between' is missing"),
            std::string::npos);
  EXPECT_NE(error_of("[[link]]\nbetween = \"p0s9\"\n").find("'p0s9' is no link here"),
            std::string::npos);
  EXPECT_NE(error_of("[[link]]\nbetween = \"p0s0\"\nrules = \"los=1%\"").find("'los' is no rule"),
            std::string::npos);
  EXPECT_NE(error_of("planes = ").find("t.toml:1:"), std::string::npos);
  EXPECT_NE(error_of("\nname = \"R&D <x>\"").find("t.toml:2: 'name' must be a name"),
            std::string::npos);
  const auto folder = read_topology("/");
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().find("/: cannot be read"), std::string::npos);
}

TEST(Topology, ThePlanHasEveryCableOnceAndNoNameTwice) {
  Topology t;
  t.planes = 8;
  t.hosts = 64;
  t.leaves = 16;
  t.spines = 16;
  const Plan plan = make_plan(t);
  EXPECT_EQ(plan.nodes.size(), 64u + 8 * 32);
  EXPECT_EQ(plan.cables.size(), 8u * (64 + 256));
  std::set<std::string> names, addresses, macs;
  for (const Node& n : plan.nodes) EXPECT_TRUE(names.insert(n.name).second) << n.name;
  std::set<std::pair<uint32_t, std::string>> interfaces;
  for (const Cable& c : plan.cables) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    for (const End* end : {&c.a, &c.b}) {
      EXPECT_TRUE(interfaces.insert({end->node, end->interface}).second) << c.name;
      EXPECT_LT(end->interface.size(), 16u);
      EXPECT_TRUE(addresses.insert(end->v4).second) << end->v4;
      EXPECT_TRUE(addresses.insert(end->v6).second) << end->v6;
      EXPECT_TRUE(macs.emplace(reinterpret_cast<const char*>(end->mac), 6).second) << c.name;
    }
  }
  for (uint32_t p = 0; p < t.planes; ++p) {
    for (uint32_t h = 0; h < t.hosts; ++h) {
      EXPECT_EQ(plan.host_cable(p, h).name,
                "h" + std::to_string(h) + ":p" + std::to_string(p) + "l" + std::to_string(h % 16));
    }
    EXPECT_EQ(plan.fabric_cable(p, 3, 7).name,
              "p" + std::to_string(p) + "l3:p" + std::to_string(p) + "s7");
    EXPECT_EQ(plan.nodes[plan.spine(p, 5)].name, "p" + std::to_string(p) + "s5");
  }
}

TEST(Topology, LinksAreNamedInBothDirectionsOrOne) {
  Topology t;
  t.planes = 2;
  const Plan plan = make_plan(t);
  const auto count = [&](const char* name) {
    const auto found = select_links(plan, name);
    return found ? found->size() : 0;
  };
  EXPECT_EQ(count("p0s0:p0l1"), 1u);
  EXPECT_FALSE(select_links(plan, "p0s0:p0l1")->front().from_a);
  EXPECT_TRUE(select_links(plan, "p0l1:p0s0")->front().from_a);
  EXPECT_EQ(count("p0l1=p0s0"), 2u);
  EXPECT_EQ(count("p0s0"), 4u);  // two leaves, both directions
  EXPECT_EQ(count("h1"), 4u);    // two planes
  EXPECT_EQ(count("plane1"), 2u * (2 + 8));
  EXPECT_EQ(count("p*s*:p*l*"), 16u);
  EXPECT_EQ(count("*"), plan.cables.size() * 2);
  EXPECT_EQ(count("h0:h1"), 0u);
  EXPECT_NE(select_links(plan, "x").error().find("spines p0s0 to p1s3"), std::string::npos);
}

TEST(LinkRules, AreReadAsTheyArePrinted) {
  for (const char* words :
       {"none", "loss=1%", "loss=0.01%,corrupt=50%", "ge=0.1%/10%",
        "rate=100mbit,queue=300000,mark=30000", "delay=1000us,jitter=200us", "reorder=2%:500us",
        "dark=on", "rate=1mbit,trim=on", "dup=2%,bleach=on", "flap=100ms"}) {
    const auto rules = parse_rules(words);
    ASSERT_TRUE(rules) << words << ": " << rules.error();
    EXPECT_EQ(print_rules(*rules), words);
    EXPECT_EQ(*parse_rules(print_rules(*rules)), *rules);
  }
  EXPECT_EQ(parse_rules("loss=1000ppm mark=30k rate=1gbit")->loss_ppm, 1000u);
  EXPECT_EQ(parse_rules("dark=off", *parse_rules("dark=on,loss=1%")).value(),
            *parse_rules("loss=1%"));
  EXPECT_EQ(*parse_rules("none", *parse_rules("dark=on")), LinkRules{});
}

TEST(LinkRules, AWrongWordIsNamed) {
  const auto error = [](const char* words) {
    const auto rules = parse_rules(words);
    return rules ? std::string("none") : rules.error();
  };
  EXPECT_NE(error("loss").find("must be KEY=VALUE"), std::string::npos);
  EXPECT_NE(error("loss=101%").find("'101%' is out of range (0 to 100 %)"), std::string::npos);
  EXPECT_NE(error("loss=-1%").find("out of range"), std::string::npos);
  EXPECT_NE(error("loss=x").find("no number with a unit (%, ppm)"), std::string::npos);
  EXPECT_NE(error("loss=nan%").find("out of range"), std::string::npos);
  EXPECT_NE(error("loss=1").find("'1' is no number with a unit (%, ppm)"), std::string::npos);
  EXPECT_EQ(error("loss=0 delay=0"), "none");
  EXPECT_NE(error("trim=on").find("give it a rate"), std::string::npos);
  EXPECT_NE(error("delay=5").find("(us, ms, s)"), std::string::npos);
  EXPECT_NE(error("ge=1%").find("BEGIN/END"), std::string::npos);
  EXPECT_NE(error("reorder=1%").find("SHARE:LATE"), std::string::npos);
  EXPECT_NE(error("dark=maybe").find("on or off"), std::string::npos);
  EXPECT_NE(error("mark=30k").find("give it a rate"), std::string::npos);
}

}  // namespace
}  // namespace metaroce::lab
