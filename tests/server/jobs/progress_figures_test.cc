// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/progress_figures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace blockswap::server {
namespace {

Progress At(int64_t step, int64_t total) {
  Progress progress;
  progress.step = step;
  progress.total_steps = total;
  return progress;
}

// F066: resumed at 900 of 1000, ten steps in a minute, a save of five minutes in between: only the
// steps' own durations are looked at.
TEST(ProgressFiguresTest, RemainingTimeComesFromTheStepsSinceTheResume) {
  const std::deque<double> steps(10, 6.0);
  EXPECT_DOUBLE_EQ(RemainingSeconds(910, 1000, steps), 540);
}

// F066: unknown before the first step, and never negative, NaN or infinite.
TEST(ProgressFiguresTest, RemainingTimeIsNeverNonsense) {
  EXPECT_EQ(RemainingSeconds(0, 1000, {}), 0);
  EXPECT_EQ(RemainingSeconds(1000, 1000, {1.0}), 0);
  EXPECT_EQ(RemainingSeconds(1001, 1000, {1.0}), 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(RemainingSeconds(0, 10, {nan}), 0);
  // A clock that jumped back or an overflow in one step does not spoil the others.
  EXPECT_DOUBLE_EQ(RemainingSeconds(0, 10, {2.0, nan, -5.0, HUGE_VAL, 2.0}), 20);
}

// F065: never above one, exactly one at the end, whatever the worker counts.
TEST(ProgressFiguresTest, FractionIsBetweenZeroAndOne) {
  EXPECT_EQ(Fraction(At(0, 0)), 0);
  EXPECT_EQ(Fraction(At(0, 10)), 0);
  EXPECT_EQ(Fraction(At(10, 10)), 1);
  EXPECT_EQ(Fraction(At(11, 10)), 1);
  double before = 0;
  for (int64_t step = 1; step < 7; ++step) {
    const double now = Fraction(At(step, 7));
    EXPECT_GT(now, before);
    EXPECT_LT(now, 1);
    before = now;
  }
}

// F065: micro batches counted for steps do not lead beyond the total; an early stop is complete.
TEST(ProgressFiguresTest, StepsEndAtTheTotalAndEarlyStopsAreComplete) {
  Progress progress = At(3, 10);
  AdvanceTo(12, progress);
  EXPECT_EQ(progress.step, 10);
  Progress unknown;
  AdvanceTo(5, unknown);
  EXPECT_EQ(unknown.step, 5);
  Progress early = At(6, 10);
  early.eta_seconds = 100;
  Complete(early);
  EXPECT_EQ(early.step, 6);
  EXPECT_EQ(early.total_steps, 6);
  EXPECT_EQ(early.eta_seconds, 0);
  EXPECT_EQ(Fraction(early), 1);
  Progress unseen = At(0, 3);
  Complete(unseen);
  EXPECT_EQ(Fraction(unseen), 1);
}

}  // namespace
}  // namespace blockswap::server
