// SPDX-License-Identifier: Apache-2.0
#include "offload/device/host_lane.h"

#include <gtest/gtest.h>

#include <vector>

namespace blockswap::offload {
namespace {

using std::chrono::steady_clock;

TEST(HostEventTableTest, AnEventNeverRecordedIsComplete) {
  HostEventTable events;
  EXPECT_TRUE(events.IsComplete(events.Create()));
}

TEST(HostEventTableTest, AWaitBindsToTheRecordBeforeIt) {
  HostEventTable events;
  const EventId event = events.Create();
  const EventMark first = events.BeginRecord(event);
  const EventMark bound = events.Latest(event);
  const EventMark second = events.BeginRecord(event);
  events.Complete(second, steady_clock::now());
  EXPECT_FALSE(events.HasHappened(bound));
  EXPECT_TRUE(events.IsComplete(event));
  events.Complete(first, steady_clock::now());
  EXPECT_TRUE(events.HasHappened(bound));
}

TEST(HostEventTableTest, AReusedEventIsNotCompletedByAnOldRecord) {
  HostEventTable events;
  const EventId event = events.Create();
  const EventMark old = events.BeginRecord(event);
  events.Destroy(event);
  ASSERT_EQ(events.Create(), event);
  const EventMark fresh = events.BeginRecord(event);
  events.Complete(old, steady_clock::now());
  EXPECT_FALSE(events.HasHappened(fresh));
}

TEST(HostLaneTest, CopiesInOrder) {
  HostEventTable events;
  HostLane lane("bs-test", {}, &events);
  std::vector<std::byte> a(64, std::byte{1}), b(64), c(64);
  lane.QueueCopy(b.data(), a.data(), 64);
  lane.QueueCopy(c.data(), b.data(), 64);
  lane.Synchronize();
  EXPECT_EQ(c, a);
  EXPECT_EQ(lane.counters().bytes, 128);
  EXPECT_EQ(lane.counters().transfers, 2);
}

TEST(HostLaneTest, WaitsForAnEventOfTheOtherLane) {
  HostEventTable events;
  HostLane first("bs-first", {.latency = absl::Milliseconds(20)}, &events);
  HostLane second("bs-second", {}, &events);
  std::vector<std::byte> a(16, std::byte{7}), b(16), c(16);
  const EventId event = events.Create();
  first.QueueCopy(b.data(), a.data(), 16);
  first.QueueRecord(events.BeginRecord(event));
  second.QueueWait(events.Latest(event));
  second.QueueCopy(c.data(), b.data(), 16);
  second.Synchronize();
  EXPECT_EQ(c, a);
}

TEST(HostLaneTest, KeepsTheRateOverManyCopiesWithoutAddingUpDelays) {
  HostEventTable events;
  // 1 MB/s and 200 us: 1000 bytes take 1.2 ms each, 50 of them 60 ms.
  HostLane lane("bs-rate", {.bytes_per_second = 1e6, .latency = absl::Microseconds(200)}, &events);
  std::vector<std::byte> a(1000), b(1000);
  const steady_clock::time_point start = steady_clock::now();
  for (int i = 0; i < 50; ++i) lane.QueueCopy(b.data(), a.data(), 1000);
  lane.Synchronize();
  const absl::Duration took = absl::FromChrono(steady_clock::now() - start);
  EXPECT_GE(took, absl::Milliseconds(60));
  EXPECT_GE(lane.counters().busy, absl::Milliseconds(60));
  // Each late wake-up alone costs tens of microseconds; added up, the busy time would pass this on
  // any machine.
  EXPECT_LE(lane.counters().busy, took + absl::Milliseconds(1));
}

TEST(HostLaneTest, EndsQuicklyWithSlowCopiesQueued) {
  HostEventTable events;
  std::vector<std::byte> a(1000, std::byte{3}), b(1000);
  const steady_clock::time_point start = steady_clock::now();
  {
    HostLane lane("bs-slow", {.latency = absl::Seconds(100)}, &events);
    for (int i = 0; i < 10; ++i) lane.QueueCopy(b.data(), a.data(), 1000);
  }
  EXPECT_LT(absl::FromChrono(steady_clock::now() - start), absl::Seconds(50));
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace blockswap::offload
