// SPDX-License-Identifier: Apache-2.0
// RMS norm as the text encoder's output enters the model.
#ifndef BLOCKSWAP_WORKER_MODEL_NORMS_H_
#define BLOCKSWAP_WORKER_MODEL_NORMS_H_

#include <ATen/core/Tensor.h>

namespace blockswap::worker {

// x * rsqrt(mean(x^2) + eps) * weight over the last dimension, in fp32, then rounded to x's type
// (order B of facts/architectures.md 2.1). Not recorded.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);
// Gradient of its weight for the gradient of its result, fp32.
at::Tensor RmsNormWeightGradient(const at::Tensor& grad, const at::Tensor& x, double eps);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_NORMS_H_
