// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/card_models.h"

#include <gtest/gtest.h>

#include "offload/plan/planner.h"
#include "offload/plan/refusal.h"

namespace blockswap::bench {
namespace {

int64_t BlockBytes(const offload::ModelProfile& profile) {
  int64_t bytes = 0;
  for (const offload::BlockProfile& block : profile.blocks) bytes += block.bytes;
  return bytes;
}

CardModel Find(const std::string& name) {
  for (const CardModel& model : CardModels()) {
    if (model.name == name) return model;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(CardModelsTest, WeightsAddUpToThePublishedSizes) {
  for (const CardModel& model : CardModels()) {
    const offload::ModelProfile profile = ProfileOf(model, /*host_modulation=*/false);
    const int64_t total = BlockBytes(profile) + profile.edge_bytes;
    EXPECT_NEAR(static_cast<double>(total), 2.0 * static_cast<double>(model.total_parameters), 1e5)
        << model.name;
    EXPECT_GT(profile.edge_bytes, 0) << model.name;
  }
}

TEST(CardModelsTest, ModulationIsTheShareThatIsPublished) {
  const auto share = [](const char* name) {
    const CardModel model = Find(name);
    const double all = static_cast<double>(BlockBytes(ProfileOf(model, false)));
    return 1 - static_cast<double>(BlockBytes(ProfileOf(model, true))) / all;
  };
  EXPECT_NEAR(share("Qwen-Image"), 0.33, 0.01);
  EXPECT_NEAR(share("MiniMax H3"), 0.40, 0.01);
  EXPECT_EQ(share("Wan 14B"), 0.0);
}

TEST(CardModelsTest, ModulationCostsNoCompute) {
  for (const CardModel& model : CardModels()) {
    EXPECT_EQ(ProfileOf(model, true).forward_flops, ProfileOf(model, false).forward_flops)
        << model.name;
  }
}

TEST(CardModelsTest, BlocksOfOneListAreEqualAndListsCoverThem) {
  const offload::ModelProfile flux = ProfileOf(Find("FLUX.1-dev"), false);
  ASSERT_EQ(flux.lists.size(), 2u);
  EXPECT_EQ(flux.lists[1].first, 19);
  EXPECT_EQ(flux.blocks.size(), 57u);
  EXPECT_EQ(flux.blocks[0].bytes, flux.blocks[18].bytes);
  EXPECT_LT(flux.blocks[19].bytes, flux.blocks[18].bytes);
}

TEST(CardModelsTest, LinearsAreAllButNormsAndTables) {
  for (const CardModel& model : CardModels()) {
    for (const BlockShape& shape : model.lists) {
      int64_t rest = shape.parameters - shape.modulation_parameters;
      for (const int64_t parameters : shape.linears) rest -= parameters;
      EXPECT_GT(rest, 0) << model.name;
      EXPECT_LT(rest, shape.parameters / 1000) << model.name;
    }
  }
}

TEST(CardModelsTest, OneLinearAtATimeNeedsLessMemoryThanOneBlockAtATime) {
  for (const CardModel& model : CardModels()) {
    offload::PlanRequest request;
    request.model = ProfileOf(model, /*host_modulation=*/true);
    const auto least = [&request] {
      return offload::SmallestCandidate(request, /*ring_size=*/1, /*free_choice=*/true, {})
          .device_bytes;
    };
    const int64_t blocks = least();
    request.constraints.granularity = offload::Granularity::kLayer;
    EXPECT_LT(least(), blocks) << model.name;
  }
}

}  // namespace
}  // namespace blockswap::bench
