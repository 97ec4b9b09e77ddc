// SPDX-License-Identifier: Apache-2.0
// The oracle of block swapping: keeps every block in plain memory, and follows a schedule one visit
// at a time by hand.
#ifndef BLOCKSWAP_TESTS_FAKES_NAIVE_SWAPPER_H_
#define BLOCKSWAP_TESTS_FAKES_NAIVE_SWAPPER_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "offload/plan/swap_plan.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {

// What a trainer must see, whatever the plan: the bytes of each block, with its own writes and
// nothing else.
class NaiveSwapper {
 public:
  explicit NaiveSwapper(const FakeModel& model) : contents_(model.contents) {}

  const std::vector<std::byte>& Read(int block) const {
    return contents_[static_cast<size_t>(block)];
  }
  void Write(int block, int64_t offset, std::byte value) {
    contents_[static_cast<size_t>(block)][static_cast<size_t>(offset)] = value;
  }

 private:
  std::vector<std::vector<std::byte>> contents_;
};

// One cycle of `schedule` executed by hand from its initial blocks.
struct NaiveCycle {
  int loads = 0;
  int absent = 0;      // visits whose streamed block was in no slot
  int impossible = 0;  // transfers whose `evict` was in no slot or whose `load` was in one already
  bool overflowed = false;     // more blocks than slots
  std::set<int> final_blocks;  // in slots at the end
};
NaiveCycle RunByHand(const SwapPlan& plan, const TransferSchedule& schedule);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_TESTS_FAKES_NAIVE_SWAPPER_H_
