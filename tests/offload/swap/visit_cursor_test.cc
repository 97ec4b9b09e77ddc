// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/visit_cursor.h"

#include <gtest/gtest.h>

#include "offload/plan/schedule.h"

namespace blockswap::offload {
namespace {

// 0 1 2 3 | 3 2 1 0, blocks 0..3 streamed over two slots.
class VisitCursorTest : public ::testing::Test {
 protected:
  int Go(int block, Direction direction) { return cursor_.Advance(block, direction).visit; }

  TransferSchedule schedule_ = RingSchedule(PassKind::kTraining, 4, {0, 1, 2, 3}, 2, 1);
  VisitCursor cursor_{&schedule_, PassKind::kTraining, 4};
};

TEST_F(VisitCursorTest, FollowsAStepAsPlannedAndWraps) {
  for (int step = 0; step < 2; ++step) {
    for (int block = 0; block < 4; ++block) EXPECT_EQ(Go(block, Direction::kForward), block);
    for (int block = 3; block >= 0; --block) EXPECT_EQ(Go(block, Direction::kBackward), 7 - block);
  }
}

TEST_F(VisitCursorTest, ASkippedBlockIsReportedWithItsVisit) {
  EXPECT_EQ(Go(0, Direction::kForward), 0);
  const VisitCursor::Step step = cursor_.Advance(2, Direction::kForward);
  EXPECT_EQ(step.visit, 2);
  EXPECT_EQ(step.first_skipped, 1);
  EXPECT_EQ(step.num_skipped, 1);
}

TEST_F(VisitCursorTest, ABlockSeenTwiceKeepsItsVisit) {
  EXPECT_EQ(Go(0, Direction::kForward), 0);
  EXPECT_EQ(Go(0, Direction::kForward), 0);
  EXPECT_EQ(Go(1, Direction::kForward), 1);
}

TEST_F(VisitCursorTest, ASecondForwardStartsTheCycleAgain) {
  for (int block = 0; block < 4; ++block) Go(block, Direction::kForward);
  EXPECT_EQ(Go(0, Direction::kForward), 0);
  EXPECT_EQ(Go(1, Direction::kForward), 1);
}

TEST_F(VisitCursorTest, TheTurnIsNotTakenForASecondForward) {
  for (int block = 0; block < 4; ++block) Go(block, Direction::kForward);
  EXPECT_EQ(Go(3, Direction::kBackward), 4);
}

TEST_F(VisitCursorTest, DistanceCountsVisitsFromTheExpectedOne) {
  EXPECT_EQ(cursor_.DistanceToNextUse(0), 0);
  EXPECT_EQ(cursor_.DistanceToNextUse(3), 3);
  Go(0, Direction::kForward);
  EXPECT_EQ(cursor_.DistanceToNextUse(0), 6);
  EXPECT_EQ(cursor_.DistanceToNextUse(1), 0);
}

TEST_F(VisitCursorTest, TransfersBelongToTheirVisit) {
  ASSERT_EQ(cursor_.TransfersAfter(0).size(), 1u);
  EXPECT_EQ(cursor_.TransfersAfter(0)[0], (Transfer{0, 2, 0}));
  EXPECT_TRUE(cursor_.TransfersAfter(2).empty());
  EXPECT_TRUE(cursor_.TransfersAfter(7).empty());
}

TEST(VisitCursorScheduleTest, ABlockTheScheduleDoesNotVisitIsServedWithoutAVisit) {
  TransferSchedule schedule;
  schedule.visits = {0, 1};
  VisitCursor cursor(&schedule, PassKind::kForwardOnly, 3);
  EXPECT_EQ(cursor.Advance(2, Direction::kForward).visit, kNoVisit);
  EXPECT_EQ(cursor.DistanceToNextUse(2), kNeverUsed);
  EXPECT_EQ(cursor.Advance(1, Direction::kBackward).visit, 1);  // any direction will do
}

TEST(VisitCursorScheduleTest, AnEmptyScheduleHasNoVisits) {
  TransferSchedule schedule;
  VisitCursor cursor(&schedule, PassKind::kTraining, 2);
  EXPECT_EQ(cursor.Advance(0, Direction::kForward).visit, kNoVisit);
}

}  // namespace
}  // namespace blockswap::offload
