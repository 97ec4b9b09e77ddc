// SPDX-License-Identifier: Apache-2.0
// Global gradient norm and clipping of a flat gradient buffer.
#ifndef BLOCKSWAP_WORKER_OPTIMIZER_GRADIENT_NORM_H_
#define BLOCKSWAP_WORKER_OPTIMIZER_GRADIENT_NORM_H_

#include <ATen/core/Tensor.h>

namespace blockswap::worker {

// Euclidean norm of a flat fp32 buffer; not finite exactly when an element is not. Summed in chunks
// of fixed size, so that the bits do not depend on how many threads share the work.
double GlobalNorm(const at::Tensor& flat);
// Its square, for a norm over several buffers. REQUIRES: `flat` is on the host.
double SumOfSquares(const at::Tensor& flat);

// Scales `gradients` to at most `max_norm` (0: never). `norm` is their GlobalNorm.
void ClipByNorm(const at::Tensor& gradients, double norm, double max_norm);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_OPTIMIZER_GRADIENT_NORM_H_
