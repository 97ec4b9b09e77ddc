// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/queue_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000, kDay = 86400 * kSecond;
constexpr int64_t kWall = 20000 * kDay, kSteady = 5 * kSecond;

JobRecord Job(const std::string& id, int64_t sequence, JobState state = JobState::kQueued) {
  JobRecord job;
  job.id = id;
  job.created_sequence = sequence;
  job.state = state;
  return job;
}

class QueueIndexTest : public ::testing::Test {
 protected:
  void Apply(const std::vector<JobRecord>& jobs, int64_t wall = kWall, int64_t steady = kSteady) {
    std::vector<QueueChange> changes;
    for (const JobRecord& job : jobs) changes.push_back(QueueChangeOf(job));
    index_.Apply(std::move(changes), wall, steady);
  }
  std::vector<std::string> Ids() const {
    std::vector<std::string> ids;
    for (const QueuedJob& job : index_.jobs()) ids.push_back(job.id);
    return ids;
  }
  QueueIndex index_;
};

TEST_F(QueueIndexTest, HoldsWhatWaitsBySequence) {
  Apply({Job("c", 3), Job("a", 1), Job("r", 2, JobState::kRunning)});
  EXPECT_THAT(Ids(), ElementsAre("a", "c"));
  Apply({Job("r", 2, JobState::kRecovering), Job("d", 4), Job("a", 1, JobState::kStarting)});
  EXPECT_THAT(Ids(), ElementsAre("r", "c", "d"));
}

TEST_F(QueueIndexTest, LastOfSeveralChangesCounts) {
  JobRecord changed = Job("a", 1);
  changed.priority = 7;
  Apply({Job("a", 1), Job("b", 2), changed, Job("b", 2, JobState::kCancelled)});
  ASSERT_THAT(Ids(), ElementsAre("a"));
  EXPECT_EQ(index_.jobs()[0].priority, 7);
  Apply({Job("a", 1, JobState::kCancelled), Job("a", 1)});
  EXPECT_THAT(Ids(), ElementsAre("a"));
  Apply({Job("a", 1, JobState::kFailed)});
  EXPECT_THAT(Ids(), IsEmpty());
}

// 4.2 row 26: the wall clock jumps a day, a backoff of ten seconds stays one of ten seconds.
TEST_F(QueueIndexTest, StepsOfTheWallClockMoveNoBackoffAndNoDeadline) {
  JobRecord job = Job("a", 1, JobState::kRecovering);
  job.ready_micros = kWall + 10 * kSecond;
  job.deadline_micros = kWall + 100 * kSecond;
  Apply({job});
  const int64_t ready = kSteady + 10 * kSecond, deadline = kSteady + 100 * kSecond;
  EXPECT_EQ(index_.jobs()[0].ready_micros, ready);
  EXPECT_EQ(index_.jobs()[0].deadline_micros, deadline);
  for (const int64_t step : {-kDay, kDay}) {
    // Something else of the job changes meanwhile.
    Apply({job}, kWall + step, kSteady + kSecond);
    EXPECT_EQ(index_.jobs()[0].ready_micros, ready);
    EXPECT_EQ(index_.jobs()[0].deadline_micros, deadline);
    EXPECT_EQ(index_.DeadlineOf("a"), deadline);
  }
  // While it runs, and when it waits again.
  job.state = JobState::kStarting;
  Apply({job}, kWall + kDay, kSteady + 2 * kSecond);
  EXPECT_EQ(index_.DeadlineOf("a"), deadline);
  job.state = JobState::kRecovering;
  Apply({job}, kWall + kDay, kSteady + 3 * kSecond);
  EXPECT_EQ(index_.jobs()[0].deadline_micros, deadline);
}

TEST_F(QueueIndexTest, NewDeadlineCountsAndNoneIsNever) {
  JobRecord job = Job("a", 1);
  EXPECT_EQ(index_.DeadlineOf("a"), kNever);
  job.deadline_micros = kWall + kSecond;
  Apply({job});
  job.deadline_micros = kWall + 9 * kSecond;
  Apply({job});
  EXPECT_EQ(index_.DeadlineOf("a"), kSteady + 9 * kSecond);
  job.deadline_micros = 0;
  Apply({job});
  EXPECT_EQ(index_.DeadlineOf("a"), kNever);
  EXPECT_EQ(index_.jobs()[0].deadline_micros, kNever);
}

// F133: what the server knows of a job after its restart is enough to look at the right disk.
TEST_F(QueueIndexTest, JobFromTheIndexOfTheStoreKnowsWhereItWrites) {
  WaitingJob row;
  row.id = "digits-x";
  row.created_sequence = 4;
  row.needs.step_seconds = 2;
  row.needs.total_steps = 100;
  const QueueChange change = QueueChangeOf(row, "/outputs");
  EXPECT_TRUE(change.waits);
  EXPECT_EQ(change.job.output_directory, "/outputs/digits-x");
  EXPECT_EQ(change.job.expected_seconds, 200);
}

TEST_F(QueueIndexTest, WhatIsDoneIsNotExpectedAgain) {
  JobRecord job = Job("a", 1, JobState::kRecovering);
  job.needs.step_seconds = 2;
  job.progress.total_steps = 100;
  job.progress.step = 75;
  Apply({job});
  EXPECT_EQ(index_.jobs()[0].expected_seconds, 50);
  job.progress.seconds_per_step = 4;  // measured
  Apply({job});
  EXPECT_EQ(index_.jobs()[0].expected_seconds, 100);
}

}  // namespace
}  // namespace blockswap::server
