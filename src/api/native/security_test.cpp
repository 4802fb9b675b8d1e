// Keys through the C interface.
#include <cstring>
#include <filesystem>
#include <fstream>

#include "api/native/test_support.h"
#include "base/covers.h"
#include "secure/key_file.h"
#include "secure/random.h"

namespace metaroce::api::native {
namespace {

class NativeSecurity : public testing::Test {
 protected:
  NativeSecurity() {
    std::string pattern = testing::TempDir() + "nativeXXXXXX";
    folder_ = mkdtemp(pattern.data());
    psk_ = folder_ + "/psk";
    secure::SystemRandom random;
    EXPECT_TRUE(secure::write_new_key(psk_, secure::Mode::kPsk, "lab", random));
    own_ = folder_ + "/own";
    public_ = secure::write_new_key(own_, secure::Mode::kX25519, "me", random)->substr(26);
  }
  ~NativeSecurity() override { std::filesystem::remove_all(folder_); }
  /// How opening a context ends, and what is said of it.
  mr_status open(const mr_context_options& o, std::string& text) {
    mr_context* context = nullptr;
    const mr_status status = mr_context_open(&o, &context);
    text = last_error(nullptr);
    mr_context_close(context);
    return status;
  }
  std::string folder_, psk_, own_, public_;
};

TEST_F(NativeSecurity, ASharedKeyConnectsAndNobodyElse) {
  MR_COVERS("MR-SEC-007");
  mr_context_options o = options(MR_CONTEXT_ACCEPT);
  o.psk_file = psk_.c_str();
  o.suites = "ChaCha20-Poly1305,AES-128-GCM";
  mr_context* server = nullptr;
  ASSERT_EQ(mr_context_open(&o, &server), MR_OK) << last_error(nullptr);
  o.flags &= ~static_cast<uint32_t>(MR_CONTEXT_ACCEPT);
  mr_context* client = nullptr;
  ASSERT_EQ(mr_context_open(&o, &client), MR_OK);
  mr_context* plain = open_context(0);
  for (mr_context* from : {client, plain}) {
    mr_connection connection = 0;
    ASSERT_EQ(connect_to(from, mr_context_port(server), 0, false, &connection), MR_OK);
    mr_event end{};
    for (bool over = false; !over;) {
      mr_poll(from, nullptr, 0, sizeof(mr_completion), nullptr);
      mr_poll(server, nullptr, 0, sizeof(mr_completion), nullptr);
      for (const mr_event& e : Two::events(from)) {
        if (e.kind != MR_EVENT_CONNECTED && e.kind != MR_EVENT_FAILED) continue;
        over = true;
        end = e;
      }
    }
    EXPECT_EQ(end.kind, from == client ? MR_EVENT_CONNECTED : MR_EVENT_FAILED);
    EXPECT_EQ(end.status, from == client ? MR_OK : MR_NOT_TRUSTED);
  }
  mr_context_close(plain);
  mr_context_close(client);
  mr_context_close(server);
}

TEST_F(NativeSecurity, WhatIsWrongIsNamed) {
  std::string text;
  mr_context_options o = options(0);
  o.security = MR_SECURITY_REQUIRED;
  EXPECT_EQ(open(o, text), MR_INVALID) << "without keys";
  EXPECT_NE(text.find("security needs keys"), std::string::npos) << text;
  o.security = 7;
  EXPECT_EQ(open(o, text), MR_INVALID);
  EXPECT_NE(text.find("security is 7"), std::string::npos) << text;
  o = options(0);
  o.psk_file = own_.c_str();
  EXPECT_EQ(open(o, text), MR_INVALID) << "another kind of key";
  o = options(0);
  o.key_file = own_.c_str();
  EXPECT_EQ(open(o, text), MR_INVALID) << "nobody is trusted";
  const char* const keys[] = {public_.c_str()};
  o.peer_key_count = 1;
  EXPECT_EQ(open(o, text), MR_INVALID) << "peer_keys is NULL";
  o.peer_keys = keys;
  EXPECT_EQ(open(o, text), MR_OK) << text;
  o.suites = "AES-128-GCM,ROT13";
  EXPECT_EQ(open(o, text), MR_INVALID);
  EXPECT_NE(text.find("ROT13"), std::string::npos) << text;
}

TEST_F(NativeSecurity, AForgottenKeyFileIsNoPlainConnection) {
  MR_COVERS("MR-SEC-021");
  const auto refused = [this](auto set, const std::string& field) {
    mr_context_options o = options(0);
    set(o);
    std::string text;
    EXPECT_EQ(open(o, text), MR_INVALID) << field;
    EXPECT_NE(text.find(field + " needs keys: psk_file"), std::string::npos) << text;
  };
  refused([](mr_context_options& o) { o.identity = "lab"; }, "identity");
  refused([](mr_context_options& o) { o.peer_key_name = "b"; }, "peer_key_name");
  refused([](mr_context_options& o) { o.suites = "AES-256-GCM"; }, "suites");
  refused([](mr_context_options& o) { o.security = MR_SECURITY_OFFERED; }, "security");
}

TEST_F(NativeSecurity, NamesThatNoKeyProvesOpenNothing) {
  MR_COVERS("MR-SEC-020");
  const char* const keys[] = {public_.c_str()};
  const std::string name = public_.substr(0, 16);
  mr_context_options o = options(0);
  o.psk_file = psk_.c_str();
  o.identity = "lab";
  o.peer_keys = keys;
  o.peer_key_count = 1;
  o.peer_key_name = name.c_str();
  std::string text;
  EXPECT_EQ(open(o, text), MR_INVALID);
  EXPECT_NE(text.find("a pre-shared key does not tell one peer from another"), std::string::npos)
      << text;
  o.peer_key_name = nullptr;
  EXPECT_EQ(open(o, text), MR_OK) << text;
  o.identity = "bal";
  EXPECT_EQ(open(o, text), MR_INVALID);
  EXPECT_NE(text.find("named \"bal\""), std::string::npos) << text;
}

TEST_F(NativeSecurity, ASeedAndKeysExcludeEachOther) {
  MR_COVERS("MR-SEC-022");
  mr_context_options o = options(0);
  o.seed = 7;
  std::string text;
  EXPECT_EQ(open(o, text), MR_OK) << text;
  o.psk_file = psk_.c_str();
  EXPECT_EQ(open(o, text), MR_INVALID);
  EXPECT_NE(text.find("the seed is 7, and there are keys"), std::string::npos) << text;
}

TEST_F(NativeSecurity, AnUpdateNeedsTimeBeforeTheLimit) {
  MR_COVERS("MR-SEC-023");
  for (const auto& [update, good] :
       {std::pair{"key_update_packets=768", true}, std::pair{"key_update_packets=769", false},
        std::pair{"key_update_packets=5000", false}}) {
    const char* const settings[] = {"key_limit_packets=1024", update};
    mr_context_options o = options(0);
    o.settings = settings;
    o.setting_count = 2;
    std::string text;
    EXPECT_EQ(open(o, text), good ? MR_OK : MR_INVALID) << update << text;
    if (good) continue;
    EXPECT_NE(text.find("key_limit_packets 1024"), std::string::npos) << text;
    EXPECT_NE(text.find("lower key_update_packets"), std::string::npos) << text;
  }
}

/// Two servers that the client trusts, each with a key of its own.
class PinnedServers : public NativeSecurity {
 protected:
  PinnedServers() {
    secure::SystemRandom random;
    for (const std::string name : {"one", "two"}) {
      const std::string line =
          *secure::write_new_key(folder_ + "/" + name, secure::Mode::kX25519, name, random);
      std::ofstream(folder_ + "/trust", std::ios::app) << line << '\n';
    }
    std::filesystem::permissions(folder_ + "/trust", std::filesystem::perms(0644));
    const char* const trusted[] = {public_.c_str()};
    one_ = serve(folder_ + "/one", trusted);
    two_ = serve(folder_ + "/two", trusted);
    const std::string trust = folder_ + "/trust";
    const char* const servers[] = {trust.c_str()};
    mr_context_options o = options(0);
    o.key_file = own_.c_str();
    o.peer_keys = servers;
    o.peer_key_count = 1;
    o.peer_key_name = "two";
    EXPECT_EQ(mr_context_open(&o, &client_), MR_OK) << last_error(nullptr);
  }
  ~PinnedServers() override {
    for (mr_context* c : {client_, one_, two_}) mr_context_close(c);
  }
  mr_context* serve(const std::string& key, const char* const* trusted) {
    mr_context_options o = options(MR_CONTEXT_ACCEPT | MR_CONTEXT_PROGRESS_THREAD);
    o.key_file = key.c_str();
    o.peer_keys = trusted;
    o.peer_key_count = 1;
    mr_context* context = nullptr;
    EXPECT_EQ(mr_context_open(&o, &context), MR_OK) << last_error(nullptr);
    return context;
  }
  mr_status connect(mr_context* server, const char* peer, const char* identity = nullptr) {
    const std::string at = "127.0.0.1:" + std::to_string(mr_context_port(server));
    const char* const peers[] = {at.c_str()};
    mr_connect_options o{};
    o.size = sizeof o;
    o.peers = peers;
    o.peer_count = 1;
    o.peer_key_name = peer;
    o.identity = identity;
    return mr_connect(client_, &o, kBound, &connection_);
  }
  std::string proved() {
    mr_connection_info info{};
    info.size = sizeof info;
    EXPECT_EQ(mr_connection_get(client_, connection_, &info), MR_OK);
    return std::string(info.suite) + " " + info.peer_key_name;
  }
  mr_context *client_ = nullptr, *one_ = nullptr, *two_ = nullptr;
  mr_connection connection_ = 0;
};

TEST_F(PinnedServers, SwappedAreNotTaken) {
  MR_COVERS("MR-SEC-010");
  EXPECT_EQ(connect(one_, "two"), MR_NOT_TRUSTED) << "one answers where two was meant";
  EXPECT_EQ(connect(two_, "one"), MR_NOT_TRUSTED);
  ASSERT_EQ(connect(one_, "one"), MR_OK) << last_error(client_);
  EXPECT_EQ(proved(), "AES-128-GCM one");
  ASSERT_EQ(connect(two_, "two"), MR_OK) << last_error(client_);
  EXPECT_EQ(proved(), "AES-128-GCM two");
}

TEST_F(PinnedServers, WhatAConnectionDoesNotNameIsTheContexts) {
  ASSERT_EQ(connect(two_, nullptr), MR_OK) << last_error(client_);
  EXPECT_EQ(connect(one_, nullptr), MR_NOT_TRUSTED) << "the context names two";
  ASSERT_EQ(connect(one_, ""), MR_OK) << "any that is trusted: " << last_error(client_);
  EXPECT_EQ(proved(), "AES-128-GCM one");
  EXPECT_EQ(connect(one_, "three"), MR_INVALID);
  EXPECT_NE(last_error(client_).find("named \"three\""), std::string::npos) << last_error(client_);
  EXPECT_EQ(connect(one_, "one", "you"), MR_INVALID);
  EXPECT_NE(last_error(client_).find("named \"you\""), std::string::npos) << last_error(client_);
  EXPECT_EQ(connect(one_, "one", "me"), MR_OK) << last_error(client_);
}

TEST_F(NativeSecurity, APlainConnectionSaysSo) {
  mr_context_options o = options(0);
  o.psk_file = psk_.c_str();
  o.security = MR_SECURITY_OFFERED;
  mr_context* client = nullptr;
  ASSERT_EQ(mr_context_open(&o, &client), MR_OK);
  mr_context* server = open_context(MR_CONTEXT_ACCEPT | MR_CONTEXT_PROGRESS_THREAD);
  mr_connection connection = 0;
  ASSERT_EQ(connect_to(client, mr_context_port(server), kBound, true, &connection), MR_OK);
  mr_connection_info info;
  std::memset(&info, 1, sizeof info);
  info.size = sizeof info;
  ASSERT_EQ(mr_connection_get(client, connection, &info), MR_OK);
  EXPECT_STREQ(info.suite, "");
  EXPECT_STREQ(info.peer_key_name, "");
  mr_context_close(client);
  mr_context_close(server);
}

}  // namespace
}  // namespace metaroce::api::native
