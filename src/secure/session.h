// The keys of one connection: what it seals and opens, and when it goes on to the next key.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/time.h"
#include "secure/cipher.h"
#include "secure/key_schedule.h"

namespace metaroce::secure {

/// What makes the nonce of a packet, as far as the packet tells.
struct PacketName {
  bool ack = false;       ///< class 1: numbered by the ACK counter, not by a path
  uint8_t path = 0;
  uint32_t sequence = 0;  ///< path sequence or ACK counter
};

enum class Opened : uint8_t {
  kYes,
  kBadTag,
  kUnknownPath,
  kTooFar,  ///< so far from the newest verified packet that no sender of ours sent it
};

class Session {
 public:
  /// `paths`: ids that either side may use; everything that is needed later is allocated here.
  Session(Suite suite, const Secret& send, const Secret& receive, uint32_t paths);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Suite suite() const { return suite_; }

  // --- sending ---
  /// The first sequence of a path that we opened (again): the count of 64 bits starts there.
  void open_send_path(uint8_t path, uint16_t generation, uint32_t start);
  /// The PHASE flag of what is sealed now.
  bool send_phase() const { return (send_generation_ & 1) != 0; }
  /// Encrypts `length` bytes from `in` to `out`; the header is final, PHASE included.
  void seal(const PacketName& name, Bytes header, const std::byte* in, size_t length,
            std::byte* out, std::byte* tag);
  /// Packets given to be sealed; counted by the engine, since sealing is the driver's matter.
  void count_sent(uint32_t packets) { sent_under_key_ += packets; }
  uint64_t sent_under_key() const { return sent_under_key_; }
  uint32_t send_generation() const { return send_generation_; }
  void update_send_key();

  // --- receiving ---
  void open_receive_path(uint8_t path, uint16_t generation, uint32_t start);
  /// Decrypts in place. `keep`: how long the key before is good after the first packet under a new
  /// one.
  Opened open(Time now, Duration keep, const PacketName& name, bool phase, Bytes header,
              std::byte* data, size_t length, const std::byte* tag);
  uint32_t receive_generation() const { return receive_generation_; }

 private:
  struct Path {
    bool open = false;
    uint16_t generation = 0;
    uint64_t newest = 0;  ///< of what was sealed or verified
  };
  struct Key {
    Key(Suite suite, Cipher::Direction direction) : cipher(suite, direction) {}
    Cipher cipher;
    Nonce iv{};
  };
  void install(Key& key, const Secret& traffic);
  static Nonce nonce(const Key& key, const PacketName& name, uint16_t generation, uint64_t counter);
  bool try_open(Key& key, const Nonce& nonce, Bytes header, std::byte* data, size_t length,
                const std::byte* tag, bool last_try);
  void advance_receive_key(Time now, Duration keep);

  const Suite suite_;
  Secret send_secret_;
  Secret receive_secret_;  ///< of receive_next_
  std::unique_ptr<Key> send_;
  std::unique_ptr<Key> receive_before_;
  std::unique_ptr<Key> receive_;
  std::unique_ptr<Key> receive_next_;
  std::vector<Path> send_paths_;
  std::vector<Path> receive_paths_;
  Path send_acks_;
  Path receive_acks_;
  uint64_t sent_under_key_ = 0;
  uint32_t send_generation_ = 0;
  uint32_t receive_generation_ = 0;
  Time before_until_{-(1ll << 60)};  ///< receive_before_ is good until then
};

}  // namespace metaroce::secure
