// SPDX-License-Identifier: Apache-2.0
// Latents to tokens and back: each token is a 2x2 patch of cells, its features ordered channel,
// row, column.
//
// Shape legend: B batch, C latent channels, H W latent cells, S tokens, F features of a token (4
// C).
#ifndef BLOCKSWAP_WORKER_OBJECTIVE_PACKING_H_
#define BLOCKSWAP_WORKER_OBJECTIVE_PACKING_H_

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace blockswap::worker {

// REQUIRES: H and W are multiples of `patch`.
at::Tensor PackLatents(const at::Tensor& latents_BCHW, int64_t patch);

// The inverse of PackLatents for a latent of `height` x `width` cells.
at::Tensor UnpackLatents(const at::Tensor& tokens_BSF, int64_t height, int64_t width,
                         int64_t patch);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_OBJECTIVE_PACKING_H_
