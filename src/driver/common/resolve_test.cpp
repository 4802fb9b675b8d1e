#include "driver/common/resolve.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include <algorithm>

#include "driver/common/interfaces.h"
#include "driver/common/socket_address.h"

namespace metaroce::driver {
namespace {

std::string one(const char* text, uint16_t port = 28672) {
  const auto list = resolve(text, port);
  if (!list) return list.error().text;
  return list->size() == 1 ? to_string(list->front()) : "more than one";
}

TEST(Resolve, NumericFormsGiveThatAddress) {
  EXPECT_EQ(one("10.1.2.3"), "10.1.2.3:28672");
  EXPECT_EQ(one("10.1.2.3:9"), "10.1.2.3:9");
  EXPECT_EQ(one("::1"), "[::1]:28672");
  EXPECT_EQ(one("[::1]"), "[::1]:28672");
  EXPECT_EQ(one("[::1]:9"), "[::1]:9");
  EXPECT_EQ(one("2001:db8::7"), "[2001:db8::7]:28672");
  EXPECT_EQ(one("::ffff:10.1.2.3"), "10.1.2.3:28672");
  EXPECT_EQ(one("0.0.0.0"), "0.0.0.0:28672");
}

TEST(Resolve, ScopedLinkLocalAddresses) {
  EXPECT_EQ(one("fe80::1%lo"), "[fe80::1%lo]:28672");
  EXPECT_EQ(one("[fe80::1%lo]:9"), "[fe80::1%lo]:9");
  const auto by_index = resolve("fe80::1%1", 9);
  ASSERT_TRUE(by_index);
  EXPECT_EQ(by_index->front().scope, 1u);
}

TEST(Resolve, NamesGiveAllAddressesWithoutRepetition) {
  const auto list = resolve("localhost", 9);
  ASSERT_TRUE(list) << list.error().text;
  for (const auto& a : *list) {
    EXPECT_TRUE(is_loopback(a)) << to_string(a);
    EXPECT_EQ(a.port, 9);
    EXPECT_EQ(std::count(list->begin(), list->end(), a), 1);
  }
  const auto v4 = resolve("localhost:7", 9, Family::kIpv4);
  ASSERT_TRUE(v4) << v4.error().text;
  EXPECT_EQ(v4->front().family, 4);
  EXPECT_EQ(v4->front().port, 7);
}

TEST(Resolve, ErrorsNameValueCauseAndRemedy) {
  for (const char* text :
       {"", ":9", "[::1", "[::1]9", "[::1]:", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536",
        "10.0.0.1:x", "fe80::1", "fe80::1%nosuchif0", "1:2:3", "no-such-host.invalid"}) {
    const auto list = resolve(text, 9);
    ASSERT_FALSE(list) << text;
    const std::string& error = list.error().text;
    EXPECT_NE(error.find(fmt::format("\"{}\"", text)), std::string::npos) << error;
    EXPECT_NE(error.find("; "), std::string::npos) << error;
  }
  EXPECT_NE(one("fe80::1").find("fe80::1%INTERFACE"), std::string::npos);
  EXPECT_NE(one("fe80::1%nosuchif0").find("nosuchif0"), std::string::npos);
  EXPECT_FALSE(resolve("10.0.0.1", 9, Family::kIpv6));
  EXPECT_FALSE(resolve("::1", 9, Family::kIpv4));
}

TEST(SocketAddressText, ConvertsBothWaysAlsoAsMappedAddress) {
  for (const char* text : {"127.0.3.1", "::1", "2001:db8::7"}) {
    const SocketAddress a = parse_address(text, 77);
    for (int family : {AF_INET, AF_INET6}) {
      sockaddr_storage storage{};
      const socklen_t n = to_sockaddr(a, family, storage);
      if (a.family == 6 && family == AF_INET) {
        EXPECT_EQ(n, 0u);
        continue;
      }
      ASSERT_NE(n, 0u);
      EXPECT_EQ(from_sockaddr(reinterpret_cast<const sockaddr*>(&storage)), a) << text;
    }
  }
  EXPECT_EQ(parse_address("not an address", 1).family, 0);
  EXPECT_TRUE(is_wildcard(parse_address("::", 0)));
  EXPECT_TRUE(is_wildcard(parse_address("0.0.0.0", 0)));
  EXPECT_FALSE(is_wildcard(parse_address("::1", 0)));
}

TEST(Interfaces, LoopbackHasItsMtuOnEveryAddressOfItsNet) {
  const auto states =
      look_up_interfaces({parse_address("127.0.0.1", 0), parse_address("127.0.9.1", 0),
                          parse_address("203.0.113.77", 0), parse_address("0.0.0.0", 0)});
  ASSERT_EQ(states.size(), 4u);
  EXPECT_TRUE(states[0].found && states[0].up);
  EXPECT_TRUE(states[1].found && states[1].up);
  EXPECT_EQ(states[0].mtu, 65535);
  EXPECT_EQ(states[1].name, states[0].name);
  EXPECT_FALSE(states[2].found);
  EXPECT_TRUE(states[3].found);
}

}  // namespace
}  // namespace metaroce::driver
