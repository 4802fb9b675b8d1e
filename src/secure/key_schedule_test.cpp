// Known answers of the key schedule, computed by other means (HMAC of Python's standard library),
// so that a change of it on both sides is noticed too.
#include "secure/key_schedule.h"

#include <gtest/gtest.h>

#include "base/covers.h"
#include "secure/hash.h"
#include "secure/key_file.h"

namespace metaroce::secure {
namespace {

/// 32 bytes that count up from `first`.
Secret counting(uint8_t first) {
  Secret s;
  for (std::byte& b : s.bytes()) b = static_cast<std::byte>(first++);
  return s;
}

struct Answer {
  size_t inputs;  ///< 2: ee and the pre-shared key; 3: ee, es and se
  const char *accept, *confirm, *initiator, *responder;
  const char* proof;
  uint64_t mac;
  const char *key, *iv, *next;  ///< of the initiator's traffic secret
};

constexpr Answer kAnswers[] = {
    {2, "10b32b84d5e8907a885471764d15d42a3fad42e0b49a004db58cc52a88d3b62f",
     "c409868742f8a211be2e5b1e894ed1785f8b6896e489bf15f2d2a66861e50788",
     "b540632db21c9afc8d98e5733a4786571f9fd38786747e3d327b5ad3b6807b87",
     "6b8937b5da6cef829ab304336b6e22a638cdb00e2886199393ecfba6e8b2b3e6",
     "994b27d529293631f9d910c3c1f64270", 0x80f6cb3570a91487,
     "4e769cd4ffa48e8cf2e621b72b0664a63fdfaae338f46c4848bec9fc0240ab96", "84b219c6c270e9b998a5743b",
     "33e0dac5ef0def7ce3b25886bc238d54393d238db2a6ac0f3c9b6151b1848f52"},
    {3, "447fa93a3417766e16895451180f3245703c67fff54225948c57d5aad22394da",
     "6e4a2e785af7b65693f219195aff6ea97a9f5dbcfe84dc0e7109fdb1e4acc535",
     "cf7f3e662e6191ef19ece01bceb22b1937244f8cf507e2e3a54ea2803cce52e4",
     "d1701442cc4bad05aace55903f210030587d64f98e320c9487186af87749da2c",
     "0db1b2ff83de62c16ca9d6dbdaca0afc", 0xbe15f85fc7d6832d,
     "37a1328a6c589bc55c6695b298d4a737e3a7b51d46da621161518ad3e5348b34", "b8da492ac248503315944335",
     "95ff6d7c773fb766bda25abed3ed4b79d953e7eb1493140998008fb116a06b81"},
};

TEST(KeySchedule, KnownAnswers) {
  MR_COVERS("MR-SEC-009");
  MR_COVERS("MR-SEC-010");
  Sha256 hash;
  hash.update(std::as_bytes(std::span(std::string_view("metaroce transcript"))));
  const Digest transcript = hash.finish();
  ASSERT_EQ(to_hex(transcript), "8df128c0a46d6c52ea827b131278dd09040736a1757c76ae607284cea21c58b1");
  const std::array<Secret, 3> inputs{counting(0x10), counting(0x30), counting(0x50)};
  for (const Answer& a : kAnswers) {
    SCOPED_TRACE(a.inputs);
    HandshakeKeys keys;
    derive(transcript, std::span(inputs).first(a.inputs), keys);
    EXPECT_EQ(to_hex(keys.accept.bytes()), a.accept);
    EXPECT_EQ(to_hex(keys.confirm.bytes()), a.confirm);
    EXPECT_EQ(to_hex(keys.initiator.bytes()), a.initiator);
    EXPECT_EQ(to_hex(keys.responder.bytes()), a.responder);
    EXPECT_EQ(to_hex(accept_proof(keys, transcript)), a.proof);
    EXPECT_EQ(confirm_mac(keys, transcript), a.mac);
    TrafficKeys traffic;
    traffic_keys(keys.initiator, traffic);
    EXPECT_EQ(to_hex(traffic.key), a.key);
    EXPECT_EQ(to_hex(traffic.iv), a.iv);
    next_traffic(keys.initiator);
    EXPECT_EQ(to_hex(keys.initiator.bytes()), a.next);
  }
}

}  // namespace
}  // namespace metaroce::secure
