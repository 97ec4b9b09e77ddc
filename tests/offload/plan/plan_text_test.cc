// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "offload/plan/planner.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

SwapPlan ExamplePlan() {
  PlanRequest request = MakeUniformModel(6, 512).request();
  request.model.edge_bytes = 77;
  request.constraints.vram_budget_bytes = 77 + 4 * 512;
  request.compute_flops_per_second = request.model.forward_flops;
  request.link.h2d_bytes_per_second = 1024;
  request.lockable_bytes = 512;
  return *Plan(request);
}

TEST(PlanToJsonTest, CarriesEveryFieldWithUnits) {
  const SwapPlan plan = ExamplePlan();
  const nlohmann::json json = nlohmann::json::parse(PlanToJson(plan));
  EXPECT_EQ(json["num_streamed"], 4);
  EXPECT_EQ(json["slots"], 2);
  EXPECT_EQ(json["slot_bytes"], 512);
  EXPECT_EQ(json["mode"], "h2d_only");
  EXPECT_EQ(json["granularity"], "block");
  EXPECT_EQ(json["pin_policy"], "auto");
  EXPECT_EQ(json["vram_budget_bytes"], 77 + 4 * 512);
  EXPECT_EQ(json["blocks"].size(), 6u);
  EXPECT_EQ(json["blocks"][0]["residence"], "streamed");
  EXPECT_EQ(json["blocks"][0]["tier"], "pinned");
  EXPECT_EQ(json["blocks"][1]["residence"], "resident");
  EXPECT_EQ(json["prediction"]["device_bytes"], plan.prediction.device_bytes);
  EXPECT_EQ(json["prediction"]["h2d_bytes_per_step"], 4 * 512);
  EXPECT_DOUBLE_EQ(json["prediction"]["step_seconds"], absl::ToDoubleSeconds(plan.prediction.step));
  EXPECT_EQ(json["training"]["transfers"].size(), plan.training.transfers.size());
  EXPECT_EQ(json["training"]["transfers"][0]["load"], plan.training.transfers[0].load);
  EXPECT_EQ(json["forward_only"]["visits"].size(), 6u);
  EXPECT_EQ(json["notes"].size(), plan.notes.size());
  EXPECT_EQ(json["slot_sizes"].size(), 0u);
  EXPECT_EQ(json["block_major"], false);
  EXPECT_EQ(json["base_trains"], false);
  EXPECT_EQ(json["blocks"][0]["offloads_boundary"], false);
  EXPECT_EQ(json["prediction"]["boundary_host_bytes"], 0);
  EXPECT_DOUBLE_EQ(json["prediction"]["even_spacing_bound_seconds"],
                   absl::ToDoubleSeconds(plan.prediction.even_spacing_bound));
}

TEST(PlanToTextTest, SaysWhereBytesAreAndWhy) {
  const std::string text = PlanToText(ExamplePlan());
  EXPECT_THAT(text, AllOf(HasSubstr("4 streamed over 2 slots of 512 B"), HasSubstr("budget"),
                          HasSubstr("page-locked"), HasSubstr("step"), HasSubstr("bound"),
                          HasSubstr("note: 1.5 KiB of host masters stay pageable")));
}

TEST(PlanToTextTest, AStripShowsEveryBlock) {
  SwapPlan plan = ExamplePlan();
  plan.blocks[1].keeps_activations = true;
  plan.blocks[5].tier = HostTier::kFile;
  EXPECT_THAT(PlanToText(plan), HasSubstr("strip      .@--#_\n"));
}

TEST(PlanToTextTest, AStripOfManyBlocksIsBroken) {
  PlanRequest request = MakeUniformModel(61, 512).request();
  EXPECT_THAT(PlanToText(*Plan(request)),
              HasSubstr("strip      " + std::string(60, '#') + "\n           #\n"));
}

TEST(PlanToTextTest, ARangeOfBlocksIsWrittenAsOne) {
  PlanRequest request = MakeUniformModel(6, 512).request();
  request.constraints.blocks_to_swap = 6;
  EXPECT_THAT(PlanToText(*Plan(request)), HasSubstr("streamed   0-5\n"));
  request.constraints.blocks_to_swap = 0;
  EXPECT_THAT(PlanToText(*Plan(request)), HasSubstr("streamed   none\n"));
}

}  // namespace
}  // namespace blockswap::offload
