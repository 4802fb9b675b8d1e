#include "base/deadline_heap.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "base/rng.h"

namespace metaroce {
namespace {

Time at(int64_t ns) { return Time{ns}; }

TEST(DeadlineHeap, GivesTheEarliest) {
  DeadlineHeap heap(8);
  EXPECT_TRUE(heap.empty());
  EXPECT_EQ(heap.earliest(), kNever);
  heap.set(3, at(30));
  heap.set(1, at(10));
  heap.set(2, at(20));
  EXPECT_EQ(heap.earliest(), at(10));
  EXPECT_EQ(heap.earliest_index(), 1u);
  heap.set(1, at(40));  // later
  EXPECT_EQ(heap.earliest_index(), 2u);
  heap.set(3, at(5));  // earlier
  EXPECT_EQ(heap.earliest_index(), 3u);
  heap.set(3, kNever);
  EXPECT_EQ(heap.earliest_index(), 2u);
}

TEST(DeadlineHeap, NeverRemovesAndMayBeSetTwice) {
  DeadlineHeap heap(4);
  heap.set(0, kNever);
  EXPECT_TRUE(heap.empty());
  heap.set(0, at(1));
  heap.set(0, kNever);
  heap.set(0, kNever);
  EXPECT_TRUE(heap.empty());
  heap.set(0, at(2));
  EXPECT_EQ(heap.earliest(), at(2));
}

TEST(DeadlineHeap, EqualTimesComeByIndexWhateverTheOrder) {
  for (const auto& order : {std::array<uint32_t, 4>{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}}) {
    DeadlineHeap heap(4);
    for (const uint32_t i : order) heap.set(i, at(7));
    for (uint32_t i = 0; i < 4; ++i) {
      EXPECT_EQ(heap.earliest_index(), i);
      heap.set(i, kNever);
    }
  }
}

TEST(DeadlineHeap, AgreesWithASortedMap) {
  constexpr uint32_t kCount = 64;
  DeadlineHeap heap(kCount);
  std::map<uint32_t, Time> model;
  Rng rng(11);
  for (int step = 0; step < 20'000; ++step) {
    const auto index = static_cast<uint32_t>(rng.below(kCount));
    if (rng.below(4) == 0) {
      heap.set(index, kNever);
      model.erase(index);
    } else {
      const Time t = at(static_cast<int64_t>(rng.below(100)));
      heap.set(index, t);
      model[index] = t;
    }
    Time best = kNever;
    uint32_t who = 0;
    for (const auto& [i, t] : model) {
      if (t < best) {
        best = t;
        who = i;
      }
    }
    ASSERT_EQ(heap.earliest(), best);
    if (best != kNever) {
      ASSERT_EQ(heap.earliest_index(), who);
    }
  }
}

}  // namespace
}  // namespace metaroce
