// SPDX-License-Identifier: Apache-2.0
#include "worker/objective/timesteps.h"

#include <cmath>

#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

TrainingConfig ConfigOf(TimestepSampling sampling) {
  TrainingConfig config;
  config.timestep_sampling = sampling;
  return config;
}

TEST(TimestepsTest, ShiftMovesTheMiddleAndKeepsTheEnds) {
  EXPECT_EQ(ShiftTime(0.0, 2.2), 0.0);
  EXPECT_EQ(ShiftTime(1.0, 2.2), 1.0);
  EXPECT_DOUBLE_EQ(ShiftTime(0.5, 2.2), 2.2 * 0.5 / 1.6);
  EXPECT_EQ(ShiftTime(0.3, 1.0), 0.3);
}

TEST(TimestepsTest, QwenShiftMeetsBothEndsOfItsLine) {
  EXPECT_NEAR(QwenShift(32, 32), std::exp(0.5), 1e-12);    // 256 tokens
  EXPECT_NEAR(QwenShift(256, 128), std::exp(0.9), 1e-12);  // 8192 tokens
  EXPECT_GT(QwenShift(128, 128), QwenShift(64, 64));
}

TEST(TimestepsTest, EachSamplingFollowsItsFormula) {
  const TimeDraw draw{0.25, 0.7};
  const double sigmoid = 1.0 / (1.0 + std::exp(-0.7));
  EXPECT_DOUBLE_EQ(SampleTime(ConfigOf(TimestepSampling::kUniform), draw, 8, 8), 0.25);
  EXPECT_DOUBLE_EQ(SampleTime(ConfigOf(TimestepSampling::kSigmoid), draw, 8, 8), sigmoid);

  TrainingConfig shifted = ConfigOf(TimestepSampling::kShift);
  shifted.discrete_flow_shift = 3.0;
  EXPECT_DOUBLE_EQ(SampleTime(shifted, draw, 8, 8), 3.0 * sigmoid / (1.0 + 2.0 * sigmoid));

  const double s = QwenShift(64, 32);
  EXPECT_DOUBLE_EQ(SampleTime(ConfigOf(TimestepSampling::kQwenShift), draw, 64, 32),
                   s * sigmoid / (1.0 + (s - 1.0) * sigmoid));
}

TEST(TimestepsTest, SigmoidScaleSharpensTheDraw) {
  TrainingConfig config = ConfigOf(TimestepSampling::kSigmoid);
  config.sigmoid_scale = 2.0;
  EXPECT_DOUBLE_EQ(SampleTime(config, {0, 0.5}, 8, 8), 1.0 / (1.0 + std::exp(-1.0)));
}

TEST(TimestepsTest, RangeIsAppliedAfterTheShift) {
  TrainingConfig config = ConfigOf(TimestepSampling::kUniform);
  config.min_timestep = 200;
  config.max_timestep = 600;
  EXPECT_DOUBLE_EQ(SampleTime(config, {0.0, 0}, 8, 8), 0.2);
  EXPECT_DOUBLE_EQ(SampleTime(config, {0.5, 0}, 8, 8), 0.4);
  EXPECT_LT(SampleTime(config, {0.999999, 0}, 8, 8), 0.6);
}

}  // namespace
}  // namespace blockswap::worker
