// SPDX-License-Identifier: Apache-2.0
#include "server/device/mig.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "server/device/gpu_driver.h"
#include "server/device/nvml.h"

namespace blockswap::server {
namespace {

class MigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Say("FAKE_NVML", "3 4 8 16 500");
    Say("FAKE_NVML_CARDS", "2");
    Say("FAKE_NVML_MIG", "2");
  }
  void TearDown() override {
    for (const char* name : {"FAKE_NVML", "FAKE_NVML_CARDS", "FAKE_NVML_MIG"}) ::unsetenv(name);
  }
  static void Say(const char* name, const char* text) { ::setenv(name, text, /*overwrite=*/1); }
  static GpuDriver Open(std::optional<std::string> visible = std::nullopt) {
    GpuDriverOptions options;
    options.library = ::getenv("BLOCKSWAP_FAKE_NVML");
    options.visible = std::move(visible);
    return OpenGpuDriver(options);
  }
};

TEST(GpuDeviceNameTest, TellsPartsApart) {
  EXPECT_EQ(GpuDeviceName(3, {}), "cuda-3");
  EXPECT_EQ(GpuDeviceName(0, {7, 0}), "cuda-0-mig-7");
  EXPECT_EQ(GpuDeviceName(0, {7, 1}), "cuda-0-mig-7-1");
}

TEST_F(MigTest, DividedGpuIsListedAsItsPartsWithTheBusOfTheWhole) {
  const GpuDriver driver = Open();
  ASSERT_EQ(driver.gpus.size(), 3u) << driver.problem;
  const GpuFacts& part = driver.gpus[1];
  EXPECT_EQ(part.index, 0);
  EXPECT_EQ(part.uuid, "MIG-00000000-0002");
  EXPECT_EQ(part.card_uuid, "GPU-card-0");
  EXPECT_EQ(part.part.gpu_instance, 8);
  EXPECT_EQ(part.name, "Fake GPU MIG 1g.2gb");
  EXPECT_EQ(part.total_bytes, int64_t{4000} << 20);
  EXPECT_EQ(part.free_bytes, int64_t{2000} << 20);
  EXPECT_EQ(part.link.generation, 3);
  EXPECT_EQ(part.link.width, 8);
  EXPECT_EQ(driver.gpus[2].uuid, "GPU-card-1");
  EXPECT_FALSE(driver.gpus[2].part.is_part());
}

// F121: the variable names parts by UUID; the divided GPU has no index any more.
TEST_F(MigTest, VisibleDevicesNameParts) {
  const GpuDriver driver = Open("MIG-00000000-0002,1");
  ASSERT_EQ(driver.gpus.size(), 2u) << driver.problem;
  EXPECT_EQ(driver.gpus[0].uuid, "MIG-00000000-0002");
  EXPECT_EQ(driver.gpus[1].uuid, "GPU-card-1");
  EXPECT_TRUE(Open("0").gpus.empty());
}

}  // namespace
}  // namespace blockswap::server
