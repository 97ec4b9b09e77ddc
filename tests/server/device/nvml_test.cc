// SPDX-License-Identifier: Apache-2.0
// The driver's library, and what becomes of its answers: device table and metrics.
#include "server/device/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "server/device/device_table.h"
#include "server/metrics/server_metrics.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NvmlTest : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("FAKE_NVML"); }
  static void Say(const char* text) { ::setenv("FAKE_NVML", text, /*overwrite=*/1); }
  static std::unique_ptr<Nvml> Load() {
    auto nvml = Nvml::Load(::getenv("BLOCKSWAP_FAKE_NVML"));
    EXPECT_TRUE(nvml.ok()) << nvml.status();
    return nvml.ok() ? *std::move(nvml) : nullptr;
  }
  static DeviceState Gpu(DeviceTable& table) { return table.List().at(0); }
};

TEST_F(NvmlTest, TellsTheNegotiatedBusAndTheDriver) {
  Say("3 4 8 16 500");
  const auto nvml = Load();
  ASSERT_NE(nvml, nullptr);
  const auto gpus = nvml->Gpus();
  ASSERT_TRUE(gpus.ok() && gpus->size() == 1u) << gpus.status();
  EXPECT_EQ(gpus->at(0).link.generation, 3);
  EXPECT_EQ(gpus->at(0).link.max_generation, 4);
  EXPECT_EQ(gpus->at(0).link.width, 8);
  EXPECT_EQ(gpus->at(0).link.max_width, 16);
  EXPECT_EQ(gpus->at(0).free_bytes, int64_t{500} << 20);
  EXPECT_EQ(nvml->DriverVersion(), "580.1");
}

TEST_F(NvmlTest, LibraryThatIsNotThereIsNotFound) {
  EXPECT_EQ(Nvml::Load("libno-such-nvml.so").status().code(), absl::StatusCode::kNotFound);
}

// F053: a card in a slot with half its lanes goes unnoticed for months.
TEST_F(NvmlTest, CardWithHalfItsLanesIsWarnedOfAtOnce) {
  Say("4 4 8 16 500");
  DeviceTable table(Load(), 1 << 20, /*offer_host=*/false);
  EXPECT_THAT(Gpu(table).link_warning, HasSubstr("8 of 16 lanes"));
  Say("4 4 16 16 500");
  table.Refresh();
  EXPECT_THAT(Gpu(table).link_warning, IsEmpty());
}

TEST_F(NvmlTest, LowGenerationCountsOnlyWhileAJobRuns) {
  Say("1 4 16 16 500");
  DeviceTable table(Load(), 1 << 20, /*offer_host=*/false);
  EXPECT_THAT(Gpu(table).link_warning, IsEmpty());
  ASSERT_TRUE(table.Claim("cuda-0", "job").ok());
  table.Refresh();
  EXPECT_THAT(Gpu(table).link_warning, HasSubstr("PCIe 1"));
}

TEST_F(NvmlTest, LinkKeyNamesCardDriverAndBus) {
  Say("4 4 16 16 500");
  DeviceTable wide(Load(), 1 << 20, /*offer_host=*/false);
  Say("4 4 8 16 500");
  DeviceTable narrow(Load(), 1 << 20, /*offer_host=*/false);
  EXPECT_THAT(Gpu(wide).link_key, HasSubstr("GPU-fake"));
  EXPECT_THAT(Gpu(wide).link_key, HasSubstr("580.1"));
  EXPECT_NE(Gpu(wide).link_key, Gpu(narrow).link_key);
}

TEST_F(NvmlTest, MetricsSayGenerationLanesRatesAndDegradation) {
  Say("4 4 8 16 500");
  DeviceTable table(Load(), 1 << 20, /*offer_host=*/false);
  MeasuredLink link;
  link.h2d = 12e9;
  link.d2h = 13e9;
  link.duplex_factor = 1.25;
  link.measured_micros = 1;
  table.SetLink("cuda-0", link);
  ServerMetrics metrics(BuildInfo{"1", "abc", "1.51"});
  metrics.SetDevices(table.List());
  const std::string text = metrics.Render();
  const std::string labels = R"(gpu="cuda-0",uuid="GPU-fake")";
  EXPECT_THAT(
      text,
      HasSubstr(R"(blockswap_gpu_link_generation{gpu="cuda-0",kind="max",uuid="GPU-fake"} 4)"));
  EXPECT_THAT(
      text,
      HasSubstr(R"(blockswap_gpu_link_lanes{gpu="cuda-0",kind="current",uuid="GPU-fake"} 8)"));
  EXPECT_THAT(text, HasSubstr("blockswap_device_link_degraded{" + labels + "} 1"));
  EXPECT_THAT(text, HasSubstr("blockswap_device_link_duplex_ratio{" + labels + "} 1.25"));
  EXPECT_THAT(text, HasSubstr(R"(direction="h2d")"));
  Say("4 4 16 16 500");
  link.h2d = 25e9;
  table.SetLink("cuda-0", link);
  table.Refresh();
  metrics.SetDevices(table.List());
  EXPECT_THAT(metrics.Render(), HasSubstr("blockswap_device_link_degraded{" + labels + "} 0"));
}

}  // namespace
}  // namespace blockswap::server
