// For tests: two network namespaces and a veth cable between them, with no packet on it but those
// of the test, so that counts can be exact. Needs root.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/bpf_links.h"
#include "lab/netlink.h"

namespace metaroce::lab {

struct Datagram {
  std::vector<uint8_t> data;
  uint8_t traffic_class = 0;
};

/// An Ethernet frame as it came in, with the checksum completed where the kernel left that to
/// whoever sends it next.
struct Frame {
  std::vector<uint8_t> bytes;
  bool completed = false;
};

class TestCable {
 public:
  static constexpr uint32_t kLinks = 3, kLink = 1, kFirst = 10;
  static constexpr uint32_t kNear = kFirst + kLink, kFar = 7;  ///< indexes of the interfaces
  static constexpr uint16_t kPort = 4791;

  TestCable() = default;
  TestCable(const TestCable&) = delete;
  TestCable& operator=(const TestCable&) = delete;
  ~TestCable();

  /// The error says what could not be made.
  Expected<bool, std::string> build(int family);
  int near() const { return near_; }
  int far() const { return far_; }
  Netlink& netlink() { return *netlink_; }
  int family() const { return family_; }
  /// Bytes of an Ethernet frame with so much UDP payload.
  uint32_t frame_bytes(size_t payload) const;

  /// The near host leaves checksums to the device (as veths do), or computes them.
  void set_checksum_offload(bool on);
  /// UDP with a checksum, or (IPv4 only) without one at all.
  void set_checksum_sent(bool on);
  /// TOS or traffic class of what is sent from now on.
  void set_class(uint8_t traffic_class);
  void send(const std::vector<uint8_t>& payload) const;
  /// So many datagrams that begin with a number from 0 on.
  void send_numbered(uint32_t count, size_t bytes) const;
  /// One call that gives the kernel many datagrams of this size, as one super-packet.
  void send_super(uint32_t count, uint16_t bytes) const;
  /// A frame of no IP.
  void send_foreign() const;
  /// Waits for `count` datagrams, and takes what there is beyond that.
  std::vector<Datagram> receive(size_t count) const;
  /// From now on frames are kept, too.
  void tap();
  std::vector<Frame> tapped(size_t count) const;

 private:
  Expected<bool, std::string> add_interfaces();
  Expected<bool, std::string> open_sockets();

  int family_ = 0;
  int near_ = -1, far_ = -1;
  int sender_ = -1, receiver_ = -1, tap_ = -1, packets_ = -1;
  std::optional<Netlink> netlink_;
};

uint32_t number_of(const Datagram& d);
/// Ones' complement sum of `bytes` and `sum`, folded.
uint16_t checksum_of(const uint8_t* bytes, size_t size, uint32_t sum = 0);

}  // namespace metaroce::lab
