// SPDX-License-Identifier: Apache-2.0
// What a running worker says of its copies, its loading and its plans reaches clients and metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/testing/metric_text.h"
#include "tests/server/testing/metrics_page.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience(30);
constexpr char kAchieved[] =
    "blockswap_swap_achieved_bytes_per_second{direction=\"h2d\",slot=\"cuda-0\"}";
constexpr char kDegraded[] = "blockswap_device_link_degraded{gpu=\"cuda-0\",uuid=\"GPU-fake\"}";

// The daemon finds a GPU (tests/fakes/fake_nvml.cc) whose link test measures 24 GB/s upwards.
class TelemetryTest : public ::testing::Test {
 protected:
  TelemetryTest() {
    server_ = std::make_unique<TestServer>(directory_.path(), [](ServerConfig& config) {
      config.http = "127.0.0.1:0";
      config.measure_links = true;
    });
    EXPECT_TRUE(Eventually([this] { return Device().link().h2d_bytes_per_second() > 0; }));
  }
  static bool Eventually(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }
  v1::Device Device() {
    grpc::ClientContext context;
    v1::ListDevicesResponse devices;
    EXPECT_TRUE(server_->admin().ListDevices(&context, {}, &devices).ok());
    EXPECT_EQ(devices.devices_size(), 1);
    return devices.devices_size() == 1 ? devices.devices(0) : v1::Device();
  }
  // Of one series, by its name and labels.
  double Metric(const std::string& series) const {
    return TextValueOf(MetricsPage(server_->daemon().http_port()), series);
  }
  // Runs until it holds; returns its events up to the step before that.
  std::vector<v1::JobEvent> RunToHold(const v1::Job& job, int64_t held_after) {
    return server_->Watch(job.name(), [held_after](const v1::JobEvent& event) {
      return event.progress().step() >= held_after;
    });
  }
  static int64_t Warnings(const std::vector<v1::JobEvent>& events) {
    return std::count_if(events.begin(), events.end(), [](const v1::JobEvent& event) {
      return event.type() == v1::JobEvent::TYPE_WARNING && event.reason() == "LINK_BELOW_PROFILE";
    });
  }

  TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
};

TEST_F(TelemetryTest, CopiesFarBelowTheMeasuredLinkAreWarnedOfOnceAnAttempt) {
  // Seven verdicts, all bad; the second attempt has a warning of its own.
  const v1::Job job =
      server_->MustCreate("slow", "steps=12 save=8 link_gib=3 link_gbps=5 hold_at=9 crash_at=9");
  RunToHold(job, 8);
  EXPECT_THAT(Device().link_warning(), HasSubstr("reach 5.0 GB/s while the job runs"));
  EXPECT_NEAR(Metric(kAchieved), 5e9, 1e3);
  EXPECT_TRUE(Eventually([this] { return Metric(kDegraded) == 1; }));
  LetGo(job);
  EXPECT_EQ(server_->WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);

  const auto stored = server_->daemon().store().EventsAfter(0, job.name().substr(5), 1000);
  ASSERT_TRUE(stored.ok()) << stored.status();
  std::vector<int> attempts;
  for (const EventRecord& event : *stored) {
    if (event.reason == "LINK_BELOW_PROFILE") attempts.push_back(event.attempt);
  }
  EXPECT_THAT(attempts, testing::ElementsAre(1, 2));
  const v1::Job done = server_->Get(job.name());
  EXPECT_THAT(done.ShortDebugString(), HasSubstr("measured 24.0"));
  // It was of the job, not of the device.
  EXPECT_TRUE(Eventually([this] { return Device().link_warning().empty(); }));
}

TEST_F(TelemetryTest, CopiesAtTheMeasuredRateAreNoWarning) {
  const v1::Job job = server_->MustCreate("fast", "steps=9 link_gib=3 link_gbps=22 hold_at=9");
  const auto events = RunToHold(job, 8);
  EXPECT_EQ(Warnings(events), 0);
  EXPECT_EQ(Device().link_warning(), "");
  EXPECT_NEAR(Metric(kAchieved), 22e9, 1e3);
  LetGo(job);
  EXPECT_EQ(server_->WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Warnings(server_->WatchToEnd(job.name())), 0);
}

TEST_F(TelemetryTest, AnotherPlanOfARunningJobIsShownAndCounted) {
  const v1::Job job = server_->MustCreate("replan", "steps=5 replan_at=3 hold_at=5");
  RunToHold(job, 4);
  EXPECT_EQ(server_->Get(job.name()).plan().text(), "another fake plan");
  EXPECT_EQ(Metric("blockswap_plan_changes_total{reason=\"MEASURED_TIME\",slot=\"cuda-0\"}"), 1);
  LetGo(job);
  server_->WaitTerminal(job.name());
  const auto stored = server_->daemon().store().EventsAfter(0, job.name().substr(5), 1000);
  ASSERT_TRUE(stored.ok()) << stored.status();
  std::vector<std::string> replans;
  for (const EventRecord& event : *stored) {
    if (event.reason == "REPLANNED") replans.push_back(event.message);
  }
  EXPECT_THAT(replans, testing::ElementsAre("MEASURED_TIME after step 3"));
}

TEST_F(TelemetryTest, LoadingIsShownInBytesUntilItIsOver) {
  constexpr int64_t kAll = int64_t{12} << 30;
  const v1::Job job = server_->MustCreate("load", "steps=3 load_gib=12 hold_at=3");
  const auto events = server_->Watch(job.name(), [](const v1::JobEvent& event) {
    return event.progress().phase_bytes_total() > 0;
  });
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().progress().phase(), "loading");
  EXPECT_EQ(events.back().progress().phase_bytes_done(), kAll / 2);
  const v1::Job loading = server_->Get(job.name());
  EXPECT_EQ(loading.state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(loading.progress().phase_bytes_done(), kAll / 2);
  EXPECT_EQ(loading.progress().phase_bytes_total(), kAll);
  LetGo(job);
  const v1::Job done = server_->WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.progress().phase_bytes_total(), 0);
}

}  // namespace
}  // namespace blockswap::server
