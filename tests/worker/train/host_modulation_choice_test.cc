// SPDX-License-Identifier: Apache-2.0
#include "worker/train/host_modulation_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/worker/testing/tiny_job.h"
#include "worker/train/job_identity.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;
using testing::TinyJob;

absl::StatusOr<offload::SwapPlan> PlanOf(absl::Duration step) {
  offload::SwapPlan plan;
  plan.prediction.step = step;
  return plan;
}

absl::StatusOr<offload::SwapPlan> NoPlan() { return absl::FailedPreconditionError("too small"); }

TEST(HostModulationChoiceTest, TheFasterStepWins) {
  const auto judged = [](double device, double host, double host_work) {
    return JudgeHostModulation(PlanOf(absl::Seconds(device)), PlanOf(absl::Seconds(host)),
                               absl::Seconds(host_work));
  };
  EXPECT_TRUE(judged(3, 2, 1).on);
  EXPECT_FALSE(judged(3, 2, 4).on) << "the host would be the bottleneck";
  EXPECT_TRUE(judged(3, 2, 2.5).on) << "still faster";
  EXPECT_FALSE(judged(3, 2.99, 1).on) << "not worth it";
  EXPECT_THAT(judged(3, 2, 1).reason, HasSubstr("2s so and 3s"));
}

TEST(HostModulationChoiceTest, FittingAtAllComesFirst) {
  EXPECT_TRUE(JudgeHostModulation(NoPlan(), PlanOf(absl::Seconds(1)), absl::Seconds(9)).on);
  EXPECT_FALSE(JudgeHostModulation(PlanOf(absl::Seconds(1)), NoPlan(), absl::Seconds(0)).on);
  EXPECT_FALSE(JudgeHostModulation(NoPlan(), NoPlan(), absl::Seconds(0)).on);
}

TEST(HostModulationChoiceTest, WithoutSpeedsNothingIsMoved) {
  const auto verdict = JudgeHostModulation(PlanOf(absl::ZeroDuration()),
                                           PlanOf(absl::ZeroDuration()), absl::Seconds(1));
  EXPECT_FALSE(verdict.on);
  EXPECT_THAT(verdict.reason, HasSubstr("no speed"));
}

TEST(HostModulationChoiceTest, TheHostsTimeIsMeasuredOnTheWeightsThemselves) {
  const TinyJob tiny;
  auto job = tiny.Open({"memory.host_modulation=on"});
  ASSERT_TRUE(job.ok()) << job.status().message();
  const auto took = TimeHostModulation(job->model, *job->weights, 1);
  ASSERT_TRUE(took.ok()) << took.status().message();
  EXPECT_GT(*took, absl::ZeroDuration());
}

// The choice belongs to the result, so it outlives a change of device and of budget.
TEST(HostModulationChoiceTest, AJobKeepsWhatItBeganWith) {
  const TinyJob tiny;
  const auto nobody = []() -> absl::StatusOr<DeviceSession*> {
    return absl::InternalError("not to be asked");
  };
  const std::string output = tiny.output("recorded");
  std::filesystem::create_directories(output);
  for (const bool on : {true, false}) {
    auto began = tiny.Open({on ? "memory.host_modulation=on" : "memory.host_modulation=off"});
    ASSERT_TRUE(began.ok());
    std::ofstream(output + "/job.json") << IdentityToJson(IdentityOf(*began));
    auto later = tiny.Open({"memory.host_modulation=auto", "memory.vram_budget=3MiB"});
    ASSERT_TRUE(later.ok());
    const auto note = SettleHostModulation(output, nobody, &*later);
    ASSERT_TRUE(note.ok()) << note.status().message();
    EXPECT_THAT(*note, HasSubstr("as when the job began"));
    EXPECT_EQ(later->model.host_modulation, on);
    EXPECT_EQ(DescribeDifference(IdentityOf(*began), IdentityOf(*later)), "");
  }
}

TEST(HostModulationChoiceTest, ANewJobOnTheHostDeviceLeavesItOff) {
  const TinyJob tiny;
  auto session = DeviceSession::Open({"host", std::nullopt, {}});
  ASSERT_TRUE(session.ok());
  auto job = tiny.Open();
  ASSERT_TRUE(job.ok());
  const auto note = SettleHostModulation(
      tiny.output("new"), [&]() -> absl::StatusOr<DeviceSession*> { return session->get(); },
      &*job);
  ASSERT_TRUE(note.ok()) << note.status().message();
  EXPECT_EQ(*note, "");
  EXPECT_FALSE(job->model.host_modulation);
}

TEST(HostModulationChoiceTest, OnAndOffAreTwoJobs) {
  const TinyJob tiny;
  const auto on = tiny.Open({"memory.host_modulation=on"});
  const auto off = tiny.Open({"memory.host_modulation=off"});
  ASSERT_TRUE(on.ok() && off.ok());
  EXPECT_THAT(DescribeDifference(IdentityOf(*on), IdentityOf(*off)),
              HasSubstr("memory.host_modulation is on there and not set here"));
}

}  // namespace
}  // namespace blockswap::worker
