// SPDX-License-Identifier: Apache-2.0
#include "worker/objective/packing.h"

#include <ATen/ATen.h>

namespace blockswap::worker {

at::Tensor PackLatents(const at::Tensor& latents_BCHW, int64_t patch) {
  const int64_t batch = latents_BCHW.size(0), channels = latents_BCHW.size(1);
  const int64_t rows = latents_BCHW.size(2) / patch, columns = latents_BCHW.size(3) / patch;
  return latents_BCHW.reshape({batch, channels, rows, patch, columns, patch})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({batch, rows * columns, channels * patch * patch});
}

at::Tensor UnpackLatents(const at::Tensor& tokens_BSF, int64_t height, int64_t width,
                         int64_t patch) {
  const int64_t batch = tokens_BSF.size(0), channels = tokens_BSF.size(2) / (patch * patch);
  return tokens_BSF.reshape({batch, height / patch, width / patch, channels, patch, patch})
      .permute({0, 3, 1, 4, 2, 5})
      .reshape({batch, channels, height, width});
}

}  // namespace blockswap::worker
