// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/live_figures.h"

#include <gtest/gtest.h>

#include <string>

namespace blockswap::server {
namespace {

WorkerStep StepOf(int64_t number) {
  WorkerStep step;
  step.step = number;
  step.seconds = 0.5;
  step.swap.h2d_bytes = 1000 * number;
  step.swap.h2d_busy_seconds = 0.25 * static_cast<double>(number);
  step.swap.forward_stall_seconds = 0.0625 * static_cast<double>(number);
  step.swap.backward_stall_seconds = 0.0625 * static_cast<double>(number);
  step.swap.hits = 4 * number;
  step.swap.late = number;
  step.swap.blocks_in_flight = 1;
  return step;
}

class LiveFiguresTest : public ::testing::Test {
 protected:
  // A step a second, from `first` to `last`.
  void Steps(const std::string& slot, int64_t first, int64_t last) {
    for (int64_t number = first; number <= last; ++number) {
      figures_.Step(slot, StepOf(number), start_ + absl::Seconds(number));
    }
  }
  const absl::Time start_ = absl::FromUnixSeconds(1700000000);
  LiveFigures figures_{absl::Seconds(10)};
};

TEST_F(LiveFiguresTest, AJobWithoutAWorkerHasNone) {
  EXPECT_FALSE(figures_.Find("some-job").has_value());
  figures_.Step("host", StepOf(1), start_);  // of an attempt that began before this server
  EXPECT_FALSE(figures_.Find("some-job").has_value());
}

TEST_F(LiveFiguresTest, AllStepsButTheFirstCountWhileTheAttemptIsYoung) {
  figures_.WorkerStarted("host", "job", 1);
  Steps("host", 1, 5);
  const auto live = figures_.Find("job");
  ASSERT_TRUE(live.has_value());
  EXPECT_TRUE(live->is_running);
  EXPECT_EQ(live->recent.steps, 4);
  EXPECT_DOUBLE_EQ(live->recent.step_seconds, 2);
  EXPECT_EQ(live->recent.h2d_bytes, 4000);
  EXPECT_DOUBLE_EQ(live->recent.stall_seconds, 0.5);
  EXPECT_EQ(live->recent.hits, 16);
  EXPECT_EQ(live->recent.late, 4);
}

TEST_F(LiveFiguresTest, WhatAnAdoptedWorkerDidBeforeIsNotOfTheWindow) {
  figures_.WorkerStarted("host", "job", 1);
  Steps("host", 1000, 1002);
  const auto live = figures_.Find("job");
  EXPECT_EQ(live->swap.h2d_bytes, 1002000);
  EXPECT_EQ(live->recent.steps, 2);
  EXPECT_EQ(live->recent.h2d_bytes, 2000);
}

TEST_F(LiveFiguresTest, TheWindowForgetsOldSteps) {
  figures_.WorkerStarted("host", "job", 1);
  Steps("host", 1, 100);
  const auto live = figures_.Find("job");
  EXPECT_EQ(live->swap.h2d_bytes, 100000);
  // The window begins after the newest step that is older than ten seconds.
  EXPECT_EQ(live->recent.steps, 11);
  EXPECT_EQ(live->recent.h2d_bytes, 11000);
}

TEST_F(LiveFiguresTest, QuickStepsDoNotPileUp) {
  figures_.WorkerStarted("host", "job", 1);
  for (int64_t number = 1; number <= 100000; ++number)
    figures_.Step("host", StepOf(number), start_);
  EXPECT_LE(figures_.Find("job")->recent.steps, 256);
}

TEST_F(LiveFiguresTest, AnEndedWorkerKeepsItsFiguresUntilTheSlotServesAnother) {
  figures_.WorkerStarted("host", "old", 1);
  Steps("host", 1, 3);
  MemoryUpdate memory;
  memory.planned_bytes["ring"] = 7;
  figures_.Memory("host", memory, start_);
  figures_.WorkerEnded("host");
  const auto ended = figures_.Find("old");
  EXPECT_FALSE(ended->is_running);
  EXPECT_EQ(ended->swap.blocks_in_flight, 0);
  EXPECT_EQ(ended->memory->planned_bytes.at("ring"), 7);
  figures_.WorkerStarted("host", "new", 2);
  EXPECT_FALSE(figures_.Find("old").has_value());
  const auto fresh = figures_.Find("new");
  EXPECT_EQ(fresh->attempt, 2);
  EXPECT_EQ(fresh->recent.steps, 0);
  EXPECT_FALSE(fresh->memory.has_value());
}

}  // namespace
}  // namespace blockswap::server
