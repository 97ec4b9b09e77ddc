// SPDX-License-Identifier: Apache-2.0
// Flow matching with the velocity target: what the model sees, what it should say, and how wrong it
// was.
//
// Shape legend: B batch, S tokens, F features of a token.
#ifndef BLOCKSWAP_WORKER_OBJECTIVE_FLOW_MATCHING_H_
#define BLOCKSWAP_WORKER_OBJECTIVE_FLOW_MATCHING_H_

#include <vector>

#include <ATen/core/Tensor.h>

namespace blockswap::worker {

struct NoisedTokens {
  at::Tensor noised_BSF;  // (1 - t) x0 + t eps, fp32
  at::Tensor target_BSF;  // eps - x0, fp32
  at::Tensor time_B;      // t as the model takes it, fp32
};

// musubi hands the model t * 1000 + 1 on the scale 0..1000; `musubi_offset` reproduces it.
NoisedTokens AddNoise(const at::Tensor& clean_BSF, const at::Tensor& noise_BSF,
                      const std::vector<double>& times, bool musubi_offset);

struct LossValue {
  double mean = 0;                 // over all elements, in fp32
  std::vector<double> per_sample;  // the same for each sample alone
  at::Tensor output_gradient_BSF;  // d(mean * weight)/d(output), in the output's type
};

// Mean squared error in fp32 and its gradient; `weight` scales the gradient only (1 / micro-batches
// of the step).
LossValue MeanSquaredError(const at::Tensor& output_BSF, const at::Tensor& target_BSF,
                           double weight);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_OBJECTIVE_FLOW_MATCHING_H_
