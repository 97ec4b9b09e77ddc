// SPDX-License-Identifier: Apache-2.0
// Every way to stream a few blocks: which ones, over slots of which sizes, and when each gives its
// slot up.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_FEW_BLOCKS_H_
#define BLOCKSWAP_OFFLOAD_PLAN_FEW_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "offload/plan/planner.h"
#include "offload/plan/schedule.h"

namespace blockswap::offload {

// The number of ways grows like nine to the power of the blocks. Models of more blocks are alike
// enough for windows over them.
inline constexpr size_t kFewBlocks = 7;

// Thread safety: none.
class FewBlocks {
 public:
  // The slots and the resident blocks share `weight_bytes` of the device; 0: no limit. `h2d`:
  // seconds to load each block, at least. All are outlived by the caller's.
  FewBlocks(const ModelProfile& model, int64_t weight_bytes, const std::vector<double>& h2d);

  // Where blocks that stay may keep their activations, less memory for weights can be faster; else
  // only slots that leave no room for another are tried.
  void TrySparing() { spares_ = true; }

  // Calls `attempt` with all ways whose loads of one step take less than `most_seconds` (asked
  // again before each), until it returns false.
  void ForEach(absl::FunctionRef<double()> most_seconds,
               absl::FunctionRef<bool(const std::vector<SlotGroup>&)> attempt);

 private:
  using Mask = unsigned;

  // Blocks of a group that give up their slots, and what their loads take.
  struct Leaving {
    double seconds = 0;
    Mask forward = 0, backward = 0;  // by rank in the group
  };

  bool IsStreamable(int block) const;
  void DivideSizes(Mask streamed);
  void CountSlots(const std::vector<std::vector<int>>& members, int64_t bytes_left,
                  std::vector<SlotGroup>& groups);
  void Leave(std::vector<SlotGroup>& groups, size_t group, double seconds);
  // Those that work, fewest seconds first.
  std::vector<Leaving> LeavingsWithin(const SlotGroup& group, double most_seconds) const;
  const std::vector<Leaving>& LeavingsOf(const SlotGroup& group);
  double Seconds(const std::vector<int>& blocks) const;
  // No way to give slots up takes less.
  double LeastSeconds(const std::vector<SlotGroup>& groups) const;
  int64_t LargestOf(const std::vector<int>& blocks) const;

  const ModelProfile& model_;
  const int64_t weight_bytes_;
  const std::vector<double>& h2d_;
  bool spares_ = false, done_ = false;
  absl::FunctionRef<double()>* most_seconds_ = nullptr;
  absl::FunctionRef<bool(const std::vector<SlotGroup>&)>* attempt_ = nullptr;
  std::map<std::pair<std::vector<int>, int>, std::vector<Leaving>> leavings_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_FEW_BLOCKS_H_
