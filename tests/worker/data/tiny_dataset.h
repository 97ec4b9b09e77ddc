// SPDX-License-Identifier: Apache-2.0
// Writes musubi caches, images (empty files: only their names count) and captions for tests.
#ifndef BLOCKSWAP_TESTS_WORKER_DATA_TINY_DATASET_H_
#define BLOCKSWAP_TESTS_WORKER_DATA_TINY_DATASET_H_

#include <map>
#include <string>
#include <vector>

#include "worker/family/family.h"

namespace blockswap::worker {

// A model description that needs no checkpoint: 2 latent channels, 24 text features.
ModelDescription TinyModelDescription();

struct TinyLatent {
  int64_t width = 64, height = 64;  // of the name
  int64_t tensor_width = 8, tensor_height = 8;
  int64_t channels = 2, frames = 1;
  std::map<std::string, std::string> metadata;  // over the right values
  std::vector<std::vector<int64_t>> controls;   // shapes of control latents
  std::string key;                              // in place of the right one
};

void WriteLatentCache(const std::string& directory, const std::string& item,
                      const TinyLatent& latent = {});
struct TinyText {
  std::string caption = "a caption";
  int64_t tokens = 5, features = 24;
  std::map<std::string, std::string> metadata;
  std::string key = "varlen_vl_embed_float32";
};
void WriteTextCacheFile(const std::string& path, const TinyText& text = {});
void WriteTextCache(const std::string& directory, const std::string& item,
                    const TinyText& text = {});
// An empty image with its caption beside it.
void WriteImage(const std::string& directory, const std::string& item,
                const std::string& caption = "a caption");

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_TESTS_WORKER_DATA_TINY_DATASET_H_
