// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/wire_messages.h"

#include <string>

#include "gtest/gtest.h"

namespace blockswap::worker {
namespace {

TEST(WireMessagesTest, CarriesEveryFieldOfAStep) {
  StepReport step;
  step.step = 7;
  step.epoch = 2;
  step.loss = 0.5;
  step.learning_rate = 1e-3;
  step.grad_norm = 1.5;
  step.seconds = 0.25;
  step.samples = 4;
  step.phase_seconds = {{"forward", 0.1}, {"backward", 0.15}};
  step.swap.h2d_bytes = 100;
  step.swap.d2h_bytes = 101;
  step.swap.h2d_transfers = 3;
  step.swap.d2h_transfers = 4;
  step.swap.h2d_link_bytes = 110;
  step.swap.d2h_link_bytes = 111;
  step.swap.h2d_busy = absl::Milliseconds(250);
  step.swap.d2h_busy = absl::Milliseconds(125);
  step.swap.forward_stall = absl::Milliseconds(10);
  step.swap.backward_stall = absl::Milliseconds(20);
  step.swap.hits = 5;
  step.swap.late = 6;
  step.swap.misses = 8;
  step.swap.blocks_on_device = 1;
  step.swap.blocks_on_host = 2;
  step.swap.blocks_in_flight = 3;
  step.device_bytes_peak = 99;
  const v1::WorkerMessage message = ToMessage(step);
  ASSERT_EQ(message.steps().steps_size(), 1);
  const v1::Step& out = message.steps().steps(0);
  EXPECT_EQ(out.step(), 7);
  EXPECT_EQ(out.epoch(), 2);
  EXPECT_EQ(out.loss(), 0.5);
  EXPECT_EQ(out.learning_rate(), 1e-3);
  EXPECT_EQ(out.grad_norm(), 1.5);
  EXPECT_EQ(out.seconds(), 0.25);
  EXPECT_EQ(out.samples(), 4);
  EXPECT_EQ(out.phase_seconds().at("backward"), 0.15);
  EXPECT_EQ(out.device_bytes_peak(), 99);
  EXPECT_EQ(
      out.swap().ShortDebugString(),
      "h2d_bytes: 100 d2h_bytes: 101 h2d_transfers: 3 d2h_transfers: 4 h2d_busy_seconds: 0.25 "
      "d2h_busy_seconds: 0.125 forward_stall_seconds: 0.01 backward_stall_seconds: 0.02 hits: 5 "
      "late: 6 "
      "misses: 8 blocks_on_device: 1 blocks_on_host: 2 blocks_in_flight: 3 "
      "h2d_link_bytes: 110 d2h_link_bytes: 111");
}

TEST(WireMessagesTest, LoadingIsAPhaseThatCountsBytes) {
  EXPECT_EQ(LoadMessage(3, 8).phase().ShortDebugString(),
            "phase: \"loading\" bytes_done: 3 bytes_total: 8");
}

TEST(WireMessagesTest, TellsHowTheWorkerEnded) {
  ExitReport report;
  report.code = ExitCode::kNumerics;
  report.category = "NUMERICS";
  report.reason = "NONFINITE_LOSS";
  report.message = "loss is nan at step 3";
  report.step = 3;
  const v1::WorkerMessage message = ToMessage(report);
  EXPECT_EQ(message.exiting().exit_code(), 14);
  EXPECT_EQ(message.exiting().failure().category(), v1::FAILURE_CATEGORY_NUMERICS);
  EXPECT_EQ(message.exiting().failure().reason(), "NONFINITE_LOSS");
  EXPECT_EQ(message.exiting().failure().step(), 3);
  EXPECT_FALSE(ToMessage(ExitReport()).exiting().has_failure());
}

TEST(WireMessagesTest, KnowsEveryCategory) {
  for (int i = 1; i <= v1::FailureCategory_MAX; ++i) {
    const auto category = static_cast<v1::FailureCategory>(i);
    EXPECT_EQ(ToFailureCategory(v1::FailureCategory_Name(category)), category);
  }
  EXPECT_EQ(ToFailureCategory("no such thing"), v1::FAILURE_CATEGORY_SERVER_INTERNAL);
}

TEST(WireMessagesTest, SendsOnlyTextThatProtobufTakes) {
  const v1::WorkerMessage message =
      WarningMessage("R", std::string("bad \xff byte") + std::string(100000, 'x'));
  EXPECT_EQ(message.warning().message().substr(0, 10), "bad ? byte");
  EXPECT_LT(message.warning().message().size(), 20000u);
  ReadyReport ready;
  ready.plan_json = std::string(2 << 20, 'x');
  ready.plan_text = std::string(2 << 20, 'x');
  ready.skipped_checkpoints.assign(1000, std::string(5000, 'y'));
  EXPECT_LT(ToMessage(ready).ByteSizeLong(), 1u << 20);
  EXPECT_EQ(ToMessage(ready).ready().plan_json(), "");
}

TEST(WireMessagesTest, NamesMemoryByTag) {
  MemoryReport memory;
  memory.planned_bytes["ring"] = 5;
  memory.measured.budget_bytes = 100;
  memory.measured.current_bytes[static_cast<size_t>(offload::MemoryTag::kRing)] = 7;
  memory.measured.peak_bytes[static_cast<size_t>(offload::MemoryTag::kRing)] = 8;
  memory.host_rss_bytes = 9;
  const v1::WorkerMessage message = ToMessage(memory);
  EXPECT_EQ(message.memory().device_planned_bytes().at("ring"), 5);
  EXPECT_EQ(message.memory().device_allocated_bytes().at("ring"), 7);
  EXPECT_EQ(message.memory().device_peak_bytes().at("ring"), 8);
  EXPECT_EQ(message.memory().device_budget_bytes(), 100);
  EXPECT_EQ(message.memory().host_rss_bytes(), 9);
  EXPECT_FALSE(message.memory().has_allocator());
}

TEST(WireMessagesTest, TellsOfTheAllocatorTheHostPlanAndTokens) {
  MemoryReport memory;
  memory.host_planned_bytes["pageable"] = 11;
  memory.allocator = AllocatorReport{1, 2, 3, 4, 5, 6, 7};
  const v1::WorkerMessage message = ToMessage(memory);
  EXPECT_EQ(message.memory().host_planned_bytes().at("pageable"), 11);
  EXPECT_EQ(message.memory().allocator().allocated_bytes(), 1);
  EXPECT_EQ(message.memory().allocator().active_bytes(), 2);
  EXPECT_EQ(message.memory().allocator().reserved_bytes(), 3);
  EXPECT_EQ(message.memory().allocator().retries(), 4);
  EXPECT_EQ(message.memory().allocator().out_of_memory(), 5);
  EXPECT_EQ(message.memory().allocator().segments_allocated(), 6);
  EXPECT_EQ(message.memory().allocator().segments_freed(), 7);
  StepReport step;
  step.tokens = 12;
  EXPECT_EQ(ToMessage(step).steps().steps(0).tokens(), 12);
}

}  // namespace
}  // namespace blockswap::worker
