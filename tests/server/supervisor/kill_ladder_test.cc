// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/kill_ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockswap::server {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class KillLadderTest : public ::testing::Test {
 protected:
  SteadyTime At(int ms) const { return start_ + milliseconds(ms); }
  const SteadyTime start_ = SteadyNow();
  KillLadder ladder_{{milliseconds(100), milliseconds(10), milliseconds(50), milliseconds(200)}};
};

TEST_F(KillLadderTest, ClimbsFromAskingToGivingUp) {
  EXPECT_THAT(ladder_.Begin(StopMode::kGraceful, At(0)), ElementsAre(LadderAction::kSendStop));
  EXPECT_EQ(ladder_.Due(At(99)), std::nullopt);
  EXPECT_EQ(ladder_.Due(At(100)), LadderAction::kTerminate);
  EXPECT_EQ(ladder_.Due(At(149)), std::nullopt);
  EXPECT_EQ(ladder_.Due(At(150)), LadderAction::kKill);
  EXPECT_EQ(ladder_.Due(At(349)), std::nullopt);
  EXPECT_EQ(ladder_.Due(At(350)), LadderAction::kGiveUp);
  EXPECT_EQ(ladder_.Due(At(100000)), std::nullopt);
}

TEST_F(KillLadderTest, NowShortensTheGraceOfAnEarlierRequest) {
  ladder_.Begin(StopMode::kGraceful, At(0));
  EXPECT_THAT(ladder_.Begin(StopMode::kNow, At(5)), ElementsAre(LadderAction::kSendStop));
  EXPECT_EQ(ladder_.mode(), StopMode::kNow);
  EXPECT_EQ(ladder_.Due(At(15)), LadderAction::kTerminate);
}

TEST_F(KillLadderTest, AskingTwiceChangesNothing) {
  ladder_.Begin(StopMode::kGraceful, At(0));
  EXPECT_THAT(ladder_.Begin(StopMode::kGraceful, At(90)), IsEmpty());
  EXPECT_EQ(ladder_.Due(At(100)), LadderAction::kTerminate);
  EXPECT_THAT(ladder_.Begin(StopMode::kNow, At(101)), IsEmpty());
}

TEST_F(KillLadderTest, CancellingOvertakesSuspendingButNotTheOtherWay) {
  ladder_.Begin(StopMode::kSuspend, At(0));
  EXPECT_THAT(ladder_.Begin(StopMode::kGraceful, At(1)), ElementsAre(LadderAction::kSendStop));
  EXPECT_THAT(ladder_.Begin(StopMode::kSuspend, At(2)), IsEmpty());
  EXPECT_EQ(ladder_.mode(), StopMode::kGraceful);
}

TEST_F(KillLadderTest, AStalledWorkerIsNotAsked) {
  EXPECT_THAT(ladder_.Begin(StopMode::kNone, At(0)), ElementsAre(LadderAction::kTerminate));
  EXPECT_EQ(ladder_.Due(At(50)), LadderAction::kKill);
}

TEST_F(KillLadderTest, AHungWorkerPrintsItsStacksFirst) {
  KillLadderOptions options;
  options.dump = milliseconds(20);
  options.terminate = milliseconds(50);
  KillLadder ladder(options);
  EXPECT_THAT(ladder.BeginStalled(At(0)), ElementsAre(LadderAction::kDumpStacks));
  EXPECT_THAT(ladder.BeginStalled(At(1)), IsEmpty());
  EXPECT_EQ(ladder.Due(At(19)), std::nullopt);
  EXPECT_EQ(ladder.Due(At(20)), LadderAction::kTerminate);
  EXPECT_EQ(ladder.Due(At(70)), LadderAction::kKill);
}

TEST_F(KillLadderTest, SlowCheckpointsGetTwiceTheirTimeButNeverLessThanTheGrace) {
  ladder_.AllowForCheckpoint(0.02);
  EXPECT_EQ(ladder_.grace(), milliseconds(100));
  ladder_.AllowForCheckpoint(0.5);
  EXPECT_EQ(ladder_.grace(), milliseconds(1000));
  ladder_.Begin(StopMode::kGraceful, At(0));
  EXPECT_EQ(ladder_.Due(At(999)), std::nullopt);
  EXPECT_EQ(ladder_.Due(At(1000)), LadderAction::kTerminate);
}

}  // namespace
}  // namespace blockswap::server
