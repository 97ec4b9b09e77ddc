// SPDX-License-Identifier: Apache-2.0
// Reads what a musubi cache file says of itself, from its header alone, and checks that it fits the
// model.
#ifndef BLOCKSWAP_WORKER_DATA_CACHE_HEADERS_H_
#define BLOCKSWAP_WORKER_DATA_CACHE_HEADERS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/item_faults.h"
#include "worker/family/family.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {

// A cache that does not fit: what kind of fault it is, and what to say.
struct CacheMismatch {
  ItemFault fault = ItemFault::kUnreadable;
  std::string text;
};

struct LatentHeader {
  std::string key;
  int64_t channels = 0, frames = 0, height = 0, width = 0;  // of the tensor
  int64_t media_width = 0, media_height = 0;                // of the metadata
  std::vector<std::vector<int64_t>> control_shapes;
};

struct TextHeader {
  std::string key;
  int64_t tokens = 0;
  std::string caption;  // trimmed
};

// Either fills `header` or returns what does not fit.
std::optional<CacheMismatch> ReadLatentHeader(const std::string& path, const Family& family,
                                              const ModelDescription& model, LatentHeader* header);
std::optional<CacheMismatch> ReadTextHeader(const std::string& path, const Family& family,
                                            const ModelDescription& model, TextHeader* header);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_DATA_CACHE_HEADERS_H_
