// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "worker/data/dataset.h"

namespace blockswap::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using Size = std::pair<int64_t, int64_t>;

// The rule in the words of its description, without looking at the implementation: candidates are
// multiples of the step from half the side of the square of equal area up to one step above that
// side, each with the largest multiple that keeps the area.
Size SlowNearest(Size item, Size resolution, int64_t step) {
  const int64_t area = resolution.first * resolution.second;
  int64_t root = 0;
  while ((root + 1) * (root + 1) <= area) ++root;
  std::vector<Size> all;
  for (int64_t a = 0; a <= root + step; ++a) {
    if (a % step != 0 || a < (root / 2) / step * step || a >= root + step) continue;
    const int64_t b = (area / a) / step * step;
    all.push_back({a, b});
    all.push_back({b, a});
  }
  std::sort(all.begin(), all.end());
  const double wanted = static_cast<double>(item.first) / static_cast<double>(item.second);
  const auto distance = [&](const Size& size) {
    return std::abs(static_cast<double>(size.first) / static_cast<double>(size.second) - wanted);
  };
  return *std::min_element(all.begin(), all.end(),
                           [&](const Size& a, const Size& b) { return distance(a) < distance(b); });
}

TEST(BucketResolutionTest, ListsBothOrientationsSorted) {
  const auto buckets = BucketResolutions(64, 64, 16);
  ASSERT_TRUE(buckets.ok());
  // From 32 to 79 in steps of 16: 32x128, 48x80 (4096 / 48 = 85), 64x64.
  EXPECT_THAT(*buckets,
              ElementsAre(Pair(32, 128), Pair(48, 80), Pair(64, 64), Pair(80, 48), Pair(128, 32)));
}

// F093: area and aspect ratio decide, not sides; 2000 random sizes against the slow rule, and the
// odd ones.
TEST(BucketResolutionTest, ChoosesAsTheRuleSays) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    const Size item(1 + random() % 5000, 1 + random() % 5000);
    const Size resolution(32 + random() % 1500, 32 + random() % 1500);
    const auto bucket = NearestBucket(item.first, item.second, resolution.first, resolution.second,
                                      16, /*enable_bucket=*/true, /*no_upscale=*/false);
    ASSERT_TRUE(bucket.ok()) << bucket.status();
    EXPECT_EQ(*bucket, SlowNearest(item, resolution, 16))
        << item.first << "x" << item.second << " in " << resolution.first << "x"
        << resolution.second;
  }
  for (const Size& item : {Size(1, 4000), Size(31, 31), Size(960, 544), Size(544, 960)}) {
    EXPECT_EQ(*NearestBucket(item.first, item.second, 960, 544, 16, true, false),
              SlowNearest(item, {960, 544}, 16));
  }
}

// F093: without upscaling an item of no more area keeps its own size, floored to the step.
TEST(BucketResolutionTest, KeepsSmallItemsWhenUpscalingIsOff) {
  EXPECT_THAT(*NearestBucket(720, 720, 720, 1280, 16, true, true), Pair(720, 720));
  EXPECT_THAT(*NearestBucket(100, 33, 960, 544, 16, true, true), Pair(96, 32));
  EXPECT_THAT(*NearestBucket(1920, 1088, 960, 544, 16, true, true), Pair(960, 544));
  EXPECT_THAT(*NearestBucket(720, 720, 960, 544, 16, false, true), Pair(960, 544))
      << "without buckets there is one size";
}

// F093: what ends in a zero side, or in a division by zero, is refused.
TEST(BucketResolutionTest, RefusesWhatHasNoSide) {
  EXPECT_THAT(NearestBucket(15, 9, 960, 544, 16, true, true).status().ToString(),
              HasSubstr("smaller than the bucket step 16"));
  EXPECT_THAT(BucketResolutions(16, 16, 16).status().ToString(),
              HasSubstr("resolution 16x16 is too small for buckets in steps of 16"));
  EXPECT_FALSE(BucketResolutions(31, 31, 16).ok());
  EXPECT_TRUE(BucketResolutions(32, 32, 16).ok());
  for (const Size& bad :
       {Size(0, 64), Size(64, 0), Size(-64, 64), Size(int64_t{1} << 40, int64_t{1} << 40)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(BucketResolutions(bad.first, bad.second, 16).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(
        NearestBucket(bad.first, bad.second, 64, 64, 16, true, false).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(
        NearestBucket(64, 64, bad.first, bad.second, 16, false, false).status()));
  }
}

}  // namespace
}  // namespace blockswap::worker
