// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/candidate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::ElementsAre;

// Like FLUX.1: 19 double blocks and 38 single ones of half the size, at most 34 to swap.
ModelProfile TwoLists() {
  ModelProfile model = MakeUniformModel(57, 256).request().model;
  for (int block = 0; block < 19; ++block) model.blocks[static_cast<size_t>(block)].bytes = 512;
  model.lists = {{"double_blocks", 0, 19, 17}, {"single_blocks", 19, 38, 36}};
  model.max_blocks_to_swap = 34;
  return model;
}

TEST(StreamedPerListTest, OneListTakesTheNumberItself) {
  ModelProfile model = MakeUniformModel(8, 256).request().model;
  EXPECT_THAT(StreamedPerList(model, TransferMode::kH2dOnly, 5), ElementsAre(5));
  EXPECT_THAT(StreamedPerList(model, TransferMode::kH2dOnly, 8), ElementsAre(8));
  EXPECT_THAT(StreamedPerList(model, TransferMode::kExchange, 8), ElementsAre(7));
}

TEST(StreamedPerListTest, TwoListsFollowTheMapping) {
  const ModelProfile model = TwoLists();
  EXPECT_THAT(StreamedPerList(model, TransferMode::kH2dOnly, 0), ElementsAre(0, 0));
  EXPECT_THAT(StreamedPerList(model, TransferMode::kH2dOnly, 1), ElementsAre(0, 3));
  EXPECT_THAT(StreamedPerList(model, TransferMode::kH2dOnly, 10), ElementsAre(5, 11));
  // facts/musubi.md 1.3: 36 of HunyuanVideo's 20 + 40 are 18 double and 37 single; here the lists
  // are shorter.
  EXPECT_THAT(StreamedPerList(model, TransferMode::kH2dOnly, 34), ElementsAre(17, 35));
}

TEST(StreamedPerListTest, NeverExceedsAListsLimit) {
  ModelProfile model = TwoLists();
  model.lists[1].max_streamed = 6;
  EXPECT_THAT(StreamedPerList(model, TransferMode::kH2dOnly, 20), ElementsAre(10, 6));
}

TEST(MaxBlocksToSwapTest, IsTheModelsOrWhatTheModeCanDo) {
  EXPECT_EQ(MaxBlocksToSwap(TwoLists(), TransferMode::kH2dOnly), 34);
  ModelProfile model = MakeUniformModel(8, 256).request().model;
  EXPECT_EQ(MaxBlocksToSwap(model, TransferMode::kH2dOnly), 8);
  EXPECT_EQ(MaxBlocksToSwap(model, TransferMode::kExchange), 7);
  model.max_blocks_to_swap = 6;
  model.lists = {{"blocks", 0, 8, 8}};
  EXPECT_EQ(MaxBlocksToSwap(model, TransferMode::kExchange), 6);
}

TEST(MakeCandidateTest, SpacesEachListEvenlyAndCountsEveryByte) {
  PlanRequest request;
  request.model = TwoLists();
  request.model.edge_bytes = 1000;
  const Candidate candidate = MakeCandidate(request, 10, 2);
  EXPECT_EQ(candidate.streamed.size(), 16u);
  EXPECT_EQ(candidate.streamed[0], 1);
  EXPECT_EQ(candidate.streamed[5], 19 + 1);
  EXPECT_EQ(candidate.slots, 2);
  EXPECT_EQ(candidate.slot_bytes, 512);
  EXPECT_EQ(candidate.host_bytes, 5 * 512 + 11 * 256);
  EXPECT_EQ(candidate.resident_bytes, 14 * 512 + 27 * 256);
  EXPECT_EQ(candidate.device_bytes, candidate.resident_bytes + 2 * 512 + 1000);
  EXPECT_EQ(candidate.staging_bytes, 0);
}

TEST(MakeCandidateTest, BlocksOutsideTheListsStayResident) {
  PlanRequest request = MakeUniformModel(8, 256).request();
  request.model.lists = {{"blocks", 2, 4, 4}};
  request.model.max_blocks_to_swap = 4;
  const Candidate candidate = MakeCandidate(request, 4, 2);
  EXPECT_THAT(candidate.streamed, ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(candidate.resident_bytes, 4 * 256);
}

}  // namespace
}  // namespace blockswap::offload
