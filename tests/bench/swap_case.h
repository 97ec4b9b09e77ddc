// SPDX-License-Identifier: Apache-2.0
// One row of the swap benchmark: a stack of equal blocks, a way to swap it, and the step time it
// has on the host device.
#ifndef BLOCKSWAP_TESTS_BENCH_SWAP_CASE_H_
#define BLOCKSWAP_TESTS_BENCH_SWAP_CASE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "offload/plan/swap_plan.h"

namespace blockswap::bench {

enum class Policy {
  kResident,       // nothing streams
  kOurs,           // what the planner makes of it
  kSingleSlot,     // ring of one: a copy starts when the block before has been used
  kTailPlacement,  // the last blocks stream, one block ahead, as trainers without a planner place
                   // them
  kExchange,       // the block that leaves goes back before the next comes into its place, compute
                   // waiting at each swap
  kLayer,          // one linear at a time
};
inline constexpr Policy kPolicies[] = {Policy::kResident,   Policy::kOurs,
                                       Policy::kSingleSlot, Policy::kTailPlacement,
                                       Policy::kExchange,   Policy::kLayer};
const char* PolicyName(Policy policy);  // "resident", "ours", "ring_1", "tail", "exchange", "layer"

// Equal blocks, each `forward_seconds` forward and `backward_seconds` backward (recompute
// included).
struct BlockStack {
  int blocks = 60;
  double forward_seconds = 0;
  double backward_seconds = 0;
  int linears = 4;  // of one block, equal
  int ring = 2;

  double compute_seconds() const { return blocks * (forward_seconds + backward_seconds); }
};

struct SwapCase {
  Policy policy = Policy::kResident;
  double ratio = 1;  // copies of all streamed blocks, forward and backward, over all compute
  int streamed = 0;
};

struct CaseResult {
  double step_seconds = 0;  // median
  double fastest_seconds = 0;
  double simulated_seconds = 0;  // by the step model; 0: it has no model for this
  double bound_seconds = 0;
  double of_bound = 0;                   // bound / step
  int64_t h2d_bytes = 0, d2h_bytes = 0;  // of one step
  int64_t device_weight_bytes = 0;       // peak
};

// Seconds one block takes over the link.
double CopySeconds(const BlockStack& stack, const SwapCase& row);
// No schedule is faster that has the memory of the resident blocks and the ring: the R blocks in
// slots at the turn and at the step boundary need no copy, `max(F, (S-R)c) + max(Q, (S-R)c)`.
double Bound(const BlockStack& stack, const SwapCase& row);

// The plan of a row, with its prediction. Unimplemented: this engine has no such plan.
absl::StatusOr<offload::SwapPlan> PlanCase(const BlockStack& stack, const SwapCase& row);
// Runs one warm-up step and `steps` more.
absl::StatusOr<CaseResult> RunCase(const BlockStack& stack, const SwapCase& row, int steps);

struct VisitOverhead {
  double resident_seconds = 0;  // median of Acquire and Release together
  double streamed_seconds =
      0;  // the same where the block is there and Release starts the next transfer
};
// Host time of one block visit with nothing to wait for.
absl::StatusOr<VisitOverhead> MeasureVisitOverhead(int steps);

}  // namespace blockswap::bench

#endif  // BLOCKSWAP_TESTS_BENCH_SWAP_CASE_H_
