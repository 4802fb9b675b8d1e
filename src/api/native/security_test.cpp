// Keys through the C interface.
#include <filesystem>

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

}  // namespace
}  // namespace metaroce::api::native
