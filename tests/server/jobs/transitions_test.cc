// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/transitions.h"

#include <gtest/gtest.h>

#include <vector>

namespace blockswap::server {
namespace {

std::vector<JobState> AllStates() {
  std::vector<JobState> states;
  for (int state = 1; state <= kNumJobStates; ++state)
    states.push_back(static_cast<JobState>(state));
  return states;
}

TEST(TransitionsTest, TerminalStatesAreFinal) {
  for (const JobState from : AllStates()) {
    for (const JobState to : AllStates()) {
      if (!IsTerminal(from)) continue;
      EXPECT_FALSE(CanTransition(from, to)) << StateName(from) << StateName(to);
    }
  }
}

TEST(TransitionsTest, EveryUnfinishedStateCanReachEveryTerminalOne) {
  for (const JobState goal : {JobState::kSucceeded, JobState::kFailed, JobState::kCancelled}) {
    std::vector<bool> reaches(kNumJobStates + 1, false);
    reaches[static_cast<size_t>(goal)] = true;
    for (int round = 0; round < kNumJobStates; ++round) {
      for (const JobState from : AllStates()) {
        for (const JobState to : AllStates()) {
          if (CanTransition(from, to) && reaches[static_cast<size_t>(to)]) {
            reaches[static_cast<size_t>(from)] = true;
          }
        }
      }
    }
    for (const JobState from : AllStates()) {
      EXPECT_EQ(reaches[static_cast<size_t>(from)], !IsTerminal(from) || from == goal)
          << StateName(from);
    }
  }
}

TEST(TransitionsTest, OnlyAWorkerThatWasReadyMakesAJobSucceed) {
  EXPECT_FALSE(CanTransition(JobState::kQueued, JobState::kSucceeded));
  EXPECT_FALSE(CanTransition(JobState::kStarting, JobState::kSucceeded));
  EXPECT_FALSE(CanTransition(JobState::kRecovering, JobState::kSucceeded));
  EXPECT_TRUE(CanTransition(JobState::kRunning, JobState::kSucceeded));
}

TEST(TransitionsTest, NamesRoundTrip) {
  for (const JobState state : AllStates()) EXPECT_EQ(ParseState(StateName(state)), state);
  EXPECT_EQ(ParseState("running"), JobState::kRunning);
  EXPECT_FALSE(ParseState("SLEEPING").has_value());
  for (int category = 1; category < kNumFailureCategories; ++category) {
    const auto value = static_cast<FailureCategory>(category);
    EXPECT_EQ(ParseCategory(CategoryName(value)), value);
  }
}

}  // namespace
}  // namespace blockswap::server
