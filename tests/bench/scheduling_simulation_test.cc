// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/scheduling_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

using ::testing::IsEmpty;

constexpr int kDevices = 16;

TraceOptions SmallMonth(uint64_t seed) {
  TraceOptions options;
  options.seed = seed;
  options.days = 8;
  return options;
}

class SchedulingSimulationTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SchedulingSimulationTest, UsesTheMachineBetterThanFirstInFirstOutAndStarvesNobody) {
  // One seed is new at every run.
  const uint64_t seed = GetParam() != 0 ? GetParam() : std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  const auto trace = DrawTrace(SmallMonth(seed), kDevices);
  ASSERT_GT(trace.size(), 300u);
  const SimulationReport fifo = Simulate(trace, SimulatedPolicy::kFifo, {});
  const SimulationReport queue = Simulate(trace, SimulatedPolicy::kQueue, {});
  EXPECT_EQ(queue.jobs, static_cast<int64_t>(trace.size()));
  EXPECT_EQ(fifo.jobs, queue.jobs);
  EXPECT_THAT(queue.violations, IsEmpty());
  EXPECT_THAT(fifo.violations, IsEmpty());
  EXPECT_GE(queue.utilisation, fifo.utilisation);
  EXPECT_LE(queue.mean_wait_hours, fifo.mean_wait_hours);
  // Who is first waits for jobs that ran before it, and for some whose estimates were too short.
  EXPECT_LE(queue.max_first_hours, 2 * queue.longest_job_hours);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SchedulingSimulationTest, ::testing::Values(1, 2, 3, 0));

TEST(SchedulingTraceTest, SameSeedIsTheSameTraceAndLoadIsWhatWasAskedFor) {
  const auto once = DrawTrace(SmallMonth(7), kDevices), again = DrawTrace(SmallMonth(7), kDevices);
  ASSERT_EQ(once.size(), again.size());
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(once[i].duration_micros, again[i].duration_micros);
  }
  TraceOptions month = SmallMonth(7);
  month.days = 70;
  double offered = 0;
  for (const TraceJob& job : DrawTrace(month, kDevices)) {
    offered += static_cast<double>(job.duration_micros) / 3600e6;
  }
  EXPECT_NEAR(offered / (70 * 24 * kDevices), month.load, 0.1);
}

TEST(SchedulingSimulationTwoPerDeviceTest, SharedDevicesNeverHoldMoreThanTheyHave) {
  QueueOptions options;
  options.max_jobs_per_device = 3;
  const auto trace = DrawTrace(SmallMonth(11), kDevices);
  const SimulationReport shared = Simulate(trace, SimulatedPolicy::kQueue, options);
  EXPECT_THAT(shared.violations, IsEmpty());
  EXPECT_EQ(shared.jobs, static_cast<int64_t>(trace.size()));
}

}  // namespace
}  // namespace blockswap::server
