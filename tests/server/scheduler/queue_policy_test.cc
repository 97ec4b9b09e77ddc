// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/queue_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/server/scheduler/queue_fixture.h"

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class QueuePolicyTest : public QueueFixture {};

TEST_F(QueuePolicyTest, PriorityGoesFirstAndAgeAmongEquals) {
  Add("a");
  Add("b").priority = 5;
  Add("c").priority = 5;
  Add("d").priority = -1;
  EXPECT_THAT(Order(), ElementsAre("b", "c", "a", "d"));
}

TEST_F(QueuePolicyTest, WaitingAnHourIsWorthAPointOfPriority) {
  Add("old").create_micros = 0;
  QueuedJob& urgent = Add("urgent");
  urgent.priority = 3;
  urgent.create_micros = 3 * kHour - kSecond;
  EXPECT_THAT(Order(), ElementsAre("urgent", "old"));
  jobs_[1].create_micros = 3 * kHour + kSecond;
  EXPECT_THAT(Order(), ElementsAre("old", "urgent"));
  options_.aging = std::chrono::microseconds(0);
  EXPECT_THAT(Order(), ElementsAre("urgent", "old"));
}

// 4.2 row 26.
TEST_F(QueuePolicyTest, WallClockThatWasSetBackLetsNobodyOvertake) {
  Add("first").create_micros = 1000 * kHour;
  Add("second").create_micros = 976 * kHour;
  Add("third").create_micros = 977 * kHour;
  EXPECT_THAT(Order(), ElementsAre("first", "second", "third"));
}

TEST_F(QueuePolicyTest, WeightsInMemoryAreWorthAShortLead) {
  Add("other").needs.base_key = "cold";
  Add("same").needs.base_key = "warm";
  state_.loaded_bases = {"warm"};
  EXPECT_THAT(Order(), ElementsAre("same", "other"));
  jobs_[1].create_micros = jobs_[0].create_micros + 3 * kMinute;
  EXPECT_THAT(Order(), ElementsAre("other", "same"));
}

TEST_F(QueuePolicyTest, EveryFreeDeviceGetsAJobInOnePassAndTheRestAreNumbered) {
  AddGpus(2);
  for (const char* id : {"a", "b", "c", "d"}) Add(id);
  Decide();
  EXPECT_EQ(Started("a"), "cuda-0");
  EXPECT_EQ(Started("b"), "cuda-1");
  EXPECT_EQ(WhyOf("c"), "WAITING_FOR_DEVICE");
  EXPECT_EQ(MessageFor("c"), "device cuda-0 is held by job a");
  EXPECT_EQ(Of("c").position, 1);
  EXPECT_EQ(Of("d").position, 2);
}

TEST_F(QueuePolicyTest, WhatStartsInAPassIsTakenFromTheRoomOfTheNext) {
  AddGpus(2);
  state_.host.memory_bytes = 10 * kGiB;
  Add("a", 1, 8);
  Add("b", 1, 8);
  Decide();
  EXPECT_EQ(Started("a"), "cuda-0");
  EXPECT_EQ(WhyOf("b"), "WAITING_FOR_HOST_RAM");
  EXPECT_EQ(MessageFor("b"), "waiting for host memory: needs 8.0 GiB, free 2.0 GiB");
}

TEST_F(QueuePolicyTest, SmallJobTakesTheSmallCard) {
  AddGpus(1, 80 * kGiB);
  AddGpus(1, 12 * kGiB);
  Add("small", 6);
  Add("large", 60);
  Decide();
  EXPECT_EQ(Started("small"), "cuda-1");
  EXPECT_EQ(Started("large"), "cuda-0");
}

TEST_F(QueuePolicyTest, DeviceThatHeldTheSameBaseIsPreferredAndTheHostComesLast) {
  DeviceState host;
  host.name = "host";
  host.total_bytes = host.free_bytes = 4 * kGiB;
  state_.devices.push_back(host);
  AddGpus(2);
  Add("job").needs.base_key = "base";
  Decide();
  EXPECT_EQ(Started("job"), "cuda-1");
  state_.device_base = {{"cuda-2", "base"}};
  Decide();
  EXPECT_EQ(Started("job"), "cuda-2");
}

TEST_F(QueuePolicyTest, HeldJobWaitsWithoutAPlaceAndDelaysNobody) {
  AddGpus(1);
  Add("held").held = true;
  Add("next");
  Decide();
  EXPECT_EQ(WhyOf("held"), "HELD");
  EXPECT_EQ(Of("held").position, 0);
  EXPECT_EQ(Started("next"), "cuda-0");
}

TEST_F(QueuePolicyTest, PausedQueueStartsNobodyAndSaysWhy) {
  AddGpus(1);
  Add("job");
  Add("held").held = true;
  state_.paused = true;
  state_.pause_reason = "new driver at noon";
  Decide();
  EXPECT_EQ(WhyOf("job"), "QUEUE_PAUSED");
  EXPECT_EQ(MessageFor("job"), "the queue is paused: new driver at noon");
  EXPECT_EQ(WhyOf("held"), "HELD");
}

TEST_F(QueuePolicyTest, DeadlineBeatsBackoffHoldAndPause) {
  AddGpus(1);
  state_.paused = true;
  QueuedJob& late = Add("late");
  late.deadline_micros = kNow;
  late.ready_micros = kNow + kHour;
  late.held = true;
  Add("early").deadline_micros = kNow + 1;
  Decide();
  EXPECT_EQ(Of("late").verdict, Verdict::kExpired);
  EXPECT_EQ(WhyOf("early"), "QUEUE_PAUSED");
}

TEST_F(QueuePolicyTest, JobInBackoffLetsOthersPass) {
  AddGpus(1);
  Add("crashed").ready_micros = kNow + 5 * kSecond;
  Add("next");
  Decide();
  EXPECT_EQ(WhyOf("crashed"), "BACKOFF");
  EXPECT_EQ(Started("next"), "cuda-0");
}

TEST_F(QueuePolicyTest, TwoJobsShareADeviceWhereThatIsAllowed) {
  AddGpus(1);
  for (const char* id : {"a", "b", "c"}) Add(id, 10);
  Decide();
  EXPECT_EQ(WhyOf("b"), "WAITING_FOR_DEVICE");
  options_.max_jobs_per_device = 3;
  Decide();
  EXPECT_EQ(Started("a"), "cuda-0");
  EXPECT_EQ(Started("b"), "cuda-0");
  EXPECT_EQ(WhyOf("c"), "WAITING_FOR_VRAM");
  EXPECT_EQ(MessageFor("c"), "waiting for memory of cuda-0: needs 10.0 GiB, free 4.0 GiB");
}

// 4.2 row 6: the others are untouched.
TEST_F(QueuePolicyTest, UnhealthyDeviceTakesNothingAndTheOthersGoOn) {
  AddGpus(2);
  state_.devices[0].health = DeviceHealth::kUnhealthy;
  state_.devices[0].health_reason = "Xid 79: the GPU has fallen off the bus";
  Add("pinned").requested_device = "cuda:0";
  Add("any");
  Decide();
  EXPECT_EQ(WhyOf("pinned"), "DEVICE_UNHEALTHY");
  EXPECT_THAT(MessageFor("pinned"), HasSubstr("Xid 79"));
  EXPECT_EQ(Started("any"), "cuda-1");
}

// 4.2 row 49. What a pass takes is printed by sim_schedule --waiting.
TEST_F(QueuePolicyTest, TenThousandWaitingJobsAllHaveTheirPlaceAndReason) {
  AddGpus(16);
  for (size_t i = 0; i < 16; ++i) Occupy(i, kGiB, kNow + kHour);
  for (int i = 0; i < 10000; ++i) Add(absl::StrCat("job-", i), 1 + i % 20, i % 40).priority = i % 7;
  Decide();
  ASSERT_EQ(decisions_.size(), 10000u);
  for (size_t i = 0; i < decisions_.size(); ++i) {
    ASSERT_EQ(decisions_[i].position, static_cast<int64_t>(i) + 1);
    ASSERT_STREQ(ReasonName(decisions_[i].reason), "WAITING_FOR_DEVICE");
  }
}

// Whatever the state: rooms are never exceeded, every waiting job has its reason and one position.
TEST_F(QueuePolicyTest, RandomQueuesNeverExceedTheMachine) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const auto draw = [&random](int64_t below) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
  };
  for (int round = 0; round < 2000; ++round) {
    state_ = QueueState();
    jobs_.clear();
    state_.steady_micros = kNow;
    state_.host.memory_bytes = draw(128) * kGiB;
    state_.paused = draw(20) == 0;
    options_.max_jobs_per_device = 1 + static_cast<int>(draw(3));
    AddGpus(1 + static_cast<int>(draw(4)), (8 + draw(40)) * kGiB);
    state_.devices[0].health = draw(4) == 0 ? DeviceHealth::kDrained : DeviceHealth::kHealthy;
    const int64_t host_bytes = state_.host.memory_bytes;
    for (int64_t i = draw(12); i >= 0; --i) {
      QueuedJob& job = Add(absl::StrCat("job-", i), draw(40), draw(60));
      job.priority = static_cast<int>(draw(5)) - 2;
      job.held = draw(8) == 0;
      job.ready_micros = draw(6) == 0 ? kNow + kSecond : 0;
      job.expected_seconds = static_cast<double>(draw(3)) * 4000;
      if (draw(4) == 0) job.requested_device = absl::StrCat("cuda:", draw(4));
    }
    Decide();
    ASSERT_EQ(decisions_.size(), jobs_.size());
    std::map<std::string, int64_t> device_bytes, device_jobs;
    int64_t taken = 0, position = 0;
    for (const QueueDecision& decision : decisions_) {
      const QueuedJob& job = jobs_[decision.job];
      if (!job.held && decision.verdict == Verdict::kWait) {
        ASSERT_EQ(decision.position, ++position);
      }
      if (decision.verdict == Verdict::kStart) {
        ASSERT_FALSE(state_.paused || job.held || job.ready_micros > kNow);
        device_bytes[decision.device] += job.needs.device_bytes;
        ++device_jobs[decision.device];
        taken += job.needs.host_bytes;
      } else {
        ASSERT_THAT(MessageOf(decision.reason), ::testing::Not(IsEmpty()));
      }
    }
    ASSERT_LE(taken, host_bytes);
    for (const DeviceState& device : state_.devices) {
      ASSERT_LE(device_bytes[device.name], device.total_bytes);
      ASSERT_LE(device_jobs[device.name], options_.max_jobs_per_device);
      if (device.health != DeviceHealth::kHealthy) {
        ASSERT_EQ(device_jobs[device.name], 0);
      }
    }
  }
}

}  // namespace
}  // namespace blockswap::server
