// SPDX-License-Identifier: Apache-2.0
// Turns a memory budget into a SwapPlan, or says exactly why none exists and what would fit.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_PLANNER_H_
#define BLOCKSWAP_OFFLOAD_PLAN_PLANNER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "offload/plan/block_profile.h"
#include "offload/plan/swap_plan.h"

namespace blockswap::offload {

struct LinkProfile {
  double h2d_bytes_per_second = 0;  // pinned; 0: unknown, times are then not predicted
  double d2h_bytes_per_second = 0;
  double pageable_bytes_per_second = 0;
  double file_bytes_per_second = 0;  // from the checkpoint to the device; 0: unknown
  // Of each direction while the other one is busy too; 0: as fast as alone.
  double duplex_h2d_bytes_per_second = 0;
  double duplex_d2h_bytes_per_second = 0;
  absl::Duration latency = absl::ZeroDuration();
};

inline constexpr int kDefaultRingSize = 2;

struct MemoryConstraints {
  std::optional<int64_t> vram_budget_bytes;  // absent: the device's free bytes
  std::optional<int64_t> host_budget_bytes;  // absent: the host's available bytes
  std::optional<int> blocks_to_swap;         // absent: chosen from the budget
  // >= 1; clamped to the number of streamed blocks. Absent: kDefaultRingSize, or what the step model finds faster.
  std::optional<int> ring_size;
  TransferMode mode = TransferMode::kH2dOnly;
  PinPolicy pin_policy = PinPolicy::kAuto;
  Granularity granularity = Granularity::kBlock;
  Toggle activation_offload = Toggle::kAuto;
  Toggle checkpointing = Toggle::kAuto;  // on: every block is recomputed; off: none is
};

struct PlanRequest {
  ModelProfile model;
  int64_t device_free_bytes = 0;
  int64_t host_available_bytes = 0;
  int64_t lockable_bytes = 0;          // RLIMIT_MEMLOCK and what is left of it; INT64_MAX: no limit
  bool copies_need_pinned_memory = false;
  LinkProfile link;
  double compute_flops_per_second = 0;  // 0: unknown
  double other_step_seconds = 0;        // of a step outside the blocks: embedding, head, loss, optimizer
  // Whether blocks may stay in the checkpoint file and be read at each use when host memory is short.
  bool may_stream_from_file = false;
  // Whether saved block inputs may wait on the host when the device is too small for them.
  bool may_offload_inputs = false;
  int micro_batches = 1;                // of one step
  bool base_trains = false;
  MemoryConstraints constraints;
};

// Pure: same request, same plan. Errors: InvalidArgument (blocks_to_swap or ring_size out of range: names the maximum),
// FailedPrecondition (can never fit, or settings that contradict each other: needed, available, and the settings that would fit).
absl::StatusOr<SwapPlan> Plan(const PlanRequest& request);

// Evenly spaced streamed indices of one list of `count` blocks: floor((2i+1) * count / (2 * streamed)), i = 0..streamed-1
// (facts/offload.md 2.1). All are distinct for streamed <= count.
std::vector<int> EvenlySpaced(int count, int streamed);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_PLANNER_H_
