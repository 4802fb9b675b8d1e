// Peers that do not keep to the file protocol.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/rng.h"
#include "driver/common/clock.h"
#include "file_names.h"
#include "memory_transport.h"
#include "receiver.h"

namespace metaroce::tool {
namespace {

namespace fs = std::filesystem;

TEST(Names, AcceptedOnesAreRelativeAndPlain) {
  for (const char* name : {"a", "a/b", "..a", "a..", "...", ".hidden", "\xC3\xA4 b", "-", "a\\b",
                           "\xFF\x80"}) {
    EXPECT_EQ(check_name(name), "") << name;
  }
  EXPECT_EQ(check_name(std::string(255, 'a')), "");
}

TEST(Names, RefusedOnesSayWhy) {
  const auto refused = [](std::string_view name, const std::string& why) {
    EXPECT_NE(check_name(name).find(why), std::string::npos) << printable(name);
  };
  refused("", "empty");
  refused("/etc/passwd", "absolute");
  refused("../x", "\"..\"");
  refused("a/../../x", "\"..\"");
  refused("a/..", "\"..\"");
  refused("./a", "\".\"");
  refused("a//b", "empty component");
  refused("a/", "empty component");
  refused(std::string_view("a\0b", 3), "control");
  refused("a\nb", "control");
  refused("a\x1b[2J", "control");
  refused("a\x7f", "control");
  refused("a\xC2\x9B", "control");
  refused(std::string(256, 'a'), "255");
  std::string deep;
  for (int i = 0; i < 2048; ++i) deep += "a/";
  refused(deep + "a", "4095");
}

TEST(Names, PrintableNeverSteersATerminal) {
  EXPECT_EQ(printable("a\x1b[2J\nb"), "a\\x1b[2J\\x0ab");
  EXPECT_EQ(printable("\xC3\xA4"), "\xC3\xA4");
}

TEST(Protocol, EveryMessageComesBackAsItWas) {
  Sha256 digest{};
  digest[0] = 1;
  digest[31] = 0xFE;
  const Message all[] = {Hello{1, 2, 3, 4, 5},
                         Welcome{1, 0xAABBCCDD, 0x1122334455667788, 4096, 9},
                         Offer{1, ItemKind::kDirectory, 7, 0755, -5, "name"},
                         Answer{1, false, "why"},
                         Data{1, uint64_t{1} << 40, 9, 3},
                         Free{65535},
                         Done{1, 2, digest},
                         Cancel{1, "gone"},
                         Verdict{1, true, "name.1"},
                         Abort{"stop"},
                         Bye{1, 2}};
  for (const Message& message : all) {
    const Bytes bytes = encode(message);
    EXPECT_LE(bytes.size(), kMaxControlBytes);
    const auto back = decode(bytes);
    ASSERT_TRUE(back) << back.error();
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), bytes);
    // Every shorter form and one with a byte more is refused.
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(decode(std::span(bytes).first(n))) << message.index() << " at " << n;
    }
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode(longer));
  }
}

TEST(Protocol, AnyBytesGiveAMessageOrAReason) {
  Rng rng(11);
  for (int i = 0; i < 200'000; ++i) {
    Bytes bytes(rng.below(48));
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next32());
    if (!bytes.empty()) bytes[0] = static_cast<std::byte>(rng.below(13));
    const auto message = decode(bytes);
    if (message) {
      EXPECT_EQ(encode(*message), bytes);
    } else {
      EXPECT_FALSE(message.error().empty());
    }
  }
}

/// Speaks the protocol by hand to a real receiver.
class Hostile : public ::testing::Test {
 protected:
  Hostile() {
    std::string pattern = (fs::temp_directory_path() / "metaroce-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    fs::create_directory(folder_ + "/in");
    ReceiverOptions options;
    options.slot_bytes = 4096;
    options.slots = 4;
    options.overwrite = Overwrite::kAlways;
    options.now = [] { return driver::now(); };
    receiver_ = std::make_unique<Receiver>(options, *TargetFolder::open(folder_ + "/in"),
                                           std::vector<Transport*>{&receiver_side_});
    receiver_->start();
    link_ = MemoryTransport::join(side_, receiver_side_);
  }
  ~Hostile() override {
    receiver_->stop("end of test");
    receiver_->join();
    fs::remove_all(folder_);
  }

  void say(const Message& message, uint16_t stream = kControlStream) {
    side_.send(link_, stream, encode(message));
  }
  /// The next message of type M; others are passed over.
  template <class M>
  M hear() {
    const Time end = driver::now() + seconds(30);
    while (driver::now() < end) {
      Event event;
      while (side_.next(event)) {
        if (event.kind != EventKind::kMessage) continue;
        const auto message = decode(event.message);
        if (message && std::holds_alternative<M>(*message)) return std::get<M>(*message);
      }
      side_.wait(milliseconds(10));
    }
    ADD_FAILURE() << "no such message came";
    return {};
  }
  void hello() {
    say(Hello{});
    welcome_ = hear<Welcome>();
  }
  Verdict offered(const std::string& name, uint32_t item = 0, uint64_t size = 0) {
    say(Offer{item, ItemKind::kFile, size, 0644, 0, name});
    return hear<Verdict>();
  }
  void put(uint32_t item, uint64_t offset, const std::string& text, uint16_t slot) {
    const auto bytes = std::as_bytes(std::span(text));
    side_.write(link_, 1, bytes, welcome_.key,
                welcome_.address + uint64_t{slot} * welcome_.slot_bytes, 0);
    say(Data{item, offset, static_cast<uint32_t>(text.size()), slot}, 1);
  }
  size_t files() const {
    size_t n = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      n += entry.is_directory() ? 0 : 1;
    }
    return n;
  }

  std::shared_ptr<MemoryNetwork> network_ = std::make_shared<MemoryNetwork>(3);
  MemoryTransport receiver_side_{network_};
  MemoryTransport side_{network_};
  std::string folder_;
  std::unique_ptr<Receiver> receiver_;
  Link link_ = 0;
  Welcome welcome_;
};

TEST_F(Hostile, NamesThatLeaveTheFolder) {
  hello();
  uint32_t item = 0;
  for (const char* name : {"../evil", "/evil", "a/../../evil", "..", "a\nb", ""}) {
    const Verdict verdict = offered(name, item++);
    EXPECT_FALSE(verdict.stored) << name;
    EXPECT_NE(verdict.text.find("refused"), std::string::npos) << verdict.text;
  }
  say(Offer{item, ItemKind::kDirectory, 0, 0755, 0, "../evil"});
  EXPECT_FALSE(hear<Verdict>().stored);
  EXPECT_EQ(files(), 0u);
  EXPECT_FALSE(fs::exists(folder_ + "/evil"));
}

TEST_F(Hostile, DigestThatDoesNotFit) {
  hello();
  say(Offer{0, ItemKind::kFile, 4, 0644, 0, "f"});
  EXPECT_TRUE(hear<Answer>().accepted);
  put(0, 0, "data", 0);
  say(Done{0, 4, {}});
  const Verdict verdict = hear<Verdict>();
  EXPECT_FALSE(verdict.stored);
  EXPECT_NE(verdict.text.find("SHA-256"), std::string::npos);
  EXPECT_EQ(files(), 0u);
}

TEST_F(Hostile, MoreDataThanOffered) {
  hello();
  say(Offer{0, ItemKind::kFile, 2, 0644, 0, "f"});
  hear<Answer>();
  put(0, 0, "data", 0);
  EXPECT_NE(hear<Abort>().text.find("more data"), std::string::npos);
  EXPECT_EQ(files(), 0u);
}

TEST_F(Hostile, RepeatedOffset) {
  hello();
  say(Offer{0, ItemKind::kFile, kUnknownSize, 0644, 0, "f"});
  hear<Answer>();
  put(0, 0, "data", 0);
  hear<Free>();
  put(0, 2, "data", 0);
  EXPECT_NE(hear<Abort>().text.find("repeats"), std::string::npos);
}

TEST_F(Hostile, OffsetAtTheEndOfNumbers) {
  hello();
  say(Offer{0, ItemKind::kFile, kUnknownSize, 0644, 0, "f"});
  hear<Answer>();
  put(0, ~uint64_t{0} - 1, "data", 0);
  EXPECT_NE(hear<Abort>().text.find("beyond"), std::string::npos);
}

TEST_F(Hostile, SlotThatDoesNotExist) {
  hello();
  say(Offer{0, ItemKind::kFile, kUnknownSize, 0644, 0, "f"});
  hear<Answer>();
  say(Data{0, 0, 4, 4}, 1);
  EXPECT_NE(hear<Abort>().text.find("slot"), std::string::npos);
}

TEST_F(Hostile, DataLongerThanASlot) {
  hello();
  say(Data{0, 0, 4097, 0}, 1);
  EXPECT_NE(hear<Abort>().text.find("slot"), std::string::npos);
}

TEST_F(Hostile, MoreWaitingDataThanSlots) {
  hello();
  say(Offer{0, ItemKind::kFile, kUnknownSize, 0644, 0, "f"});
  hear<Answer>();
  for (uint32_t i = 1; i <= 5; ++i) put(0, i * 100, "data", 0);
  EXPECT_NE(hear<Abort>().text.find("more data than slots"), std::string::npos);
}

TEST_F(Hostile, OffersWithoutEnd) {
  hello();
  for (uint32_t i = 0; i <= kMaxOpenItems; ++i) {
    say(Offer{i, ItemKind::kFile, 1, 0644, 0, "f" + std::to_string(i)});
  }
  EXPECT_NE(hear<Abort>().text.find("too many"), std::string::npos);
  EXPECT_EQ(files(), 0u);
}

TEST_F(Hostile, WrongVersionSaysBothVersions) {
  say(Hello{9, 0, 0, 0, 1});
  const std::string text = hear<Abort>().text;
  EXPECT_NE(text.find("version 9"), std::string::npos);
  EXPECT_NE(text.find("version 1"), std::string::npos);
}

TEST_F(Hostile, OfferBeforeHello) {
  say(Offer{0, ItemKind::kFile, 1, 0644, 0, "f"});
  EXPECT_NE(hear<Abort>().text.find("HELLO first"), std::string::npos);
}

TEST_F(Hostile, MessageOfAReceiver) {
  hello();
  say(Verdict{0, true, "f"});
  EXPECT_NE(hear<Abort>().text.find("only receivers"), std::string::npos);
}

TEST_F(Hostile, RandomBytesNeverLeaveAFile) {
  Rng rng(5);
  for (int round = 0; round < 50; ++round) {
    hello();
    for (int i = 0; i < 20; ++i) {
      Bytes bytes(rng.below(64));
      for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next32());
      if (!bytes.empty()) bytes[0] = static_cast<std::byte>(3 + rng.below(6));
      side_.send(link_, static_cast<uint16_t>(rng.below(3)), bytes);
    }
    say(Hello{});  // a second HELLO is refused, whatever came before
    hear<Abort>();
    side_.close(link_);
    link_ = MemoryTransport::join(side_, receiver_side_);
  }
  receiver_->stop("end of test");
  receiver_->join();
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().filename().string().find(".metaroce-"), std::string::npos);
  }
}

}  // namespace
}  // namespace metaroce::tool
