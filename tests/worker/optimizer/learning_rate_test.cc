// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/learning_rate.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

TrainingConfig ConfigOf(ScheduleType type, int64_t warmup, double min_ratio) {
  TrainingConfig config;
  config.learning_rate = 2e-3;
  config.schedule = {type, warmup, min_ratio};
  return config;
}

TEST(LearningRateTest, ConstantIsConstant) {
  const TrainingConfig config = ConfigOf(ScheduleType::kConstant, 0, 0);
  for (const int64_t step : {1, 2, 50, 100}) EXPECT_EQ(LearningRateAt(config, step, 100), 2e-3);
}

TEST(LearningRateTest, WarmUpIsLinearFromZero) {
  const TrainingConfig config = ConfigOf(ScheduleType::kConstant, 4, 0);
  EXPECT_EQ(LearningRateAt(config, 1, 100), 0);
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 2, 100), 0.5e-3);
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 4, 100), 1.5e-3);
  EXPECT_EQ(LearningRateAt(config, 5, 100), 2e-3);
}

TEST(LearningRateTest, CosineFallsToItsMinimum) {
  const TrainingConfig config = ConfigOf(ScheduleType::kCosine, 10, 0.1);
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 11, 110), 2e-3);
  EXPECT_NEAR(LearningRateAt(config, 61, 110), 2e-3 * (0.1 + 0.9 * 0.5), 1e-15);
  EXPECT_NEAR(LearningRateAt(config, 111, 110), 2e-4, 1e-15);
  EXPECT_NEAR(LearningRateAt(config, 36, 110),
              2e-3 * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi * 0.25))), 1e-15);
}

TEST(LearningRateTest, WarmUpAsLongAsTheRunDividesByNothing) {
  const TrainingConfig config = ConfigOf(ScheduleType::kCosine, 10, 0);
  for (int64_t step = 1; step <= 10; ++step)
    EXPECT_TRUE(std::isfinite(LearningRateAt(config, step, 10)));
}

}  // namespace
}  // namespace blockswap::worker
