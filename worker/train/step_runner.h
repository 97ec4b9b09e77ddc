// SPDX-License-Identifier: Apache-2.0
// One optimizer step: its micro-batches through the block walk, then clipping and the update.
#ifndef BLOCKSWAP_WORKER_TRAIN_STEP_RUNNER_H_
#define BLOCKSWAP_WORKER_TRAIN_STEP_RUNNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/config/job_inspection.h"
#include "worker/optimizer/adamw.h"
#include "worker/train/block_walk.h"
#include "worker/train/micro_batch.h"
#include "worker/train/step_position.h"

namespace blockswap::worker {

enum class NumericFault { kNone, kLoss, kGradient };

struct StepOutcome {
  StepPosition position;
  double loss = 0;           // mean over the micro-batches
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  int64_t samples = 0;
  NumericFault fault = NumericFault::kNone;
  std::vector<std::string>
      faulty_items;  // whose loss is not finite, or everything the gradient came from
  std::map<std::string, double> phase_seconds;  // data, forward, backward, optimizer
};

// Thread safety: the trainer's thread. Errors: those of the walk; LibTorch's exceptions are
// contained.
class StepRunner {
 public:
  // All outlive the runner.
  StepRunner(const JobInspection* job, const WalkContext& context, AdamW* optimizer);

  // Gradients of step `step` (from 1); parameters stay as they are. `stop` is asked between blocks
  // and ends the step at once.
  absl::StatusOr<StepOutcome> ComputeGradients(int64_t step,
                                               const std::function<absl::Status()>& stop);

  // Clips and updates. REQUIRES: `outcome` is of the last ComputeGradients and has no fault.
  absl::Status Update(StepOutcome* outcome);

 private:
  absl::Status RunMicroBatch(const Batch& batch, int64_t step, double weight,
                             const std::function<absl::Status()>& stop, StepOutcome* outcome);

  const JobInspection* job_;
  const WalkContext context_;
  AdamW* optimizer_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_STEP_RUNNER_H_
