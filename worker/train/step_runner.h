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
#include "absl/time/time.h"
#include "worker/config/job_inspection.h"
#include "worker/train/block_walk.h"
#include "worker/train/micro_batch.h"
#include "worker/train/step_position.h"
#include "worker/train/trainable.h"

namespace blockswap::worker {

enum class NumericFault { kNone, kLoss, kGradient };

struct StepOutcome {
  StepPosition position;
  double loss = 0;           // mean over the micro-batches
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  int64_t samples = 0;
  int64_t tokens = 0;  // image and text, of all samples
  NumericFault fault = NumericFault::kNone;
  std::vector<std::string>
      faulty_items;  // whose loss is not finite, or everything the gradient came from
  std::map<std::string, double> phase_seconds;  // data, forward, backward, optimizer
  absl::Duration compute;  // from the first block to the gradient's norm, no data
};

// Thread safety: the trainer's thread. Errors: those of the walk; LibTorch's exceptions are
// contained.
class StepRunner {
 public:
  // All outlive the runner.
  StepRunner(const JobInspection* job, const WalkContext& context, Trainable* trained);

  // Gradients of step `step` (from 1); parameters stay as they are. `stop` is asked between blocks
  // and ends the step at once.
  absl::StatusOr<StepOutcome> ComputeGradients(int64_t step,
                                               const std::function<absl::Status()>& stop);

  // What the step begins with: real data for a trial before training.
  absl::StatusOr<MicroBatch> FirstMicroBatch(int64_t step);

  // Clips and updates. REQUIRES: `outcome` is of the last ComputeGradients and has no fault.
  absl::Status Update(StepOutcome* outcome);

 private:
  // Batches [first, first + count) of the step: loaded, then walked block-major.
  absl::Status RunMicroBatches(int64_t first, int64_t count, int64_t step,
                               const std::function<absl::Status()>& stop, StepOutcome* outcome);
  StepOutcome StartStep(int64_t step) const;
  absl::StatusOr<MicroBatch> Load(int64_t batch, int64_t step, int64_t first_sample,
                                  StepOutcome* outcome);
  std::vector<std::string> ItemsOfStep(const StepPosition& position) const;

  const JobInspection* job_;
  const WalkContext context_;
  Trainable* trained_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_STEP_RUNNER_H_
