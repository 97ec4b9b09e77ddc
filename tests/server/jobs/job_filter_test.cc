// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/job_filter.h"

#include <gtest/gtest.h>

namespace blockswap::server {
namespace {

JobRecord Job(JobState state, const std::string& name) {
  JobRecord job;
  job.id = name + "-abc";
  job.name = name;
  job.state = state;
  job.labels["team"] = "vision";
  return job;
}

TEST(JobFilterTest, TermsAreJoinedByAnd) {
  const auto filter = ParseJobFilter("state=RUNNING AND label.team=vision AND name:dig");
  ASSERT_TRUE(filter.ok());
  EXPECT_TRUE(filter->Matches(Job(JobState::kRunning, "digits")));
  EXPECT_FALSE(filter->Matches(Job(JobState::kQueued, "digits")));
  EXPECT_FALSE(filter->Matches(Job(JobState::kRunning, "faces")));
}

TEST(JobFilterTest, EmptyFilterTakesAll) {
  const auto filter = ParseJobFilter("  ");
  ASSERT_TRUE(filter.ok());
  EXPECT_TRUE(filter->is_empty());
  EXPECT_TRUE(filter->Matches(Job(JobState::kFailed, "x")));
}

TEST(JobFilterTest, ActiveAndTerminalSplitAllJobs) {
  const auto active = ParseJobFilter("active"), terminal = ParseJobFilter("terminal");
  ASSERT_TRUE(active.ok() && terminal.ok());
  for (int state = 1; state <= kNumJobStates; ++state) {
    const JobRecord job = Job(static_cast<JobState>(state), "x");
    EXPECT_NE(active->Matches(job), terminal->Matches(job)) << state;
  }
}

TEST(JobFilterTest, NegatedStatesAddUp) {
  const auto filter = ParseJobFilter("state!=QUEUED AND state!=FAILED");
  ASSERT_TRUE(filter.ok());
  EXPECT_FALSE(filter->Matches(Job(JobState::kQueued, "x")));
  EXPECT_FALSE(filter->Matches(Job(JobState::kFailed, "x")));
  EXPECT_TRUE(filter->Matches(Job(JobState::kRunning, "x")));
}

TEST(JobFilterTest, BadTermIsNamed) {
  for (const char* text :
       {"state=SLEEPING", "label.team", "size>3", "active AND colour=red", "AND"}) {
    EXPECT_EQ(ParseJobFilter(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_NE(ParseJobFilter("active AND colour=red").status().message().find("colour=red"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace blockswap::server
