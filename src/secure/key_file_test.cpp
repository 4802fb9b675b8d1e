#include "secure/key_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/covers.h"
#include "base/rng.h"
#include "secure/random.h"
#include "secure/x25519.h"

namespace metaroce::secure {
namespace {

const std::string kHex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

class KeyFile : public testing::Test {
 protected:
  KeyFile() {
    std::string pattern = testing::TempDir() + "keysXXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~KeyFile() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string folder_;
  SystemRandom random_;
};

TEST_F(KeyFile, KeepsSeveralIdentities) {
  Config config;
  const auto path = file("psk", "# two of them\nmetaroce-psk one " + kHex +
                                    "\n\nmetaroce-psk two " + kHex + "\r\n");
  ASSERT_TRUE(read_psk_file(path, config)) << read_psk_file(path, config).error();
  ASSERT_EQ(config.psks.size(), 2u);
  EXPECT_EQ(to_hex(config.find_psk("two")->key.bytes()), kHex);
  EXPECT_EQ(config.find_psk("three"), nullptr);
}

TEST_F(KeyFile, RefusesWhatOthersCanRead) {
  MR_COVERS("MR-SEC-012");
  for (const mode_t mode : {0640, 0604, 0660, 0610, 0601}) {
    Config config;
    const auto path = file("open", "metaroce-psk a " + kHex + "\n", mode);
    const auto done = read_psk_file(path, config);
    ASSERT_FALSE(done) << std::oct << mode;
    char text[8];
    std::snprintf(text, sizeof text, "%04o", mode);
    EXPECT_NE(done.error().find(path), std::string::npos);
    EXPECT_NE(done.error().find(text), std::string::npos);
    EXPECT_NE(done.error().find("chmod 600 " + path), std::string::npos);
    EXPECT_TRUE(config.psks.empty());
    EXPECT_FALSE(read_own_key_file(path, config));
  }
  Config config;
  EXPECT_FALSE(read_psk_file(folder_, config)) << "a folder is no key file";
  EXPECT_FALSE(read_psk_file(folder_ + "/none", config));
}

TEST_F(KeyFile, TellsWhatIsWrongAndNeverTheKey) {
  for (const std::string& text :
       {std::string(""), "metaroce-psk a " + kHex.substr(1) + "\n", "metaroce-psk " + kHex + "\n",
        "metaroce-psk a b/c " + kHex + "\n", "metaroce-psk a " + kHex + " more\n", kHex + "\n",
        "metaroce-x25519-private a " + kHex + "\n",
        "metaroce-psk a " + kHex + "\nmetaroce-psk a " + kHex + "\n"}) {
    Config config;
    const auto done = read_psk_file(file("bad", text), config);
    ASSERT_FALSE(done) << text;
    EXPECT_NE(done.error().find("bad"), std::string::npos);
    EXPECT_EQ(done.error().find(kHex.substr(2, 20)), std::string::npos) << done.error();
  }
}

TEST_F(KeyFile, RefusesTrustThatOthersCanWrite) {
  MR_COVERS("MR-SEC-012");
  const std::string line = "metaroce-x25519-public b " + kHex + "\n";
  for (const mode_t mode : {0664, 0646, 0666, 0620}) {
    Config config;
    const auto path = file("trust", line, mode);
    const auto done = read_peer_key(path, config);
    ASSERT_FALSE(done) << std::oct << mode;
    EXPECT_NE(done.error().find("chmod go-w " + path), std::string::npos) << done.error();
    EXPECT_TRUE(config.peers.empty());
  }
  Config config;
  EXPECT_TRUE(read_peer_key(file("trust", line, 0644), config));
}

TEST_F(KeyFile, RefusesFilesOfOtherUsers) {
  MR_COVERS("MR-SEC-012");
  const auto secret = file("secret", "metaroce-psk a " + kHex + "\n");
  const auto trust = file("trust", "metaroce-x25519-public b " + kHex + "\n", 0644);
  if (chown(secret.c_str(), 12345, 12345) != 0 || chown(trust.c_str(), 12345, 12345) != 0) {
    GTEST_SKIP() << "only root can give a file to somebody else";
  }
  Config config;
  for (const auto& done : {read_psk_file(secret, config), read_peer_key(trust, config)}) {
    ASSERT_FALSE(done);
    EXPECT_NE(done.error().find("belongs to user 12345"), std::string::npos) << done.error();
    EXPECT_NE(done.error().find("chown"), std::string::npos) << done.error();
  }
}

TEST_F(KeyFile, SaysWhatATrustedKeyMustBe) {
  const auto error_of = [](const std::string& text) {
    Config config;
    const auto done = read_peer_key(text, config);
    return done ? std::string() : done.error();
  };
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_NE(error_of(fifo).find("must be a regular file, no pipe"), std::string::npos)
      << error_of(fifo);
  for (const std::string& key : {kHex.substr(1), kHex + "0"}) {
    const std::string error = error_of(key);
    EXPECT_NE(error.find(std::to_string(key.size()) + " hexadecimal digits; a public key has 64"),
              std::string::npos)
        << error;
    EXPECT_EQ(error.find(kHex.substr(2, 20)), std::string::npos) << error;
  }
  EXPECT_NE(error_of(folder_ + "/none").find("there is no such file; give"), std::string::npos)
      << error_of(folder_ + "/none");
  EXPECT_EQ(error_of(file("feed", "metaroce-x25519-public b " + kHex + "\n", 0644)), "");
}

TEST_F(KeyFile, NewKeysAreReadByNobodyElse) {
  MR_COVERS("MR-SEC-012");
  const std::string path = folder_ + "/new";
  const mode_t before = umask(0);
  const auto made = write_new_key(path, Mode::kX25519, "host-1", random_);
  umask(before);
  ASSERT_TRUE(made) << made.error();
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  Config config;
  ASSERT_TRUE(read_own_key_file(path, config));
  ASSERT_TRUE(read_peer_key(file("public", *made + "\n", 0644), config));
  EXPECT_EQ(config.own[0].public_key, config.peers[0].key);
  EXPECT_EQ(config.peers[0].name, "host-1");
  ASSERT_TRUE(read_peer_key(to_hex(config.peers[0].key), config));
  EXPECT_EQ(config.peers[1].key, config.peers[0].key);
  EXPECT_FALSE(write_new_key(path, Mode::kPsk, "x", random_)) << "a key is never overwritten";
  EXPECT_EQ(symlink((folder_ + "/elsewhere").c_str(), (folder_ + "/link").c_str()), 0);
  EXPECT_FALSE(write_new_key(folder_ + "/link", Mode::kPsk, "x", random_));
  EXPECT_FALSE(write_new_key(folder_ + "/other", Mode::kPsk, "no spaces", random_));
}

TEST_F(KeyFile, TwoNewKeysDiffer) {
  MR_COVERS("MR-SEC-008");
  Config config;
  ASSERT_TRUE(write_new_key(folder_ + "/a", Mode::kPsk, "a", random_));
  ASSERT_TRUE(write_new_key(folder_ + "/b", Mode::kPsk, "b", random_));
  ASSERT_TRUE(read_psk_file(folder_ + "/a", config));
  ASSERT_TRUE(read_psk_file(folder_ + "/b", config));
  EXPECT_FALSE(equal(config.psks[0].key.bytes(), config.psks[1].key.bytes()));
}

TEST(SystemRandom, ANumberOfASourceIsNotOfTheSeed) {
  MR_COVERS("MR-SEC-008");
  SystemRandom random;
  Rng one(random);
  Rng other(random);
  EXPECT_NE(one.next(), other.next());
  EXPECT_NE(one.next(), Rng(1).next());
  EXPECT_NE(one.fork("x").next(), one.fork("x").next()) << "a fork draws from the source too";
  std::array<std::byte, 1000> big{};
  one.fill(big);
  EXPECT_NE(big[0] | big[1] | big[2] | big[500] | big[999], std::byte{0});
}

}  // namespace
}  // namespace metaroce::secure
