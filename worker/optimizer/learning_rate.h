// SPDX-License-Identifier: Apache-2.0
// Learning rate of each optimizer step: linear warm-up, then constant or cosine (the formulas of
// transformers' schedules).
#ifndef BLOCKSWAP_WORKER_OPTIMIZER_LEARNING_RATE_H_
#define BLOCKSWAP_WORKER_OPTIMIZER_LEARNING_RATE_H_

#include <cstdint>

#include "worker/config/train_config.h"

namespace blockswap::worker {

// Rate of optimizer step `step` (from 1) of `total_steps`. A pure function of the step, so a
// resumed run continues exactly. As there, the first warm-up step has rate 0 and cosine reaches its
// minimum one step after the last.
double LearningRateAt(const TrainingConfig& config, int64_t step, int64_t total_steps);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_OPTIMIZER_LEARNING_RATE_H_
