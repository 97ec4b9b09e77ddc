// SPDX-License-Identifier: Apache-2.0
// What is kept for a job that cannot start yet, and who may use it meanwhile.
#include "server/scheduler/reservation.h"

#include <gtest/gtest.h>

#include "tests/server/scheduler/queue_fixture.h"

namespace blockswap::server {
namespace {

class ReservationTest : public QueueFixture {};

// A big one waits for host memory that ends in an hour; a device is free.
class BackfillTest : public ReservationTest {
 protected:
  BackfillTest() {
    AddGpus(2);
    Occupy(0, 40 * kGiB, kNow + kHour);
    Add("big", 10, 50);  // 24 GiB are free
  }
};

TEST_F(BackfillTest, ShortJobMayUseWhatTheBigOneWaitsFor) {
  Add("short", 1, 20).expected_seconds = 3599;
  Decide();
  EXPECT_EQ(WhyOf("big"), "WAITING_FOR_HOST_RAM");
  EXPECT_EQ(Started("short"), "cuda-1");
}

TEST_F(BackfillTest, LongJobMustNot) {
  Add("long", 1, 20).expected_seconds = 3601;
  Decide();
  EXPECT_EQ(WhyOf("long"), "HIGHER_PRIORITY_AHEAD");
  EXPECT_EQ(
      MessageFor("long"),
      "host memory is reserved for job big ahead in the queue: needs 20.0 GiB, left 14.0 GiB");
}

TEST_F(BackfillTest, LongJobMayTakeWhatIsLeftBesideTheBigOne) {
  // 64 GiB in all, the big one takes 50 of them when its time comes.
  Add("long", 1, 14).expected_seconds = 1e7;
  Add("one more", 1, 1).expected_seconds = 1e7;
  AddGpus(1);
  Decide();
  EXPECT_EQ(Started("long"), "cuda-1");
  EXPECT_EQ(WhyOf("one more"), "HIGHER_PRIORITY_AHEAD");
}

TEST_F(BackfillTest, DurationThatNobodyKnowsIsNoShortOne) {
  Add("unknown", 1, 20);
  Decide();
  EXPECT_EQ(WhyOf("unknown"), "HIGHER_PRIORITY_AHEAD");
}

TEST_F(BackfillTest, WithoutAnEndInSightOnlyTheBoundedDelayIsAllowed) {
  state_.running[0].end_micros = kNever;
  Add("short", 1, 20).expected_seconds = 599;
  Decide();
  EXPECT_EQ(Started("short"), "cuda-1");
  jobs_[1].expected_seconds = 601;
  Decide();
  EXPECT_EQ(WhyOf("short"), "HIGHER_PRIORITY_AHEAD");
}

TEST_F(BackfillTest, EstimateThatProvedWrongIsNotTrustedAnyMore) {
  state_.running[0].end_micros = kNow - kSecond;
  Add("short", 1, 20).expected_seconds = 601;
  Decide();
  EXPECT_EQ(WhyOf("short"), "HIGHER_PRIORITY_AHEAD");
}

TEST_F(BackfillTest, OverdueJobElsewhereDoesNotHideAnEndThatIsKnown) {
  AddGpus(1);
  Occupy(2, 0, kNow - kSecond);
  Add("short", 1, 20).expected_seconds = 3500;
  Decide();
  EXPECT_EQ(Started("short"), "cuda-1");
}

TEST_F(ReservationTest, DeviceThatAJobWaitsForIsReservedForIt) {
  AddGpus(1);
  options_.max_jobs_per_device = 2;
  Occupy(0, 1 * kGiB, kNow + kHour);
  Add("big", 24);
  QueuedJob& next = Add("next", 2);
  next.expected_seconds = 7200;
  Decide();
  EXPECT_EQ(WhyOf("big"), "WAITING_FOR_VRAM");
  EXPECT_EQ(WhyOf("next"), "HIGHER_PRIORITY_AHEAD");
  EXPECT_EQ(MessageFor("next"), "device cuda-0 is reserved for job big ahead in the queue");
}

// F119: nobody of ours can end what is in the way, so that others do not wait for it.
TEST_F(ReservationTest, JobThatWaitsForAnotherProgramHoldsNobodyUp) {
  AddGpus(1);
  state_.devices[0].free_bytes = 8 * kGiB;
  Add("large", 20);
  Add("small", 4);
  Decide();
  EXPECT_EQ(WhyOf("large"), "WAITING_FOR_VRAM");
  EXPECT_EQ(Started("small"), "cuda-0");
}

TEST_F(ReservationTest, JobWithoutRoomOnDiskHoldsNobodyUp) {
  AddGpus(1);
  state_.host.disk_bytes = [](const QueuedJob& job) { return job.id == "a" ? kGiB : 9 * kGiB; };
  Add("a").needs.disk_bytes = 2 * kGiB;
  Add("b").needs.disk_bytes = 2 * kGiB;
  Decide();
  EXPECT_EQ(WhyOf("a"), "WAITING_FOR_DISK");
  EXPECT_EQ(Started("b"), "cuda-0");
}

}  // namespace
}  // namespace blockswap::server
