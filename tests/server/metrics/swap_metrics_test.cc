// SPDX-License-Identifier: Apache-2.0
// Every family that tells of swapping and of the link, moved by what it tells of.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "server/metrics/server_metrics.h"
#include "tests/server/testing/metric_text.h"

namespace blockswap::server {
namespace {

constexpr char kSlot[] = "cuda-0";

class SwapMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(); }
  void Start() { metrics_.slots().WorkerStarted({kSlot, "job", kSlot, "GPU-1", "m", 1}); }
  void Step(const SwapCounters& swap) {
    WorkerStep step;
    step.step = ++steps_;
    step.seconds = 1;
    step.swap = swap;
    metrics_.slots().Step(kSlot, step, 1);
  }
  // Of one series of the slot; `label` as it stands in the text, "" for none.
  double Slot(const std::string& family, const std::string& label) {
    // Prometheus text has the labels in order, and all of these come before or after "slot".
    const std::string slot = absl::StrCat("slot=\"", kSlot, "\"");
    const std::string labels = label.empty()  ? slot
                               : label < slot ? absl::StrCat(label, ",", slot)
                                              : absl::StrCat(slot, ",", label);
    return TextValueOf(metrics_.Render(), absl::StrCat(family, "{", labels, "}"));
  }
  double Device(const std::string& family, const std::string& before = "",
                const std::string& kind = "") {
    return TextValueOf(metrics_.Render(), absl::StrCat(family, "{", before, "gpu=\"cuda-0\",", kind,
                                                       "uuid=\"GPU-1\"}"));
  }

  ServerMetrics metrics_{BuildInfo{"1", "abc", "1.51"}};
  int64_t steps_ = 0;
};

TEST_F(SwapMetricsTest, CountersGrowByWhatAStepAdded) {
  SwapCounters swap;
  for (int step = 1; step <= 2; ++step) {
    swap.h2d_bytes += 600;
    swap.h2d_link_bytes += 700;
    swap.h2d_transfers += 3;
    swap.h2d_busy_seconds += 0.5;
    swap.d2h_bytes += 300;
    swap.d2h_link_bytes += 400;
    swap.d2h_transfers += 2;
    swap.d2h_busy_seconds += 0.25;
    swap.forward_stall_seconds += 0.125;
    swap.backward_stall_seconds += 0.0625;
    swap.hits += 7;
    swap.late += 5;
    swap.misses += 1;
    Step(swap);
    EXPECT_EQ(Slot("blockswap_swap_bytes_total", "direction=\"h2d\""), 600 * step);
    EXPECT_EQ(Slot("blockswap_swap_bytes_total", "direction=\"d2h\""), 300 * step);
    EXPECT_EQ(Slot("blockswap_swap_transfers_total", "direction=\"h2d\""), 3 * step);
    EXPECT_EQ(Slot("blockswap_swap_transfers_total", "direction=\"d2h\""), 2 * step);
    EXPECT_EQ(Slot("blockswap_swap_busy_seconds_total", "direction=\"h2d\""), 0.5 * step);
    EXPECT_EQ(Slot("blockswap_swap_busy_seconds_total", "direction=\"d2h\""), 0.25 * step);
    EXPECT_EQ(Slot("blockswap_swap_stall_seconds_total", "pass=\"forward\""), 0.125 * step);
    EXPECT_EQ(Slot("blockswap_swap_stall_seconds_total", "pass=\"backward\""), 0.0625 * step);
    EXPECT_EQ(Slot("blockswap_swap_prefetch_total", "result=\"hit\""), 7 * step);
    EXPECT_EQ(Slot("blockswap_swap_prefetch_total", "result=\"late\""), 5 * step);
    EXPECT_EQ(Slot("blockswap_swap_prefetch_total", "result=\"miss\""), step);
  }
}

// All bytes over the time in which the engine was busy with all of them, step by step.
TEST_F(SwapMetricsTest, AchievedRateIsThatOfTheLastStepWhileAWorkerRuns) {
  SwapCounters swap;
  swap.h2d_link_bytes = 12'000'000'000;
  swap.h2d_busy_seconds = 0.5;
  swap.d2h_link_bytes = 2'000'000'000;
  swap.d2h_busy_seconds = 0.25;
  Step(swap);
  EXPECT_EQ(Slot("blockswap_swap_achieved_bytes_per_second", "direction=\"h2d\""), 24e9);
  EXPECT_EQ(Slot("blockswap_swap_achieved_bytes_per_second", "direction=\"d2h\""), 8e9);
  swap.h2d_link_bytes += 3'000'000'000;
  swap.h2d_busy_seconds += 0.5;
  Step(swap);
  EXPECT_EQ(Slot("blockswap_swap_achieved_bytes_per_second", "direction=\"h2d\""), 6e9);
  metrics_.slots().WorkerEnded(kSlot);
  EXPECT_LE(Slot("blockswap_swap_achieved_bytes_per_second", "direction=\"h2d\""), 0);
}

TEST_F(SwapMetricsTest, FrozenWeightsHaveNoSeriesDownwards) {
  SwapCounters swap;
  swap.h2d_bytes = swap.h2d_link_bytes = 600;
  swap.h2d_busy_seconds = 1;
  Step(swap);
  for (const char* family : {"blockswap_swap_bytes_total", "blockswap_swap_transfers_total",
                             "blockswap_swap_busy_seconds_total"}) {
    EXPECT_EQ(Slot(family, "direction=\"d2h\""), kNoSuchSeries) << family;
  }
}

// Gradients of a base that trains, saved inputs: no blocks, but the engine is busy with them.
TEST_F(SwapMetricsTest, WhatComesDownAndIsNoBlockCountsAsTimeAlone) {
  SwapCounters swap;
  swap.d2h_link_bytes = 400;
  swap.d2h_busy_seconds = 0.25;
  Step(swap);
  EXPECT_EQ(Slot("blockswap_swap_busy_seconds_total", "direction=\"d2h\""), 0.25);
  EXPECT_EQ(Slot("blockswap_swap_bytes_total", "direction=\"d2h\""), kNoSuchSeries);
}

TEST_F(SwapMetricsTest, BlocksAreCountedWhereTheyAre) {
  SwapCounters swap;
  swap.blocks_on_device = 20;
  swap.blocks_on_host = 39;
  swap.blocks_in_flight = 1;
  Step(swap);
  EXPECT_EQ(Slot("blockswap_swap_blocks", "location=\"device\""), 20);
  EXPECT_EQ(Slot("blockswap_swap_blocks", "location=\"host\""), 39);
  EXPECT_EQ(Slot("blockswap_swap_blocks", "location=\"in_flight\""), 1);
}

TEST_F(SwapMetricsTest, MemoryThatCouldNotBeLockedIsAFlag) {
  MemoryUpdate memory;
  metrics_.slots().Memory(kSlot, memory);
  EXPECT_EQ(Slot("blockswap_worker_pin_fallback", ""), 0);
  memory.pinning_fell_back = true;
  metrics_.slots().Memory(kSlot, memory);
  EXPECT_EQ(Slot("blockswap_worker_pin_fallback", ""), 1);
}

TEST_F(SwapMetricsTest, PlansThatTookOverAreCountedByAReasonOfTheList) {
  for (const char* reason : {"MEASURED_TIME", "MEASURED_TIME", "a reason nobody knows"}) {
    metrics_.slots().Replanned(kSlot, reason);
  }
  EXPECT_EQ(Slot("blockswap_plan_changes_total", "reason=\"MEASURED_TIME\""), 2);
  EXPECT_EQ(Slot("blockswap_plan_changes_total", "reason=\"OTHER\""), 1);
}

TEST_F(SwapMetricsTest, SharedMastersAreCountedByWhetherAWorkerUsesThem) {
  metrics_.SetSharedMemory({.files = 2, .used_bytes = 70, .unused_bytes = 30});
  EXPECT_EQ(TextValueOf(metrics_.Render(), "blockswap_shared_master_bytes{state=\"used\"}"), 70);
  EXPECT_EQ(TextValueOf(metrics_.Render(), "blockswap_shared_master_bytes{state=\"unused\"}"), 30);
}

TEST_F(SwapMetricsTest, TheLinkIsTold) {
  DeviceState device;
  device.name = kSlot;
  device.uuid = "GPU-1";
  device.kind = DeviceKind::kCuda;
  // Nothing measured, and a driver that does not tell: absent, not 0.
  metrics_.SetDevices({device});
  EXPECT_EQ(Device("blockswap_device_link_bytes_per_second", "direction=\"h2d\","), kNoSuchSeries);
  EXPECT_EQ(Device("blockswap_device_link_duplex_ratio"), kNoSuchSeries);
  EXPECT_EQ(Device("blockswap_gpu_link_generation", "", "kind=\"current\","), kNoSuchSeries);
  EXPECT_EQ(Device("blockswap_device_link_degraded"), 0);

  device.link = {.h2d = 24e9, .d2h = 26e9, .pageable = 9e9, .duplex_factor = 1.5};
  device.negotiated = {.generation = 1, .max_generation = 4, .width = 8, .max_width = 16};
  device.link_warning = "the bus runs with 8 of 16 lanes";
  metrics_.SetDevices({device});
  EXPECT_EQ(Device("blockswap_device_link_bytes_per_second", "direction=\"h2d\","), 24e9);
  EXPECT_EQ(Device("blockswap_device_link_bytes_per_second", "direction=\"d2h\","), 26e9);
  EXPECT_EQ(Device("blockswap_device_link_bytes_per_second", "direction=\"pageable\","), 9e9);
  EXPECT_EQ(Device("blockswap_device_link_duplex_ratio"), 1.5);
  EXPECT_EQ(Device("blockswap_gpu_link_generation", "", "kind=\"current\","), 1);
  EXPECT_EQ(Device("blockswap_gpu_link_generation", "", "kind=\"max\","), 4);
  EXPECT_EQ(Device("blockswap_gpu_link_lanes", "", "kind=\"current\","), 8);
  EXPECT_EQ(Device("blockswap_gpu_link_lanes", "", "kind=\"max\","), 16);
  EXPECT_EQ(Device("blockswap_device_link_degraded"), 1);
}

}  // namespace
}  // namespace blockswap::server
