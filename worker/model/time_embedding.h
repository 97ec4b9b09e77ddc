// SPDX-License-Identifier: Apache-2.0
// The sinusoid of a diffusion time, kept in fp32 until it enters the network.
#ifndef BLOCKSWAP_WORKER_MODEL_TIME_EMBEDDING_H_
#define BLOCKSWAP_WORKER_MODEL_TIME_EMBEDDING_H_

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace blockswap::worker {

// [cos a, sin a] with a = (t * f_k) * multiplier, f_k = exp(-ln(10000) k / half), k = 0..half-1,
// half = width / 2; fp32 [N, width]. The multiplier comes last: arguments reach 1000, so another
// order changes fp32 outputs by 2e-4.
at::Tensor Sinusoid(const at::Tensor& time_N, int64_t width, double multiplier);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_TIME_EMBEDDING_H_
