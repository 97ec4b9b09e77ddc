// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/slot_memory.h"

#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include "tests/server/testing/metric_text.h"

namespace blockswap::server {
namespace {

class SlotMemoryTest : public ::testing::Test {
 protected:
  double Value(const std::string& series) { return ValueOf(registry_.Collect(), series); }

  prometheus::Registry registry_;
  SlotMemory memory_{registry_};
};

MemoryUpdate OnAGpu() {
  MemoryUpdate memory;
  memory.allocated_bytes = {{"ring", 100}, {"adapter", 20}};
  memory.planned_bytes = {{"ring", 110}, {"activations", 50}};
  memory.host_planned_bytes = {{"pinned", 7}, {"pageable", 8}, {"file", 9}, {"activations", 10}};
  memory.allocator = AllocatorStats{30, 40, 64, 1, 2, 3, 4};
  return memory;
}

TEST_F(SlotMemoryTest, AllocatorsViewIsLedgerAndFrameworkTogether) {
  memory_.WorkerStarted("s");
  memory_.Report("s", OnAGpu());
  EXPECT_EQ(Value("blockswap_worker_device_memory_bytes{kind=allocated,slot=s}"), 150);
  EXPECT_EQ(Value("blockswap_worker_device_memory_bytes{kind=active,slot=s}"), 160);
  EXPECT_EQ(Value("blockswap_worker_device_memory_bytes{kind=reserved,slot=s}"), 184);
  memory_.DeviceTotal("s", 200);
  EXPECT_EQ(Value("blockswap_worker_device_memory_bytes{kind=non_allocator,slot=s}"), 16);
}

// F123: a figure that is not known is absent, not 0.
TEST_F(SlotMemoryTest, DeviceWithoutACachingAllocatorHasNoFiguresOfOne) {
  MemoryUpdate memory = OnAGpu();
  memory.allocator.reset();
  memory_.WorkerStarted("s");
  memory_.Report("s", memory);
  EXPECT_EQ(Value("blockswap_worker_device_memory_bytes{kind=allocated,slot=s}"), 120);
  EXPECT_EQ(Value("blockswap_worker_device_memory_bytes{kind=reserved,slot=s}"), kNoSuchSeries);
  EXPECT_EQ(Value("blockswap_worker_allocator_events_total{event=oom,slot=s}"), kNoSuchSeries);
}

TEST_F(SlotMemoryTest, ProcessWithoutAReportHasNoRestOfDeviceMemory) {
  memory_.WorkerStarted("s");
  memory_.DeviceTotal("s", 200);
  EXPECT_EQ(Value("blockswap_worker_device_memory_bytes{kind=non_allocator,slot=s}"),
            kNoSuchSeries);
}

TEST_F(SlotMemoryTest, PlanSaysWhereAndWhat) {
  memory_.Report("s", OnAGpu());
  EXPECT_EQ(Value("blockswap_worker_memory_plan_bytes{slot=s,what=ring,where=device}"), 110);
  EXPECT_EQ(Value("blockswap_worker_memory_plan_bytes{slot=s,what=activations,where=device}"), 50);
  EXPECT_EQ(Value("blockswap_worker_memory_plan_bytes{slot=s,what=weights,where=pinned}"), 7);
  EXPECT_EQ(Value("blockswap_worker_memory_plan_bytes{slot=s,what=weights,where=pageable}"), 8);
  EXPECT_EQ(Value("blockswap_worker_memory_plan_bytes{slot=s,what=weights,where=disk}"), 9);
  EXPECT_EQ(Value("blockswap_worker_memory_plan_bytes{slot=s,what=activations,where=pinned}"), 10);
}

TEST_F(SlotMemoryTest, AllocatorEventsAddUpOverAttempts) {
  memory_.WorkerStarted("s");
  memory_.Report("s", OnAGpu());
  memory_.Report("s", OnAGpu());
  EXPECT_EQ(Value("blockswap_worker_allocator_events_total{event=retry,slot=s}"), 1);
  EXPECT_EQ(Value("blockswap_worker_allocator_events_total{event=oom,slot=s}"), 2);
  EXPECT_EQ(Value("blockswap_worker_allocator_events_total{event=segment_alloc,slot=s}"), 3);
  EXPECT_EQ(Value("blockswap_worker_allocator_events_total{event=segment_free,slot=s}"), 4);
  memory_.WorkerEnded("s");
  memory_.WorkerStarted("s");
  memory_.Report("s", OnAGpu());
  EXPECT_EQ(Value("blockswap_worker_allocator_events_total{event=oom,slot=s}"), 4);
}

// F053: labels come from a fixed list, whatever a worker sends.
TEST_F(SlotMemoryTest, PurposesNobodyKnowsAreOneSeries) {
  MemoryUpdate memory;
  for (int i = 0; i < 100; ++i) memory.allocated_bytes[std::to_string(i) + "\"\n"] = 1;
  memory_.Report("s", memory);
  EXPECT_EQ(Value("blockswap_worker_device_memory_use_bytes{purpose=other,slot=s}"), 100);
  size_t series = 0;
  for (const auto& family : registry_.Collect()) {
    if (family.name == "blockswap_worker_device_memory_use_bytes") series = family.metric.size();
  }
  EXPECT_EQ(series, 1u);
}

TEST_F(SlotMemoryTest, LargestStepIsThePeakUntilTheNextAttempt) {
  const std::string peak = "blockswap_worker_device_memory_peak_bytes{kind=reserved,slot=s}";
  memory_.WorkerStarted("s");
  memory_.Peak("s", 70);
  memory_.Peak("s", 60);
  EXPECT_EQ(Value(peak), 70);
  memory_.WorkerEnded("s");
  EXPECT_EQ(Value(peak), 70);
  memory_.WorkerStarted("s");
  EXPECT_EQ(Value(peak), 0);
}

TEST_F(SlotMemoryTest, KernelsCountIsByKindAndEndsWithTheWorker) {
  memory_.WorkerStarted("s");
  memory_.Process("s", {10, 4, 3, 2, 6});
  EXPECT_EQ(Value("blockswap_worker_host_memory_bytes{kind=rss,slot=s}"), 10);
  EXPECT_EQ(Value("blockswap_worker_host_memory_bytes{kind=anon,slot=s}"), 4);
  EXPECT_EQ(Value("blockswap_worker_host_memory_bytes{kind=file,slot=s}"), 3);
  EXPECT_EQ(Value("blockswap_worker_host_memory_bytes{kind=shmem,slot=s}"), 2);
  EXPECT_EQ(Value("blockswap_worker_host_memory_bytes{kind=locked,slot=s}"), 6);
  EXPECT_EQ(memory_.PinnedBytes(), 6);
  memory_.WorkerEnded("s");
  EXPECT_EQ(Value("blockswap_worker_host_memory_bytes{kind=anon,slot=s}"), 0);
  EXPECT_EQ(memory_.PinnedBytes(), 0);
}

}  // namespace
}  // namespace blockswap::server
