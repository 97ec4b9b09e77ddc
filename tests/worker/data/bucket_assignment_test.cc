// SPDX-License-Identifier: Apache-2.0
#include "worker/data/bucket_assignment.h"

#include <gtest/gtest.h>

#include <set>

namespace blockswap::worker {
namespace {

// F023: number and shape of control latents split a bucket; every batch is uniform and every item
// is seen.
TEST(BucketAssignmentTest, SplitsByControlLatents) {
  const std::vector<std::vector<std::vector<int64_t>>> kinds = {
      {{2, 1, 8, 8}}, {{2, 1, 4, 8}}, {{2, 1, 8, 8}, {2, 1, 8, 8}}, {}};
  std::vector<DatasetItem> items(8);
  std::vector<ItemPlacement> placements(8);
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].control_shapes = kinds[i % kinds.size()];
    placements[i].width = placements[i].height = 64;
    placements[i].batch_size = 4;
  }
  const std::vector<Bucket> buckets = AssignBuckets(placements, &items);
  ASSERT_EQ(buckets.size(), kinds.size());
  std::set<int64_t> seen;
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (const int64_t item : buckets[b].items) {
      EXPECT_TRUE(seen.insert(item).second);
      EXPECT_EQ(items[static_cast<size_t>(item)].bucket, static_cast<int>(b));
      EXPECT_EQ(items[static_cast<size_t>(item)].control_shapes,
                items[static_cast<size_t>(buckets[b].items[0])].control_shapes);
    }
  }
  EXPECT_EQ(seen.size(), items.size());
}

TEST(BucketAssignmentTest, SplitsBySizeFramesAndDataSetAndRepeatsItems) {
  std::vector<DatasetItem> items(5);
  std::vector<ItemPlacement> placements(5);
  for (ItemPlacement& placement : placements) placement.width = placement.height = 64;
  placements[1].width = 32;
  items[2].frames = 3;
  placements[3].dataset = 1;
  placements[3].repeats = 3;
  const std::vector<Bucket> buckets = AssignBuckets(placements, &items);
  ASSERT_EQ(buckets.size(), 4u);
  EXPECT_EQ(buckets[0].items, std::vector<int64_t>{1});
  EXPECT_EQ(buckets[1].items, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(buckets[2].items, std::vector<int64_t>{2});
  EXPECT_EQ(buckets[3].items, (std::vector<int64_t>{3, 3, 3}));
}

}  // namespace
}  // namespace blockswap::worker
