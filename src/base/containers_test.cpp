// FlatMap, Slab and Ring against containers of the standard library.
#include <gtest/gtest.h>
#ifdef MR_HAVE_RAPIDCHECK
#include <rapidcheck/gtest.h>
#endif

#include <deque>
#include <map>
#include <set>

#include "base/flat_map.h"
#include "base/lazy_slab.h"
#include "base/ring.h"
#include "base/rng.h"
#include "base/slab.h"

namespace metaroce {
namespace {

TEST(FlatMap, IsFullAtItsCapacityAndNotBefore) {
  FlatMap map(5);
  for (uint64_t k = 0; k < 5; ++k) EXPECT_TRUE(map.insert(k, static_cast<uint32_t>(k)));
  EXPECT_TRUE(map.full());
  EXPECT_FALSE(map.insert(99, 1));
  EXPECT_EQ(map.find(99), FlatMap::kNone);
  EXPECT_TRUE(map.erase(3));
  EXPECT_TRUE(map.insert(99, 1));
}

// Keys from a small set, so that they collide, vanish and return.
bool flat_map_is_a_map(uint64_t seed, uint32_t capacity) {
  Rng rng(seed);
  FlatMap map(capacity);
  std::map<uint64_t, uint32_t> model;
  for (int step = 0; step < 400; ++step) {
    const uint64_t key = rng.below(capacity * 2) << (rng.below(2) * 32);
    const auto found = model.find(key);
    if (map.find(key) != (found == model.end() ? FlatMap::kNone : found->second)) return false;
    if (rng.below(2) == 0) {
      if (map.erase(key) != (model.erase(key) == 1)) return false;
    } else if (found == model.end()) {
      const uint32_t value = rng.next32() >> 1;
      const bool fits = model.size() < capacity;
      if (map.insert(key, value) != fits) return false;
      if (fits) model[key] = value;
    }
    if (map.size() != model.size()) return false;
  }
  for (const auto& [key, value] : model) {
    if (map.find(key) != value) return false;
  }
  return true;
}

bool slab_is_a_set_of_objects(uint64_t seed, uint32_t capacity) {
  Rng rng(seed);
  Slab<uint64_t> slab(capacity);
  std::map<uint32_t, uint64_t> model;
  for (int step = 0; step < 400; ++step) {
    if (rng.below(2) == 0) {
      const uint32_t i = slab.allocate();
      if ((i == Slab<uint64_t>::kNone) != (model.size() == capacity)) return false;
      if (i == Slab<uint64_t>::kNone) continue;
      if (model.count(i) != 0 || slab[i] != 0) return false;  // handed out twice, or not fresh
      slab[i] = model[i] = rng.next();
    } else if (!model.empty()) {
      auto it = model.begin();
      std::advance(it, static_cast<ptrdiff_t>(rng.below(model.size())));
      if (slab[it->first] != it->second) return false;
      slab.release(it->first);
      if (slab.is_used(it->first)) return false;
      model.erase(it);
    }
    if (slab.used() != model.size() || slab.available() != capacity - model.size()) return false;
  }
  return true;
}

bool ring_is_a_queue(uint64_t seed, uint32_t capacity) {
  Rng rng(seed);
  Ring<uint32_t> ring(capacity);
  std::deque<uint32_t> model;
  if (ring.capacity() < capacity) return false;
  for (int step = 0; step < 400; ++step) {
    if (rng.below(2) == 0) {
      const uint32_t v = rng.next32();
      const bool fits = model.size() < ring.capacity();
      if (ring.full() == fits || ring.push(v) != fits) return false;
      if (fits) model.push_back(v);
    } else if (!model.empty()) {
      if (ring.front() != model.front()) return false;
      ring.pop();
      model.pop_front();
    }
    if (ring.size() != model.size() || ring.empty() != model.empty()) return false;
    for (uint32_t i = 0; i < model.size(); ++i) {
      if (ring.at(i) != model[i]) return false;
    }
  }
  ring.clear();
  return ring.empty();
}

#ifdef MR_HAVE_RAPIDCHECK

RC_GTEST_PROP(FlatMap, BehavesLikeAMap, (uint64_t seed)) {
  RC_ASSERT(flat_map_is_a_map(seed, *rc::gen::inRange<uint32_t>(1, 64)));
}
RC_GTEST_PROP(Slab, BehavesLikeASetOfObjects, (uint64_t seed)) {
  RC_ASSERT(slab_is_a_set_of_objects(seed, *rc::gen::inRange<uint32_t>(0, 40)));
}
RC_GTEST_PROP(Ring, BehavesLikeAQueue, (uint64_t seed)) {
  RC_ASSERT(ring_is_a_queue(seed, *rc::gen::inRange<uint32_t>(1, 40)));
}

#endif

TEST(LazySlab, TouchesOnlyWhatWasInUseAtOnceAndTakesTheLastGivenFirst) {
  LazySlab<std::pair<int, int>> slab;
  slab.promise(5000);
  std::set<std::pair<int, int>*> held;
  for (int i = 0; i < 3000; ++i) held.insert(slab.take(i, 2 * i));
  EXPECT_EQ(held.size(), 3000u);
  for (const auto* item : held) EXPECT_EQ(item->second, 2 * item->first);
  auto* last = *held.begin();
  slab.give(last);
  EXPECT_EQ(slab.take(7, 14), last);
  for (auto* item : held) slab.give(item);
  for (int i = 0; i < 100; ++i) slab.give(slab.take(i, i));
  EXPECT_EQ(slab.used(), 0u);
  EXPECT_EQ(slab.touched(), 3000u);
}

TEST(LazySlabDeathTest, TakingMoreThanWasPromisedIsAnAssertion) {
  LazySlab<int> slab;
  EXPECT_DEATH(slab.take(1), "promised_");
  slab.promise(2);
  slab.give(slab.take(1));
  slab.release_promise(2);
  EXPECT_DEATH(slab.take(1), "promised_");
}

TEST(SlabDeathTest, ReleasingTwiceIsAnAssertion) {
  Slab<int> slab(2);
  const uint32_t i = slab.allocate();
  slab.release(i);
  EXPECT_DEATH(slab.release(i), "kUsed");
  EXPECT_DEATH(slab.release(7), "kUsed");
}

}  // namespace
}  // namespace metaroce
