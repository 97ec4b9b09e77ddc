// SPDX-License-Identifier: Apache-2.0
// Plans of a running job: from its settings, from what the machine offers now, and from what its
// own steps have shown.
#ifndef BLOCKSWAP_WORKER_TRAIN_ELASTIC_PLANNER_H_
#define BLOCKSWAP_WORKER_TRAIN_ELASTIC_PLANNER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "offload/plan/planner.h"
#include "worker/config/job_inspection.h"

namespace blockswap::worker {

// Whether executing `right` instead of `left` would move, keep or order anything differently.
bool SamePlacement(const offload::SwapPlan& left, const offload::SwapPlan& right);

// Thread safety: the trainer's thread. Errors: the planner's refusals.
class ElasticPlanner {
 public:
  // `job` outlives the planner; its memory settings are read anew for each plan.
  explicit ElasticPlanner(const JobInspection* job) : job_(job) {}

  // What the device and the host offer this job, what it holds already included.
  Machine& machine() { return machine_; }
  const Machine& machine() const { return machine_; }

  // A peak beyond the predicted one is what later plans count with. True when it was beyond by more
  // than the prediction promises.
  bool LearnPeak(int64_t predicted_bytes, int64_t measured_bytes);
  // Later plans count with the measured speed. True when the predicted one was off by so much that
  // another plan may be better.
  bool LearnCompute(absl::Duration predicted, absl::Duration measured);
  // New settings: limits that an exhausted device has taught no longer hold.
  void ForgetLimit() {
    limit_bytes_.reset();
    relaxation_ = 0;
  }

  absl::StatusOr<offload::SwapPlan> Make() const;
  // For forward-only passes under a budget of their own.
  absl::StatusOr<offload::SwapPlan> MakeWithin(int64_t vram_budget_bytes) const;
  // A plan that needs less than `plan`, less with every try; later plans stay below it. Settings
  // that fix the number of blocks, the granularity or the offloading of activations give way, in
  // this order, when nothing else is left. The error is the planner's last refusal.
  absl::StatusOr<offload::SwapPlan> MakeSmaller(const offload::SwapPlan& plan, int tries);

 private:
  offload::PlanRequest Request() const;

  const JobInspection* job_;
  Machine machine_;
  int64_t extra_activation_bytes_ = 0;
  std::optional<int64_t> limit_bytes_;  // of a plan's device bytes
  int relaxation_ = 0;                  // how many of the user's settings had to give way
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_ELASTIC_PLANNER_H_
