// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step_position.h"

#include <algorithm>

namespace blockswap::worker {

StepPosition PositionOfStep(int64_t step, int64_t batches_per_epoch, int64_t accumulation) {
  const int64_t steps_per_epoch = (batches_per_epoch + accumulation - 1) / accumulation;
  const int64_t epoch = (step - 1) / steps_per_epoch;
  const int64_t first_in_epoch = ((step - 1) % steps_per_epoch) * accumulation;
  StepPosition position;
  position.epoch = epoch + 1;
  position.first_batch = epoch * batches_per_epoch + first_in_epoch;
  position.num_batches = std::min(accumulation, batches_per_epoch - first_in_epoch);
  return position;
}

}  // namespace blockswap::worker
