// SPDX-License-Identifier: Apache-2.0
// Linears that stream one at a time, inputs that wait on the host, a base that trains.
#include "tests/worker/testing/memory_prediction.h"

#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

TEST(MemoryPredictionTest, PredictedPeaksOfOtherModesAreWhatRunsTake) {
  testing::ExpectPredictedPeaks(testing::kPlainShapes, testing::kPlainShapes + 54);
}

}  // namespace
}  // namespace blockswap::worker
