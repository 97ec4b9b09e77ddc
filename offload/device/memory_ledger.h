// SPDX-License-Identifier: Apache-2.0
// Counts device bytes by purpose against a budget, so that "how much VRAM and for what" always has an exact answer.
#ifndef BLOCKSWAP_OFFLOAD_DEVICE_MEMORY_LEDGER_H_
#define BLOCKSWAP_OFFLOAD_DEVICE_MEMORY_LEDGER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "offload/base/mutex.h"

namespace blockswap::offload {

// What device memory is spent on. kOther is what the framework allocates without saying why (activations mostly).
enum class MemoryTag { kRing, kResidentBlocks, kEdgeWeights, kAdapter, kOptimizer, kActivations, kOther };
inline constexpr int kNumMemoryTags = 7;
absl::string_view MemoryTagName(MemoryTag tag);  // "ring", "resident_blocks", ...

struct MemorySnapshot {
  int64_t budget_bytes = 0;                            // 0: no limit
  std::array<int64_t, kNumMemoryTags> current_bytes{};  // indexed by MemoryTag
  std::array<int64_t, kNumMemoryTags> peak_bytes{};     // peak of each tag by itself
  int64_t total_bytes = 0;                              // sum of current_bytes
  int64_t total_peak_bytes = 0;                         // peak of the sum
};

// Raises the peaks of `snapshot` to those of an earlier one, taken before the peaks were reset.
void RaisePeaks(const MemorySnapshot& earlier, MemorySnapshot* snapshot);

// Thread safety: safe. Errors: ResourceExhausted naming tag, asked, in use and budget; nothing is charged then.
class MemoryLedger {
 public:
  explicit MemoryLedger(int64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  absl::Status Charge(MemoryTag tag, int64_t bytes);
  // REQUIRES: at least `bytes` are charged to `tag`.
  void Release(MemoryTag tag, int64_t bytes);
  void SetBudget(int64_t budget_bytes);
  // Called at the start of every Charge, which it may make fail by lowering the budget: how tests take memory away in the
  // middle of a step. REQUIRES: set before anything is charged.
  void SetBeforeCharge(std::function<void(MemoryLedger&)> hook) { before_charge_ = std::move(hook); }
  void ResetPeaks();
  MemorySnapshot Snapshot() const;

 private:
  std::function<void(MemoryLedger&)> before_charge_;  // constant once set
  mutable base::Mutex mutex_;
  int64_t budget_bytes_ ABSL_GUARDED_BY(mutex_);
  MemorySnapshot state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_DEVICE_MEMORY_LEDGER_H_
