// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/device_profiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DeviceProfilesTest, EveryCardHasMemoryALinkAndASpeed) {
  std::set<std::string> names;
  for (const DeviceProfile& profile : DeviceProfiles()) {
    SCOPED_TRACE(profile.name);
    EXPECT_TRUE(names.insert(profile.name).second);
    EXPECT_GT(profile.usable_bytes(), 0);
    EXPECT_LT(profile.usable_bytes(), profile.vram_bytes);
    EXPECT_GT(profile.bf16_flops, 0);
    const LinkProfile& link = profile.link;
    EXPECT_GT(link.h2d_bytes_per_second, 0);
    EXPECT_GT(link.d2h_bytes_per_second, 0);
    // Slower paths are never faster.
    EXPECT_LE(link.pageable_bytes_per_second, link.h2d_bytes_per_second);
    EXPECT_LE(link.duplex_h2d_bytes_per_second, link.h2d_bytes_per_second);
    EXPECT_LE(link.duplex_d2h_bytes_per_second, link.d2h_bytes_per_second);
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("gh200", "h100", "h200", "rtx3090", "rtx4090", "rtx5090"));
}

// facts/offload.md 5.2: the tokens from which the copies of a fully streamed bf16 model are hidden.
TEST(DeviceProfilesTest, BreakEvenTokensAgreeWithTheTable) {
  const auto tokens = [](const char* name) {
    const DeviceProfile profile = *FindDeviceProfile(name);
    return 2 * profile.bf16_flops / (2 * profile.link.h2d_bytes_per_second);
  };
  EXPECT_NEAR(tokens("rtx3090"), 2400, 240);
  EXPECT_NEAR(tokens("rtx4090"), 5100, 510);
  EXPECT_NEAR(tokens("rtx5090"), 3040, 304);
  EXPECT_NEAR(tokens("h100"), 10900, 1090);
  EXPECT_NEAR(tokens("gh200"), 1580, 240);
}

TEST(FindDeviceProfileTest, AnUnknownNameIsToldTheKnownOnes) {
  EXPECT_EQ(FindDeviceProfile("rtx4090")->name, "rtx4090");
  EXPECT_THAT(std::string(FindDeviceProfile("rtx9999").status().message()),
              AllOf(HasSubstr("rtx9999"), HasSubstr("rtx3090"), HasSubstr("gh200")));
}

TEST(ProfileOfCardTest, KnowsDriversNames) {
  EXPECT_EQ(ProfileOfCard("NVIDIA GeForce RTX 4090")->name, "rtx4090");
  EXPECT_EQ(ProfileOfCard("NVIDIA H100 PCIe")->name, "h100");
  EXPECT_EQ(ProfileOfCard("NVIDIA H200")->name, "h200");
  EXPECT_EQ(ProfileOfCard("NVIDIA GH200 480GB")->name, "gh200");
  EXPECT_EQ(ProfileOfCard("NVIDIA GeForce RTX 4090 Laptop GPU"), nullptr);
  EXPECT_EQ(ProfileOfCard("Tesla T4"), nullptr);
}

TEST(RequestOnTest, TakesTheCardAndKeepsTheHost) {
  PlanRequest request = MakeUniformModel(4, 1024).request();
  request.host_available_bytes = 12345;
  request.link.file_bytes_per_second = 7;
  const DeviceProfile card = *FindDeviceProfile("rtx3090");
  const PlanRequest there = RequestOn(card, request);
  EXPECT_EQ(there.device_free_bytes, card.usable_bytes());
  EXPECT_EQ(there.link.h2d_bytes_per_second, card.link.h2d_bytes_per_second);
  EXPECT_EQ(there.link.file_bytes_per_second, 7);
  EXPECT_EQ(there.compute_flops_per_second, card.bf16_flops);
  EXPECT_EQ(there.host_available_bytes, 12345);
}

}  // namespace
}  // namespace blockswap::offload
