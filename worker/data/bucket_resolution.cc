// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/data/dataset.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kLongestSide = 65536;

int64_t Floor(int64_t value, int64_t step) { return value / step * step; }

absl::Status CheckSides(const char* what, int64_t width, int64_t height) {
  if (width >= 1 && height >= 1 && width <= kLongestSide && height <= kLongestSide) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " must have sides from 1 to ", kLongestSide, ", is ", width, "x", height));
}

// Square root of an area, rounded down. The double result of such small numbers is exact enough to
// be off by one at most.
int64_t IntegerRoot(int64_t area) {
  auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(area)));
  while (root * root > area) --root;
  while ((root + 1) * (root + 1) <= area) ++root;
  return root;
}

double Aspect(int64_t width, int64_t height) {
  return static_cast<double>(width) / static_cast<double>(height);
}

}  // namespace

absl::StatusOr<std::vector<std::pair<int64_t, int64_t>>> BucketResolutions(int64_t width,
                                                                           int64_t height,
                                                                           int64_t step) {
  BLOCKSWAP_RETURN_IF_ERROR(CheckSides("resolution", width, height));
  const int64_t area = width * height;
  const int64_t root = IntegerRoot(area);
  std::set<std::pair<int64_t, int64_t>> found;
  for (int64_t side = Floor(root / 2, step); side < root + step; side += step) {
    const int64_t other = side == 0 ? 0 : Floor(area / side, step);
    if (side == 0 || other == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "resolution ", width, "x", height, " is too small for buckets in steps of ", step,
          ": one would have a side of 0; take at least ", 2 * step, "x", 2 * step));
    }
    found.insert({side, other});
    found.insert({other, side});
  }
  return std::vector<std::pair<int64_t, int64_t>>(found.begin(), found.end());
}

absl::StatusOr<std::pair<int64_t, int64_t>> NearestBucket(int64_t width, int64_t height,
                                                          int64_t resolution_width,
                                                          int64_t resolution_height, int64_t step,
                                                          bool enable_bucket, bool no_upscale) {
  BLOCKSWAP_RETURN_IF_ERROR(CheckSides("an item", width, height));
  BLOCKSWAP_RETURN_IF_ERROR(CheckSides("resolution", resolution_width, resolution_height));
  if (!enable_bucket) return std::pair(resolution_width, resolution_height);
  if (no_upscale && width * height <= resolution_width * resolution_height) {
    const std::pair own(Floor(width, step), Floor(height, step));
    if (own.first == 0 || own.second == 0) {
      return absl::InvalidArgumentError(absl::StrCat("an item of ", width, "x", height,
                                                     " is smaller than the bucket step ", step,
                                                     " and bucket_no_upscale is on"));
    }
    return own;
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto resolutions,
                             BucketResolutions(resolution_width, resolution_height, step));
  // The first of equally near ones wins: the list is sorted, so the choice is the same everywhere.
  std::pair<int64_t, int64_t> best;
  double least = INFINITY;
  for (const auto& [bucket_width, bucket_height] : resolutions) {
    const double distance = std::abs(Aspect(bucket_width, bucket_height) - Aspect(width, height));
    if (distance < least) {
      least = distance;
      best = {bucket_width, bucket_height};
    }
  }
  return best;
}

}  // namespace blockswap::worker
