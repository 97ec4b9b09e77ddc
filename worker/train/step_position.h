// SPDX-License-Identifier: Apache-2.0
// Which batches an optimizer step reads: the arithmetic between steps, micro-batches and epochs.
#ifndef BLOCKSWAP_WORKER_TRAIN_STEP_POSITION_H_
#define BLOCKSWAP_WORKER_TRAIN_STEP_POSITION_H_

#include <cstdint>

namespace blockswap::worker {

struct StepPosition {
  int64_t epoch = 1;        // from 1
  int64_t first_batch = 0;  // counted from the start of training, across epochs
  int64_t num_batches = 1;  // micro-batches of this step
};

// An epoch is ceil(batches / accumulation) steps; its last step takes what is left, so no step
// mixes two epochs. A pure function of the step: a resumed run needs no loader state, and no
// boundary can be skipped. REQUIRES: all at least 1.
StepPosition PositionOfStep(int64_t step, int64_t batches_per_epoch, int64_t accumulation);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_STEP_POSITION_H_
