// SPDX-License-Identifier: Apache-2.0
// Draws a latent from the model as it is now: Euler steps along the flow, through the same ring as
// training.
#ifndef BLOCKSWAP_WORKER_SAMPLER_FLOW_SAMPLER_H_
#define BLOCKSWAP_WORKER_SAMPLER_FLOW_SAMPLER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "worker/config/train_config.h"
#include "worker/data/dataset.h"
#include "worker/train/block_walk.h"

namespace blockswap::worker {

// Noise levels from 1 to 0, `steps` + 1 of them, moved by `shift`.
std::vector<double> SamplingTimes(int64_t steps, double shift);

// The shift of a prompt: its own, else the job's for the kind of timestep sampling.
double SamplingShift(const SamplePrompt& prompt, const TrainingConfig& training,
                     int64_t latent_height, int64_t latent_width);

// Latents [C, H, W] in fp32 on the host, one a prompt. The noise depends on the prompt's seed
// alone. Prompts of one size and number of steps go through each block together, so one upload
// serves a few; each latent has the bits that it has alone. `stop` is asked before every step.
absl::StatusOr<std::vector<at::Tensor>> SampleLatents(const WalkContext& context,
                                                      const std::vector<SamplePrompt>& prompts,
                                                      const TrainingConfig& training,
                                                      const std::function<absl::Status()>& stop);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_SAMPLER_FLOW_SAMPLER_H_
