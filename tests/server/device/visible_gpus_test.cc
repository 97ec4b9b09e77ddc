// SPDX-License-Identifier: Apache-2.0
// F121: figures and jobs of the wrong GPU, because two libraries count differently.
#include "server/device/visible_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// In bus order; CUDA would put the fastest one first.
std::vector<GpuFacts> ThreeCards() {
  const auto card = [](int index, const char* uuid, const char* name, int64_t bytes) {
    GpuFacts gpu;
    gpu.index = index;
    gpu.uuid = uuid;
    gpu.name = name;
    gpu.total_bytes = gpu.free_bytes = bytes;
    return gpu;
  };
  return {card(0, "GPU-aaaa1111-0000", "slow card", 8),
          card(1, "GPU-aabb2222-0000", "fast card", 80),
          card(2, "GPU-cccc3333-0000", "slow card", 8)};
}

std::vector<std::string> Uuids(const VisibleGpus& visible) {
  std::vector<std::string> uuids;
  for (const GpuFacts& gpu : visible.gpus) uuids.push_back(gpu.uuid.substr(0, 8));
  return uuids;
}

VisibleGpus Select(const char* value, bool is_bus_order = true) {
  return SelectVisibleGpus(ThreeCards(), std::string(value), is_bus_order);
}

TEST(VisibleGpusTest, WithoutTheVariableAllAreVisible) {
  EXPECT_EQ(SelectVisibleGpus(ThreeCards(), std::nullopt, false).gpus.size(), 3u);
}

TEST(VisibleGpusTest, IndicesAreThoseOfTheDriverAndKeepTheirCards) {
  const VisibleGpus visible = Select("2,0");
  EXPECT_THAT(Uuids(visible), ElementsAre("GPU-cccc", "GPU-aaaa"));
  EXPECT_EQ(visible.gpus[0].index, 2);
  EXPECT_THAT(visible.note, IsEmpty());
}

TEST(VisibleGpusTest, IndicesOfUnlikeCardsAreDoubtfulUnlessTheOrderIsSaid) {
  EXPECT_THAT(Select("1", /*is_bus_order=*/false).note, HasSubstr("name them by UUID"));
  EXPECT_THAT(Select("1", /*is_bus_order=*/true).note, IsEmpty());
  EXPECT_THAT(Select("GPU-aabb", /*is_bus_order=*/false).note, IsEmpty());
}

TEST(VisibleGpusTest, WholeAndShortUuidsNameTheirCard) {
  EXPECT_THAT(Uuids(Select("GPU-aabb2222-0000,GPU-cc")), ElementsAre("GPU-aabb", "GPU-cccc"));
}

TEST(VisibleGpusTest, ShortUuidOfTwoCardsNamesNone) {
  const VisibleGpus visible = Select("GPU-aa");
  EXPECT_THAT(visible.gpus, IsEmpty());
  EXPECT_THAT(visible.note, HasSubstr("\"GPU-aa\" names no GPU here"));
}

TEST(VisibleGpusTest, PartOfADividedCardIsNamedByItsUuid) {
  std::vector<GpuFacts> gpus = ThreeCards();
  gpus[1].uuid = "MIG-0123";
  EXPECT_THAT(Uuids(SelectVisibleGpus(gpus, "MIG-0123", true)), ElementsAre("MIG-0123"));
  EXPECT_THAT(SelectVisibleGpus(gpus, "1", true).gpus, IsEmpty());
}

TEST(VisibleGpusTest, EmptyHidesAllAndIsNoMistake) {
  for (const char* value : {"", " "}) {
    const VisibleGpus visible = Select(value);
    EXPECT_THAT(visible.gpus, IsEmpty());
    EXPECT_THAT(visible.note, IsEmpty());
  }
}

TEST(VisibleGpusTest, WhatFollowsAnEntryThatNamesNoneIsNotVisible) {
  EXPECT_THAT(Uuids(Select("0,7,1")), ElementsAre("GPU-aaaa"));
  EXPECT_THAT(Select("0,7,1").note, HasSubstr("\"7\" names no GPU here"));
  EXPECT_THAT(Uuids(Select("-1,0")), IsEmpty());
  EXPECT_THAT(Uuids(Select("0,0,1")), ElementsAre("GPU-aaaa"));
}

}  // namespace
}  // namespace blockswap::server
