// SPDX-License-Identifier: Apache-2.0
// Faults that the scheduler has to live with: a real daemon, fake workers, fake GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SchedulingFaultsTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"FAKE_NVML", "FAKE_NVML_CARDS"}) ::unsetenv(name);
  }
  // Two cards of 8 and 16 GB.
  void UseTwoGpus() {
    ::setenv("FAKE_NVML", "4 4 16 16 8000", /*overwrite=*/1);
    ::setenv("FAKE_NVML_CARDS", "2", /*overwrite=*/1);
  }
  static void WithFakeGpus(ServerConfig& config) {
    config.gpu_library = ::getenv("BLOCKSWAP_FAKE_NVML");
  }
  // Until the job waits for that reason; the last it said else.
  static v1::Job WaitReason(TestServer& server, const std::string& name,
                            const std::string& reason) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    v1::Job job = server.Get(name);
    while (job.state_reason() != reason && std::chrono::steady_clock::now() < deadline) {
      job = server.Get(name);
    }
    EXPECT_EQ(job.state_reason(), reason) << job.state_message();
    return job;
  }
  static std::string Create(TestServer& server, const std::string& name, const std::string& script,
                            const std::map<std::string, std::string>& labels = {},
                            const std::string& device = "") {
    v1::CreateJobRequest request = server.Request(name, script);
    for (const auto& [key, value] : labels)
      (*request.mutable_spec()->mutable_labels())[key] = value;
    request.mutable_spec()->set_device(device);
    v1::Job job;
    const grpc::Status status = server.Create(request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job.name();
  }

  TemporaryDirectory directory_;
};

// F119: a job whose files vanished, one that crashes at load, a good one.
TEST_F(SchedulingFaultsTest, QueueGoesOnPastJobsThatCannotRun) {
  TestServer server(directory_.path());
  // Its output directory cannot be made: somebody put a file there while the job was held.
  v1::CreateJobRequest vanished = server.Request("vanished", "steps=1");
  vanished.mutable_spec()->set_hold(true);
  v1::Job first;
  ASSERT_TRUE(server.Create(vanished, &first).ok());
  std::filesystem::create_directories(directory_.path() + "/outputs");
  std::ofstream(first.output_directory()) << "in the way";
  v1::UpdateJobRequest release;
  *release.mutable_job() = first;
  release.mutable_job()->mutable_spec()->set_hold(false);
  release.mutable_update_mask()->add_paths("hold");
  grpc::ClientContext context;
  ASSERT_TRUE(server.training().UpdateJob(&context, release, &first).ok());
  const v1::Job second = server.MustCreate("crashes", "steps=3 crash_at=1 crash_attempts=100");
  const v1::Job third = server.MustCreate("good", "steps=3");
  EXPECT_EQ(server.WaitTerminal(third.name()).state(), v1::JOB_STATE_SUCCEEDED);
  const v1::Job failed = server.WaitTerminal(first.name());
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(failed.attempt(), 1);
  EXPECT_THAT(failed.failure().message(), HasSubstr("vanished"));
  const v1::Job crashed = server.WaitTerminal(second.name());
  EXPECT_EQ(crashed.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(crashed.attempt(), 4);
}

TEST_F(SchedulingFaultsTest, Row6FatalXidSendsTheJobToAnotherCardAndLeavesTheOthersAlone) {
  UseTwoGpus();
  TestServer server(directory_.path(), WithFakeGpus);
  const std::string hit = Create(server, "hit", "steps=4 hold_at=3 save=1", {}, "cuda:0");
  const std::string other = Create(server, "other", "steps=3 hold_at=2", {}, "cuda:1");
  server.WaitState(hit, v1::JOB_STATE_RUNNING);
  server.WaitState(other, v1::JOB_STATE_RUNNING);
  server.daemon().devices().ReportXid("GPU-card-0", 79);
  const v1::Job waits = WaitReason(server, hit, "DEVICE_UNHEALTHY");
  EXPECT_EQ(waits.state(), v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(waits.state_message(), HasSubstr("Xid 79"));
  EXPECT_TRUE(server.daemon().devices().HasUsable());
  LetGo(server.Get(other));
  EXPECT_EQ(server.WaitTerminal(other).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(server.WaitTerminal(other).attempt(), 1);
  LetGo(waits);
  ASSERT_TRUE(server.daemon().devices().Undrain("cuda-0").ok());
  EXPECT_EQ(server.WaitTerminal(hit).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(SchedulingFaultsTest, Row6JobThatMayRunAnywhereGoesOnElsewhere) {
  UseTwoGpus();
  TestServer server(directory_.path(), WithFakeGpus);
  const std::string job = Create(server, "job", "steps=4 hold_at=3 save=1");
  const v1::Job running = server.WaitState(job, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(running.device(), "devices/cuda-0");
  server.daemon().devices().ReportXid("GPU-card-0", 119);
  const auto moved = [](const v1::JobEvent& event) {
    return event.attempt() == 2 && event.state() == v1::JOB_STATE_RUNNING;
  };
  server.Watch(job, moved);
  LetGo(running);
  const v1::Job done = server.WaitTerminal(job);
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.device(), "devices/cuda-1");
}

TEST_F(SchedulingFaultsTest, Row48CardThatAnotherProgramUsesIsWaitedForWithNumbers) {
  UseTwoGpus();
  ::setenv("FAKE_NVML", "4 4 16 16 100", /*overwrite=*/1);
  TestServer server(directory_.path(), WithFakeGpus);
  const std::string job = Create(server, "job", "steps=1", {{"device_mib", "200"}});
  const v1::Job waits = WaitReason(server, job, "WAITING_FOR_VRAM");
  EXPECT_EQ(waits.state_message(), "waiting for memory of cuda-0: needs 200.0 MiB, free 100.0 MiB");
  EXPECT_EQ(waits.queue_position(), 1);
  ::setenv("FAKE_NVML", "4 4 16 16 300", /*overwrite=*/1);
  EXPECT_EQ(server.WaitTerminal(job).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(SchedulingFaultsTest, Row48CardThatDisappearsIsNotUsed) {
  UseTwoGpus();
  TestServer server(directory_.path(), WithFakeGpus);
  ::setenv("FAKE_NVML_CARDS", "1", /*overwrite=*/1);
  // The driver is asked once a second.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (server.daemon().devices().List().at(1).health == DeviceHealth::kHealthy &&
         std::chrono::steady_clock::now() < deadline) {
  }
  const std::string job = Create(server, "job", "steps=1", {}, "cuda:1");
  EXPECT_THAT(WaitReason(server, job, "DEVICE_UNHEALTHY").state_message(),
              HasSubstr("does not list it any more"));
  ::setenv("FAKE_NVML_CARDS", "2", /*overwrite=*/1);
  EXPECT_EQ(server.WaitTerminal(job).state(), v1::JOB_STATE_SUCCEEDED);
}

// F133: the disk that counts is the one the checkpoint is written to.
TEST_F(SchedulingFaultsTest, JobWaitsForRoomOnTheDiskItWritesTo) {
  const std::string outputs = directory_.path() + "/outputs";
  std::filesystem::create_directories(outputs);
  if (::mount("none", outputs.c_str(), "tmpfs", 0, "size=8m") != 0) {
    GTEST_SKIP() << "mounting needs CAP_SYS_ADMIN";
  }
  {
    TestServer server(directory_.path());
    const std::string job = Create(server, "job", "steps=1", {{"disk_mib", "10"}});
    const v1::Job waits = WaitReason(server, job, "WAITING_FOR_DISK");
    EXPECT_THAT(waits.state_message(),
                HasSubstr("waiting for room for a checkpoint: needs 10.0 MiB, free 6."));
    ASSERT_EQ(::mount("none", outputs.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
    EXPECT_EQ(server.WaitTerminal(job).state(), v1::JOB_STATE_SUCCEEDED);
  }
  ::umount2(outputs.c_str(), MNT_DETACH);
}

TEST_F(SchedulingFaultsTest, DeadlineEndsAJobWhateverItIsDoing) {
  TestServer server(directory_.path());
  const std::string running = Create(server, "running", "steps=9 hold_at=2 save=1");
  server.WaitState(running, v1::JOB_STATE_RUNNING);
  const std::string waiting = Create(server, "waiting", "steps=1");
  const auto soon = [](JobRecord& job, JobChange&) {
    job.deadline_micros = WallMicros() + 10'000;
    return absl::OkStatus();
  };
  // The one that waits first: it would run as soon as the other has ended.
  for (const std::string& name : {waiting, running}) {
    ASSERT_TRUE(server.daemon().store().UpdateJob(name.substr(5), soon).ok());
    const v1::Job late = server.WaitTerminal(name);
    EXPECT_EQ(late.state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(late.failure().category(), v1::FAILURE_CATEGORY_TIMEOUT);
    EXPECT_EQ(late.failure().reason(), "DEADLINE_EXCEEDED");
  }
  EXPECT_EQ(server.Get(running).attempt(), 1);
}

TEST_F(SchedulingFaultsTest, HeldJobAndPausedQueueStartNothingAndSayWhy) {
  TestServer server(directory_.path());
  ASSERT_TRUE(server.daemon().store().SetQueuePause(QueuePause{"new driver", 0}).ok());
  const std::string job = Create(server, "job", "steps=1");
  EXPECT_EQ(WaitReason(server, job, "QUEUE_PAUSED").state_message(),
            "the queue is paused: new driver");
  const auto hold = [](bool held) {
    return [held](JobRecord& record, JobChange&) {
      record.held = held;
      return absl::OkStatus();
    };
  };
  ASSERT_TRUE(server.daemon().store().UpdateJob(job.substr(5), hold(true)).ok());
  ASSERT_TRUE(server.daemon().store().SetQueuePause(std::nullopt).ok());
  EXPECT_EQ(WaitReason(server, job, "HELD").queue_position(), 0);
  ASSERT_TRUE(server.daemon().store().UpdateJob(job.substr(5), hold(false)).ok());
  EXPECT_EQ(server.WaitTerminal(job).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(SchedulingFaultsTest, TwoJobsShareTheDeviceWhereTheConfigurationAllowsIt) {
  TestServer server(directory_.path(),
                    [](ServerConfig& config) { config.max_jobs_per_device = 2; });
  const std::string a = Create(server, "a", "steps=2 hold_at=2");
  const std::string b = Create(server, "b", "steps=2 hold_at=2");
  const std::string c = Create(server, "c", "steps=1");
  server.WaitState(a, v1::JOB_STATE_RUNNING);
  server.WaitState(b, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(WaitReason(server, c, "WAITING_FOR_DEVICE").queue_position(), 1);
  for (const std::string& name : {a, b}) LetGo(server.Get(name));
  for (const std::string& name : {a, b, c}) {
    EXPECT_EQ(server.WaitTerminal(name).state(), v1::JOB_STATE_SUCCEEDED);
  }
}

}  // namespace
}  // namespace blockswap::server
