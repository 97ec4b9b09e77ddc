// SPDX-License-Identifier: Apache-2.0
#include "worker/data/bucket_assignment.h"

#include <map>
#include <tuple>

namespace blockswap::worker {

std::vector<Bucket> AssignBuckets(const std::vector<ItemPlacement>& placements,
                                  std::vector<DatasetItem>* items) {
  using Key = std::tuple<int, int64_t, int64_t, int64_t, std::vector<std::vector<int64_t>>>;
  std::map<Key, std::vector<size_t>> groups;
  for (size_t i = 0; i < items->size(); ++i) {
    const ItemPlacement& placement = placements[i];
    groups[{placement.dataset, placement.width, placement.height, (*items)[i].frames,
            (*items)[i].control_shapes}]
        .push_back(i);
  }
  std::vector<Bucket> buckets;
  for (const auto& [key, members] : groups) {
    const ItemPlacement& placement = placements[members.front()];
    const DatasetItem& first = (*items)[members.front()];
    Bucket bucket;
    bucket.width = placement.width;
    bucket.height = placement.height;
    bucket.latent_width = first.width;
    bucket.latent_height = first.height;
    bucket.batch_size = placement.batch_size;
    for (int repeat = 0; repeat < placement.repeats; ++repeat) {
      for (const size_t member : members) bucket.items.push_back(static_cast<int64_t>(member));
    }
    for (const size_t member : members) {
      (*items)[member].bucket = static_cast<int>(buckets.size());
    }
    buckets.push_back(std::move(bucket));
  }
  return buckets;
}

}  // namespace blockswap::worker
