// SPDX-License-Identifier: Apache-2.0
// Sorts the file names of a musubi cache folder: latent caches with the media size in their name,
// and text caches.
#ifndef BLOCKSWAP_WORKER_DATA_CACHE_DIRECTORY_H_
#define BLOCKSWAP_WORKER_DATA_CACHE_DIRECTORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace blockswap::worker {

struct LatentName {
  std::string path;
  int64_t width = 0, height = 0;  // of the media, as the name says
};

struct CacheDirectory {
  std::string path;
  std::map<std::string, std::vector<LatentName>>
      latents;  // by item; more than one when caches of several sizes lie there
  std::map<std::string, std::string> texts;  // item to path
  std::vector<std::string> malformed;        // latent cache names without a WxH part
  int64_t of_other_families = 0;             // caches that end in another architecture's name
  int64_t num_latents() const;
};

// `short_name`: of the architecture in file names ("qi"). {item}_{WWWW}x{HHHH}_{short}.safetensors
// and {item}_{short}_te.safetensors.
absl::StatusOr<CacheDirectory> ListCaches(const std::string& directory,
                                          const std::string& short_name);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_DATA_CACHE_DIRECTORY_H_
