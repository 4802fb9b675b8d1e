// Keys of a connection: nonces, the count of 64 bits, and the way from one key to the next.
#include "secure/session.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/covers.h"
#include "base/rng.h"
#include "secure/key_file.h"

namespace metaroce::secure {
namespace {

constexpr Duration kKeep = milliseconds(1);
constexpr size_t kLength = 100;

struct Sealed {
  PacketName name;
  bool phase = false;
  std::array<std::byte, 32> header{};
  std::array<std::byte, kLength> data{};
  std::array<std::byte, kTagBytes> tag{};
};

Secret secret(uint64_t seed) {
  Secret s;
  Rng(seed).fill(s.bytes());
  return s;
}

struct Two {
  explicit Two(Suite suite = Suite::kAes128Gcm)
      : a(suite, secret(1), secret(2), 8), b(suite, secret(2), secret(1), 8) {
    open(0, 0, 0xFFFFFFF0);
  }
  void open(uint8_t path, uint16_t generation, uint32_t start) {
    a.open_send_path(path, generation, start);
    b.open_receive_path(path, generation, start);
  }
  Sealed seal(uint32_t sequence, uint8_t path = 0, bool ack = false) {
    Sealed s;
    s.name = {ack, path, sequence};
    s.phase = a.send_phase();
    s.header[0] = static_cast<std::byte>(sequence);
    const std::array<std::byte, kLength> plain{};
    a.seal(s.name, s.header, plain.data(), plain.size(), s.data.data(), s.tag.data());
    return s;
  }
  Opened give(Sealed s, Time now = Time{0}) {
    const Opened opened = b.open(now, kKeep, s.name, s.phase, s.header, s.data.data(),
                                 s.data.size(), s.tag.data());
    if (opened == Opened::kYes) {
      EXPECT_EQ(s.data, (std::array<std::byte, kLength>{}));
    }
    return opened;
  }
  Session a;
  Session b;
};

TEST(Session, EverySuiteOpensWhatItSealed) {
  for (uint8_t i = 1; i <= kLastSuite; ++i) {
    Two two(static_cast<Suite>(i));
    EXPECT_EQ(two.give(two.seal(0xFFFFFFF0)), Opened::kYes) << int{i};
    EXPECT_EQ(two.give(two.seal(1, 3, true)), Opened::kYes) << int{i};
  }
}

TEST(Session, AnyChangedBitIsNoticed) {
  MR_COVERS("MR-SEC-004");
  Two two;
  const Sealed good = two.seal(0xFFFFFFF1);
  for (size_t bit = 0; bit < 8 * (good.header.size() + good.data.size() + good.tag.size());
       bit += 7) {
    Sealed bad = good;
    const size_t at = bit / 8;
    std::byte& b = at < 32 ? bad.header[at]
                   : at < 32 + kLength ? bad.data[at - 32] : bad.tag[at - 32 - kLength];
    b ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_EQ(two.give(bad), Opened::kBadTag) << bit;
  }
  EXPECT_EQ(two.give(good), Opened::kYes);
}

TEST(Session, NoTwoPacketsShareANonce) {
  MR_COVERS("MR-SEC-005");
  // The same bytes under another name are another ciphertext: class, path, generation and count
  // all reach the nonce.
  Two two;
  two.open(1, 0, 0xFFFFFFF0);
  std::vector<std::array<std::byte, kLength>> seen;
  const auto fresh = [&seen](const Sealed& s) {
    for (const auto& other : seen) EXPECT_NE(other, s.data);
    seen.push_back(s.data);
  };
  for (uint32_t i = 0; i < 32; ++i) fresh(two.seal(0xFFFFFFF0 + i));  // over the end of 32 bits
  for (uint32_t i = 0; i < 32; ++i) fresh(two.seal(0xFFFFFFF0 + i, 1));
  two.open(2, 0, 1);  // numbers as ACKs have them
  fresh(two.seal(1, 2));
  fresh(two.seal(1, 0, true));
  fresh(two.seal(1, 1, true));
  fresh(two.seal(1, 2, true));
  two.open(0, 1, 0xFFFFFFF0);  // the same sequence in another generation
  fresh(two.seal(0xFFFFFFF0));
  two.a.update_send_key();
  fresh(two.seal(0xFFFFFFF0));
}

TEST(Session, TheSameProbeAgainIsTheSameCiphertext) {
  MR_COVERS("MR-SEC-005");
  Two two;
  const Sealed one = two.seal(0xFFFFFFF2);
  const Sealed two_ = two.seal(0xFFFFFFF2);
  EXPECT_EQ(one.data, two_.data);
  EXPECT_EQ(one.tag, two_.tag);
}

TEST(Session, TheCountGoesOnOver32BitsInAnyOrder) {
  MR_COVERS("MR-SEC-004");
  Two two;
  std::vector<Sealed> all;
  for (uint32_t i = 0; i < 40; ++i) all.push_back(two.seal(0xFFFFFFF0 + i));
  for (size_t i = 0; i < all.size(); i += 2) EXPECT_EQ(two.give(all[i]), Opened::kYes) << i;
  for (size_t i = 1; i < all.size(); i += 2) EXPECT_EQ(two.give(all[i]), Opened::kYes) << i;
}

TEST(Session, AForgedSequenceDoesNotMoveTheCount) {
  MR_COVERS("MR-SEC-004");
  Two two;
  EXPECT_EQ(two.give(two.seal(0xFFFFFFF0)), Opened::kYes);
  Sealed forged = two.seal(0xFFFFFFF1);
  // 4,096 forged steps of almost 2^19 would wrap the 32 bits and leave every true packet behind.
  for (uint32_t i = 1; i <= 8'192; ++i) {
    forged.name.sequence = 0xFFFFFFF0 + i * ((1u << 19) - 1);
    EXPECT_NE(two.give(forged), Opened::kYes);
  }
  EXPECT_EQ(two.give(two.seal(0xFFFFFFF2)), Opened::kYes);
}

TEST(Session, FarAndUnknownPathsCostNoDecryption) {
  Two two;
  Sealed s = two.seal(0xFFFFFFF0);
  s.name.sequence += 1u << 19;
  EXPECT_EQ(two.give(s), Opened::kTooFar);
  s.name.sequence = 0xFFFFFFF0;
  s.name.path = 5;  // never opened
  EXPECT_EQ(two.give(s), Opened::kUnknownPath);
  s.name.path = 200;  // beyond what was agreed
  EXPECT_EQ(two.give(s), Opened::kUnknownPath);
}

TEST(Session, KeysGoOnAndBothAreGoodForAWhile) {
  MR_COVERS("MR-SEC-006");
  Two two;
  uint32_t sequence = 0xFFFFFFF0;
  Time now{0};
  for (int generation = 0; generation < 6; ++generation) {
    const Sealed before = two.seal(sequence++);
    const Sealed late = two.seal(sequence++);
    const Sealed too_late = two.seal(sequence++);
    EXPECT_EQ(two.give(before, now), Opened::kYes);
    two.a.update_send_key();
    EXPECT_EQ(two.give(two.seal(sequence++), now), Opened::kYes);
    EXPECT_EQ(two.b.receive_generation(), two.a.send_generation());
    EXPECT_EQ(two.give(late, now), Opened::kYes) << "the key before, within its time";
    now = now + kKeep + nanoseconds(1);
    EXPECT_EQ(two.give(too_late, now), Opened::kBadTag) << "its time is over";
  }
}

TEST(Session, AnUpdateRightAfterAnUpdateIsFollowed) {
  // No sender does so within the time of the key before; the receiver must not trip over it.
  Two two;
  two.a.update_send_key();
  EXPECT_EQ(two.give(two.seal(0xFFFFFFF0)), Opened::kYes);
  two.a.update_send_key();
  EXPECT_EQ(two.give(two.seal(0xFFFFFFF1)), Opened::kYes);
  EXPECT_EQ(two.b.receive_generation(), 2u);
}

TEST(Session, AForgedPhaseMovesNoKey) {
  MR_COVERS("MR-SEC-006");
  Two two;
  Sealed s = two.seal(0xFFFFFFF0);
  s.phase = !s.phase;
  EXPECT_EQ(two.give(s), Opened::kBadTag);
  EXPECT_EQ(two.b.receive_generation(), 0u);
  s.phase = !s.phase;
  EXPECT_EQ(two.give(s), Opened::kYes);
}

}  // namespace
}  // namespace metaroce::secure
