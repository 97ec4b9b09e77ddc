// SPDX-License-Identifier: Apache-2.0
// Sizes vary so that every term counts somewhere: weights, adapters, both streams, conditioning.
#include "tests/worker/testing/memory_prediction.h"

#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

TEST(MemoryPredictionTest, PredictedPeaksAreWhatRunsTake) {
  testing::ExpectPredictedPeaks(0, testing::kPlainShapes);
}

}  // namespace
}  // namespace blockswap::worker
