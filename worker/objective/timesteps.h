// SPDX-License-Identifier: Apache-2.0
// Noise levels of flow matching: 0 is the clean latent, 1 is pure noise (formulas:
// facts/musubi.md 4.2).
#ifndef BLOCKSWAP_WORKER_OBJECTIVE_TIMESTEPS_H_
#define BLOCKSWAP_WORKER_OBJECTIVE_TIMESTEPS_H_

#include <cstdint>

#include "worker/config/train_config.h"

namespace blockswap::worker {

// Moves a noise level towards 1 for shift > 1: s t / (1 + (s - 1) t). Keeps 0 and 1 in place.
double ShiftTime(double time, double shift);

// Qwen-Image's shift for a latent of the given size: e^mu, mu on the line through (256 tokens, 0.5)
// and (8192 tokens, 0.9).
double QwenShift(int64_t latent_height, int64_t latent_width);

// The random draws of one sample. Only the one that the sampling needs is read.
struct TimeDraw {
  double uniform = 0;  // in [0, 1)
  double normal = 0;
};

// The noise level for one sample of a latent of the given size, within [min_timestep, max_timestep]
// / 1000.
double SampleTime(const TrainingConfig& config, const TimeDraw& draw, int64_t latent_height,
                  int64_t latent_width);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_OBJECTIVE_TIMESTEPS_H_
