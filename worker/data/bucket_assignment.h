// SPDX-License-Identifier: Apache-2.0
// Groups items so that every batch is uniform: same data set, same pixel size, same control
// latents.
#ifndef BLOCKSWAP_WORKER_DATA_BUCKET_ASSIGNMENT_H_
#define BLOCKSWAP_WORKER_DATA_BUCKET_ASSIGNMENT_H_

#include <vector>

#include "worker/data/dataset.h"

namespace blockswap::worker {

// Where an item belongs, before it has a bucket.
struct ItemPlacement {
  int dataset = 0;
  int64_t width = 0, height = 0;  // of the bucket, pixels
  int repeats = 1;
  int batch_size = 1;
};

// Sets DatasetItem::bucket of each item and returns the buckets, sorted by data set, size, frames
// and control shapes. REQUIRES: one placement for each item.
std::vector<Bucket> AssignBuckets(const std::vector<ItemPlacement>& placements,
                                  std::vector<DatasetItem>* items);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_DATA_BUCKET_ASSIGNMENT_H_
