// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/gpu_collector.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <string>

#include "tests/fakes/fake_nvml_control.h"

namespace blockswap::server {
namespace {

using std::chrono::seconds;
using testing::FakeNvmlControl;

// "name{label=value,...}" to value.
using Series = std::map<std::string, double>;

Series SeriesOf(const Collector::Families& families) {
  Series series;
  for (const auto& family : families) {
    for (const auto& metric : family.metric) {
      std::string name = family.name + "{";
      for (const auto& label : metric.label) name += label.name + "=" + label.value + ",";
      series[name + "}"] = family.type == prometheus::MetricType::Counter ? metric.counter.value
                                                                          : metric.gauge.value;
    }
  }
  return series;
}

const std::string kGpu = "{gpu=cuda-0,uuid=GPU-fake,}";

class GpuCollectorTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(nvml_.is_loaded()); }

  GpuCollectorOptions Options() const {
    GpuCollectorOptions options;
    options.library = ::getenv("BLOCKSWAP_FAKE_NVML");
    return options;
  }
  Series Read(const Collector::Read& read) {
    const auto families = read();
    EXPECT_TRUE(families.ok()) << families.status();
    return families.ok() ? SeriesOf(*families) : Series();
  }

  FakeNvmlControl nvml_{::getenv("BLOCKSWAP_FAKE_NVML")};
  const std::shared_ptr<DeviceUse> use_ = std::make_shared<DeviceUse>();
};

TEST_F(GpuCollectorTest, GivesWhatTheDriverMeasuresInBaseUnits) {
  nvml_.Set("utilization", 37);
  nvml_.Set("power", 250500);
  nvml_.Set("temperature", 61);
  nvml_.Set("clock", 1980);
  const Series series = Read(ReadGpus(Options(), use_));
  EXPECT_DOUBLE_EQ(series.at("blockswap_gpu_utilization_ratio" + kGpu), 0.37);
  EXPECT_DOUBLE_EQ(series.at("blockswap_gpu_power_watts" + kGpu), 250.5);
  EXPECT_DOUBLE_EQ(series.at("blockswap_gpu_temperature_celsius" + kGpu), 61);
  EXPECT_DOUBLE_EQ(series.at("blockswap_gpu_sm_clock_hertz" + kGpu), 1.98e9);
  EXPECT_DOUBLE_EQ(series.at("blockswap_gpu_memory_total_bytes" + kGpu), 8000.0 * (1 << 20));
  EXPECT_DOUBLE_EQ(series.at("blockswap_gpu_memory_free_bytes" + kGpu), 1000.0 * (1 << 20));
  EXPECT_DOUBLE_EQ(series.at("blockswap_gpu_memory_used_bytes" + kGpu), 7000.0 * (1 << 20));
}

// F123: a figure that is not known is absent, not 0.
TEST_F(GpuCollectorTest, WhatTheCardDoesNotMeasureIsAbsent) {
  nvml_.Set("unsupported", 1);
  const Series series = Read(ReadGpus(Options(), use_));
  EXPECT_EQ(series.count("blockswap_gpu_memory_total_bytes" + kGpu), 1u);
  EXPECT_EQ(series.size(), 3u);
}

TEST_F(GpuCollectorTest, SumsEnergyAndBusBytesFromItsStart) {
  nvml_.Set("energy", 5e6);
  nvml_.Set("rx", 1000);
  nvml_.Set("tx", 500);
  const Collector::Read read = ReadGpus(Options(), use_);
  EXPECT_EQ(Read(read).at("blockswap_gpu_energy_joules_total" + kGpu), 0);
  nvml_.Set("energy", 5e6 + 1500);
  nvml_.Set("rx", 4000);
  Series series = Read(read);
  EXPECT_DOUBLE_EQ(series.at("blockswap_gpu_energy_joules_total" + kGpu), 1.5);
  EXPECT_EQ(series.at("blockswap_gpu_pcie_bytes_total{direction=rx,gpu=cuda-0,}"), 3000);
  EXPECT_EQ(series.at("blockswap_gpu_pcie_bytes_total{direction=tx,gpu=cuda-0,}"), 0);
  // The driver was loaded anew: it counts from 0, ours goes on.
  nvml_.Set("energy", 100);
  nvml_.Set("rx", 10);
  series = Read(read);
  EXPECT_DOUBLE_EQ(series.at("blockswap_gpu_energy_joules_total" + kGpu), 1.5);
  EXPECT_EQ(series.at("blockswap_gpu_pcie_bytes_total{direction=rx,gpu=cuda-0,}"), 3010);
}

TEST_F(GpuCollectorTest, NarrowBusCounterMayWrap) {
  nvml_.Set("narrow_bus", 1);
  nvml_.Set("rx", 4294967290.0);
  const Collector::Read read = ReadGpus(Options(), use_);
  Read(read);
  nvml_.Set("rx", 4);
  EXPECT_EQ(Read(read).at("blockswap_gpu_pcie_bytes_total{direction=rx,gpu=cuda-0,}"), 10);
}

TEST_F(GpuCollectorTest, XidsAreCountedByCodeForEver) {
  const Collector::Read read = ReadGpus(Options(), use_);
  EXPECT_EQ(Read(read).count("blockswap_device_xid_errors_total{gpu=cuda-0,xid=31,}"), 0u);
  for (const double xid : {31, 31, 79, 100000}) nvml_.Set("xid", xid);
  Series series = Read(read);
  EXPECT_EQ(series.at("blockswap_device_xid_errors_total{gpu=cuda-0,xid=31,}"), 2);
  EXPECT_EQ(series.at("blockswap_device_xid_errors_total{gpu=cuda-0,xid=79,}"), 1);
  EXPECT_EQ(series.at("blockswap_device_xid_errors_total{gpu=cuda-0,xid=other,}"), 1);
  EXPECT_EQ(Read(read), series);
}

// Rows 6 and 7: who acts on them hears of them, also when the driver stops answering.
TEST_F(GpuCollectorTest, XidsArePassedOnThoughTheReadingFailsAndAreCountedWhenItIsBack) {
  const auto xids = std::make_shared<XidQueue>();
  const Collector::Read read = ReadGpus(Options(), use_, xids);
  Read(read);
  EXPECT_TRUE(xids->TakeAll().empty());
  nvml_.Set("xid", 79);
  nvml_.Set("lost", 1);
  EXPECT_FALSE(read().ok());
  const std::vector<XidEvent> events = xids->TakeAll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].uuid, "GPU-fake");
  EXPECT_EQ(events[0].xid, 79);
  nvml_.Set("lost", 0);
  EXPECT_EQ(Read(read).at("blockswap_device_xid_errors_total{gpu=cuda-0,xid=79,}"), 1);
  EXPECT_TRUE(xids->TakeAll().empty());
}

TEST_F(GpuCollectorTest, WithoutHealthADcgmExporterHasItsFamiliesAlone) {
  GpuCollectorOptions options = Options();
  options.health = false;
  const Series series = Read(ReadGpus(options, use_));
  for (const char* theirs : {"blockswap_gpu_power_watts", "blockswap_gpu_temperature_celsius",
                             "blockswap_gpu_energy_joules_total", "blockswap_gpu_sm_clock_hertz"}) {
    EXPECT_EQ(series.count(theirs + kGpu), 0u) << theirs;
  }
  EXPECT_EQ(series.count("blockswap_gpu_utilization_ratio" + kGpu), 1u);
}

TEST_F(GpuCollectorTest, ThrottlingIsTimeWithTheReasonSet) {
  GpuFigures figures(/*health=*/true);
  GpuReading reading;
  reading.uuid = "GPU-fake";
  reading.throttle_bits = 0x20;
  const std::string thermal =
      "blockswap_gpu_throttle_seconds_total{gpu=cuda-0,reason=thermal,uuid=GPU-fake,}";
  const std::string power =
      "blockswap_gpu_throttle_seconds_total{gpu=cuda-0,reason=power,uuid=GPU-fake,}";
  SteadyTime now{seconds(100)};
  EXPECT_EQ(SeriesOf(figures.Update({reading}, {}, now)).at(thermal), 0);
  now += seconds(3);
  Series series = SeriesOf(figures.Update({reading}, {}, now));
  EXPECT_DOUBLE_EQ(series.at(thermal), 3);
  EXPECT_DOUBLE_EQ(series.at(power), 0);
  reading.throttle_bits = 0x4;
  now += seconds(2);
  series = SeriesOf(figures.Update({reading}, {}, now));
  EXPECT_DOUBLE_EQ(series.at(thermal), 3);
  EXPECT_DOUBLE_EQ(series.at(power), 2);
}

TEST_F(GpuCollectorTest, DriverThatDoesNotAnswerIsAnErrorUntilItDoes) {
  const Collector::Read read = ReadGpus(Options(), use_);
  Read(read);
  nvml_.Set("lost", 1);
  EXPECT_EQ(read().status().code(), absl::StatusCode::kUnavailable);
  nvml_.Set("lost", 0);
  EXPECT_EQ(Read(read).count("blockswap_gpu_memory_total_bytes" + kGpu), 1u);
}

TEST_F(GpuCollectorTest, MissingLibraryIsAnErrorOnlyWhereAGpuIs) {
  GpuCollectorOptions options;
  options.library = "libno-such-nvml.so";
  EXPECT_TRUE(ReadGpus(options, use_)().ok());
  options.expects_gpu = true;
  EXPECT_EQ(ReadGpus(options, use_)().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(GpuCollectorTest, TellsDeviceMemoryOfEachProcess) {
  nvml_.Set("pid", 4711);
  nvml_.Set("process_bytes", 123456);
  Read(ReadGpus(Options(), use_));
  EXPECT_EQ(use_->Of(4711), 123456);
  EXPECT_EQ(use_->Of(4712), std::nullopt);
}

// Row 8 of the fault list: the driver hangs, the scrape does not.
TEST_F(GpuCollectorTest, HungDriverTakesItsFamiliesAndNoTime) {
  CollectorOptions options;
  options.period = std::chrono::milliseconds(1);
  options.timeout = std::chrono::milliseconds(20);
  CollectorSet set;
  const Collector& gpus = set.Add("nvml", ReadGpus(Options(), use_), options);
  ASSERT_TRUE(gpus.WaitForRounds(1, seconds(10)));
  EXPECT_EQ(SeriesOf(set.Collect()).count("blockswap_gpu_memory_total_bytes" + kGpu), 1u);
  nvml_.Set("hang", 1);
  const SteadyTime deadline = SteadyNow() + seconds(10);
  Series series;
  do {
    const SteadyTime begin = SteadyNow();
    series = SeriesOf(set.Collect());
    EXPECT_LT(SteadyNow() - begin, seconds(1));
  } while (series.count("blockswap_gpu_memory_total_bytes" + kGpu) == 1 && SteadyNow() < deadline);
  EXPECT_EQ(series.count("blockswap_gpu_memory_total_bytes" + kGpu), 0u);
  EXPECT_GE(series.at("blockswap_metrics_collect_errors_total{collector=nvml,}"), 1);
  nvml_.Set("hang", 0);
  ASSERT_TRUE(gpus.WaitForRounds(gpus.Latest().rounds + 2, seconds(10)));
  EXPECT_EQ(SeriesOf(set.Collect()).count("blockswap_gpu_memory_total_bytes" + kGpu), 1u);
}

}  // namespace
}  // namespace blockswap::server
