// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step_position.h"

#include <vector>

#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

TEST(StepPositionTest, EveryBatchOfEveryEpochIsReadOnceInOrder) {
  for (const int64_t batches : {1, 2, 5, 7, 12}) {
    for (const int64_t accumulation : {1, 2, 3, 5, 20}) {
      int64_t next_batch = 0;
      for (int64_t step = 1; next_batch < 3 * batches; ++step) {
        const StepPosition position = PositionOfStep(step, batches, accumulation);
        ASSERT_EQ(position.first_batch, next_batch)
            << batches << " " << accumulation << " " << step;
        ASSERT_EQ(position.epoch, next_batch / batches + 1);
        ASSERT_GE(position.num_batches, 1);
        ASSERT_LE(position.num_batches, accumulation);
        next_batch += position.num_batches;
        ASSERT_LE(next_batch, position.epoch * batches) << "a step mixes two epochs";
      }
    }
  }
}

TEST(StepPositionTest, TheLastStepOfAnEpochTakesWhatIsLeft) {
  const StepPosition position = PositionOfStep(3, /*batches_per_epoch=*/5, /*accumulation=*/2);
  EXPECT_EQ(position.num_batches, 1);
  EXPECT_EQ(PositionOfStep(4, 5, 2).epoch, 2);
}

}  // namespace
}  // namespace blockswap::worker
