#include "lab/netlink.h"

#include <libmnl/libmnl.h>
#include <linux/gen_stats.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "lab/netns.h"
#include "lab/test_cable.h"

namespace metaroce::lab {
namespace {

/// The root queue of an interface, as the kernel describes it.
struct Queue {
  std::string kind;
  tc_tbf_qopt options{};
  uint64_t rate64 = 0;
  gnet_stats_basic sent{};
  gnet_stats_queue queue{};
};

using OnAttribute = std::function<void(const nlattr*)>;

int call(const nlattr* a, void* data) {
  (*static_cast<OnAttribute*>(data))(a);
  return MNL_CB_OK;
}

template <class T>
void copy(const nlattr* a, T& to) {
  std::memcpy(&to, mnl_attr_get_payload(a),
              std::min<size_t>(sizeof to, mnl_attr_get_payload_len(a)));
}

void read_nested(const nlattr* nest, OnAttribute on) { mnl_attr_parse_nested(nest, call, &on); }

void read_queue(const nlmsghdr* h, Queue& q) {
  OnAttribute on = [&q](const nlattr* a) {
    switch (mnl_attr_get_type(a)) {
      case TCA_KIND:
        q.kind = mnl_attr_get_str(a);
        break;
      case TCA_OPTIONS:
        if (q.kind != "tbf") break;
        read_nested(a, [&q](const nlattr* o) {
          if (mnl_attr_get_type(o) == TCA_TBF_PARMS) copy(o, q.options);
          if (mnl_attr_get_type(o) == TCA_TBF_RATE64) copy(o, q.rate64);
        });
        break;
      case TCA_STATS2:
        read_nested(a, [&q](const nlattr* s) {
          if (mnl_attr_get_type(s) == TCA_STATS_BASIC) copy(s, q.sent);
          if (mnl_attr_get_type(s) == TCA_STATS_QUEUE) copy(s, q.queue);
        });
        break;
      default:
        break;
    }
  };
  mnl_attr_parse(h, sizeof(tcmsg), call, &on);
}

class Tbf : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    const auto built = cable_.build(AF_INET);
    ASSERT_TRUE(built) << built.error();
    const InNetns inside(cable_.near());
    ASSERT_EQ(inside.error(), 0);
    socket_ = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    ASSERT_NE(socket_, nullptr);
    ASSERT_EQ(mnl_socket_bind(socket_, 0, MNL_SOCKET_AUTOPID), 0);
  }
  void TearDown() override {
    if (socket_ != nullptr) mnl_socket_close(socket_);
  }

  void flush() {
    const auto done = cable_.netlink().flush();
    ASSERT_TRUE(done) << done.error();
  }
  Queue root_queue() {
    alignas(nlmsghdr) char buffer[32768];
    nlmsghdr* h = mnl_nlmsg_put_header(buffer);
    h->nlmsg_type = RTM_GETQDISC;
    h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    auto* t = static_cast<tcmsg*>(mnl_nlmsg_put_extra_header(h, sizeof(tcmsg)));
    t->tcm_ifindex = static_cast<int>(TestCable::kNear);
    Queue out;
    EXPECT_GT(mnl_socket_sendto(socket_, h, h->nlmsg_len), 0);
    const auto take = [](const nlmsghdr* message, void* data) {
      const auto* m = static_cast<const tcmsg*>(mnl_nlmsg_get_payload(message));
      if (m->tcm_ifindex == static_cast<int>(TestCable::kNear) && m->tcm_parent == TC_H_ROOT) {
        read_queue(message, *static_cast<Queue*>(data));
      }
      return MNL_CB_OK;
    };
    for (int more = MNL_CB_OK; more > MNL_CB_STOP;) {
      const ssize_t n = mnl_socket_recvfrom(socket_, buffer, sizeof buffer);
      more = n <= 0 ? -1 : mnl_cb_run(buffer, static_cast<size_t>(n), 0, 0, take, &out);
      EXPECT_GE(more, 0) << std::strerror(errno);
    }
    return out;
  }

  TestCable cable_;
  mnl_socket* socket_ = nullptr;
};

TEST_F(Tbf, HasTheRateAndTheLengthItWasGiven) {
  EXPECT_EQ(root_queue().kind, "noqueue");
  cable_.netlink().set_tbf(TestCable::kNear, 100000000, 300000, 12000);
  flush();
  Queue q = root_queue();
  EXPECT_EQ(q.kind, "tbf");
  EXPECT_EQ(q.options.rate.rate, 12500000u);
  EXPECT_EQ(q.options.limit, 300000u);
  // The bucket, in ticks of 64 ns: 12,000 bytes take 960 us.
  EXPECT_EQ(q.options.buffer, 960000u / 64);
  EXPECT_EQ(q.rate64, 0u);

  // Replaced at run time, and by a rate that is too high for the old field.
  cable_.netlink().set_tbf(TestCable::kNear, 100000000000, 4000000, 200000);
  flush();
  q = root_queue();
  EXPECT_EQ(q.rate64, 12500000000u);
  EXPECT_EQ(q.options.limit, 4000000u);

  cable_.netlink().remove_qdisc(TestCable::kNear);
  flush();
  EXPECT_EQ(root_queue().kind, "noqueue");
  cable_.netlink().remove_qdisc(TestCable::kNear);
  const auto again = cable_.netlink().flush();
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().find("queue of interface 11 away"), std::string::npos) << again.error();
}

TEST_F(Tbf, HoldsBackAndDropsWhatIsTooMuch) {
  // 8 bytes a second: beyond the bucket nothing leaves during a test.
  const uint32_t frame = cable_.frame_bytes(1000);
  cable_.netlink().set_tbf(TestCable::kNear, 64, 10 * frame, 3 * frame);
  flush();
  cable_.send_numbered(100, 1000);
  Queue q = root_queue();
  EXPECT_EQ(q.sent.packets, 3u);
  EXPECT_EQ(q.queue.qlen, 10u);
  EXPECT_EQ(q.queue.backlog, 10 * frame);
  EXPECT_EQ(q.queue.drops, 87u);
  EXPECT_EQ(cable_.receive(3).size(), 3u);

  // A higher rate lets go what waited, as soon as the queue is looked at: its timer is still that
  // of the old rate, but a packet that comes looks, too (and finds the queue full).
  cable_.netlink().set_tbf(TestCable::kNear, 1000000000, 10 * frame, 3 * frame);
  flush();
  cable_.send_numbered(1, 1000);
  EXPECT_EQ(cable_.receive(10).size(), 10u);
  EXPECT_EQ(root_queue().queue.drops, 88u);
}

TEST_F(Tbf, StandsBehindTheProgramAtTheEgress) {
  auto links = BpfLinks::load(TestCable::kLinks, TestCable::kFirst);
  if (!links) GTEST_SKIP() << links.error();
  ASSERT_TRUE((*links)->attach(TestCable::kLink, cable_.near()));
  const uint32_t frame = cable_.frame_bytes(1000);
  LinkRules rules;
  rules.rate_bps = 64;
  rules.queue_bytes = 8 * frame;
  ASSERT_TRUE((*links)->set(TestCable::kLink, rules, 1));
  cable_.netlink().set_tbf(TestCable::kNear, 64, 10 * frame, 3 * frame);
  flush();
  cable_.send_numbered(100, 1000);
  // The shorter queue in front of it takes the drops.
  const Queue q = root_queue();
  EXPECT_EQ((*links)->counts(TestCable::kLink).full, 92u);
  EXPECT_EQ(q.sent.packets, 3u);
  EXPECT_EQ(q.queue.qlen, 5u);
  EXPECT_EQ(q.queue.drops, 0u);
}

TEST_F(Tbf, AnInterfaceIsRemovedWithItsPeer) {
  cable_.netlink().remove(TestCable::kNear);
  flush();
  const auto far = [&] {
    auto link = Netlink::open(cable_.far());
    return link->interfaces();
  }();
  const auto near = cable_.netlink().interfaces();
  ASSERT_TRUE(near && far);
  EXPECT_EQ(near->size(), 1u);  // the loopback
  EXPECT_EQ(far->size(), 1u);
  cable_.netlink().remove(TestCable::kNear);
  const auto again = cable_.netlink().flush();
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().find("interface 11 away"), std::string::npos) << again.error();
}

}  // namespace
}  // namespace metaroce::lab
