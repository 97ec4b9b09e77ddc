// SPDX-License-Identifier: Apache-2.0
#include "worker/sampler/flow_sampler.h"

#include <gtest/gtest.h>

#include "worker/objective/timesteps.h"

namespace blockswap::worker {
namespace {

TEST(FlowSamplerTest, TimesFallFromNoiseToNothing) {
  const std::vector<double> times = SamplingTimes(20, 2.2);
  ASSERT_EQ(times.size(), 21u);
  EXPECT_EQ(times.front(), 1.0);
  EXPECT_EQ(times.back(), 0.0);
  for (size_t i = 1; i < times.size(); ++i) EXPECT_LT(times[i], times[i - 1]);
  EXPECT_DOUBLE_EQ(times[10], ShiftTime(0.5, 2.2));
}

TEST(FlowSamplerTest, ThePromptsShiftComesBeforeTheJobs) {
  TrainingConfig training;
  training.timestep_sampling = TimestepSampling::kShift;
  training.discrete_flow_shift = 3.0;
  SamplePrompt prompt;
  EXPECT_EQ(SamplingShift(prompt, training, 8, 8), 3.0);
  prompt.flow_shift = 1.5;
  EXPECT_EQ(SamplingShift(prompt, training, 8, 8), 1.5);
  prompt.flow_shift = 0;
  training.timestep_sampling = TimestepSampling::kQwenShift;
  EXPECT_EQ(SamplingShift(prompt, training, 64, 64), QwenShift(64, 64));
  training.timestep_sampling = TimestepSampling::kUniform;
  EXPECT_EQ(SamplingShift(prompt, training, 8, 8), 1.0);
}

}  // namespace
}  // namespace blockswap::worker
