// SPDX-License-Identifier: Apache-2.0
// 8-bit RGB pictures in memory: drawn from latents that are pixels already, put side by side,
// written as PNG.
#ifndef BLOCKSWAP_WORKER_SAMPLER_PICTURE_H_
#define BLOCKSWAP_WORKER_SAMPLER_PICTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"

namespace blockswap::worker {

struct Picture {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // row major, 3 bytes a pixel
};

// True for latents of one (grey) or three (RGB) channels, whose values in [-1, 1] are brightness.
// Others need a VAE.
bool HasPixelDecoder(int64_t channels);

// Every latent cell becomes `scale` x `scale` pixels. REQUIRES: HasPixelDecoder(C), fp32 on the
// host.
Picture DrawLatent(const at::Tensor& latent_CHW, int64_t scale);

// Rows of pictures on a light ground with a margin between; cells are as large as the largest
// picture.
Picture ArrangeSheet(const std::vector<std::vector<Picture>>& rows);

// Atomically; ResourceExhausted for a full disk.
absl::Status WritePng(const Picture& picture, const std::string& path);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_SAMPLER_PICTURE_H_
