// SPDX-License-Identifier: Apache-2.0
// Reads a batch's cached latents and text embeddings into host tensors.
//
// Shape legend: B batch, C latent channels, H W latent cells, T text tokens, J text features.
#ifndef BLOCKSWAP_WORKER_TRAIN_BATCH_LOADER_H_
#define BLOCKSWAP_WORKER_TRAIN_BATCH_LOADER_H_

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace blockswap::worker {

struct LoadedBatch {
  at::Tensor latents_BCHW;         // fp32, one frame
  at::Tensor text_BTJ;             // fp32, padded with zeros to the longest of the batch
  at::Tensor text_mask_BT;         // int64; undefined when nothing is padded
  std::vector<std::string> names;  // of the items, for messages
};

// Opens the cache files anew: a run over any number of items holds no descriptors. DataLoss naming
// the file when one is not what the index saw.
absl::StatusOr<LoadedBatch> LoadBatch(const Dataset& dataset, const Batch& batch);

// One text embedding [1, T, J] in fp32.
absl::StatusOr<at::Tensor> LoadText(const std::string& path, const std::string& key,
                                    int64_t tokens);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_BATCH_LOADER_H_
