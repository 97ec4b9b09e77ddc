// SPDX-License-Identifier: Apache-2.0
// Row 10: a worker that the kernel does not let go of. None can be made on purpose, so the launcher
// is a fake; row 43: a scheduler that such a launcher holds up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "offload/base/mutex.h"
#include "server/scheduler/scheduler.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Hears every signal and does nothing.
class StuckWorker final : public WorkerHandle {
 public:
  explicit StuckWorker(std::atomic<int>& kills) : kills_(kills) {}
  absl::Status Release() override { return absl::OkStatus(); }
  void Send(const WorkerCommand&) override {}
  void Acknowledge(int64_t) override {}
  void Signal(int signal) override { kills_ += signal == SIGKILL ? 1 : 0; }
  int64_t pid() const override { return 4242; }
  int64_t process_start_time() const override { return 1; }
  std::string socket_path() const override { return "/nowhere"; }
  std::string token_hash() const override { return "hash"; }

 private:
  std::atomic<int>& kills_;
};

class StuckLauncher final : public WorkerLauncher {
 public:
  absl::StatusOr<std::unique_ptr<WorkerHandle>> Launch(const LaunchRequest&,
                                                       AttemptObserver&) override {
    base::MutexLock lock(mutex_);
    while (held_) changed_.Wait(mutex_);
    return std::make_unique<StuckWorker>(kills_);
  }
  absl::StatusOr<std::unique_ptr<WorkerHandle>> Adopt(const AdoptRequest&,
                                                      AttemptObserver&) override {
    return absl::NotFoundError("none");
  }
  void RemoveLeftovers() override {}
  int kills() const { return kills_.load(); }
  void Hold(bool held) {
    base::MutexLock lock(mutex_);
    held_ = held;
    changed_.SignalAll();
  }

 private:
  std::atomic<int> kills_{0};
  base::Mutex mutex_;
  base::CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
};

class UnkillableWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    store_ = *JobStore::Open(directory_.path() + "/jobs.db");
    SchedulerOptions options;
    options.clocks.attach = milliseconds(30);
    options.ladder.dump = options.ladder.terminate = options.ladder.kill = milliseconds(30);
    options.tick = milliseconds(10);
    options.state_directory = options.outputs_root = directory_.path();
    options.on_tick = [this] { ++ticks_; };
    scheduler_ = std::make_unique<Scheduler>(*store_, hub_, devices_, launcher_, metrics_,
                                             std::move(options));
    ASSERT_TRUE(scheduler_->Recover().ok());
    scheduler_->Start();
  }
  void Create(const std::string& id) {
    JobRecord job;
    job.id = job.uid = job.name = id;
    job.output_directory = directory_.path() + "/" + id;
    job.spec_json = "{}";
    ASSERT_TRUE(store_->CreateJob(job, "", "", 100).ok());
    scheduler_->Wake();
  }
  bool Eventually(const std::function<bool()>& holds) const {
    const auto deadline = SteadyNow() + std::chrono::seconds(10);
    while (!holds()) {
      if (SteadyNow() > deadline) return false;
      ::poll(nullptr, 0, 2);
    }
    return true;
  }
  JobRecord Job(const std::string& id) { return *store_->GetJob(id); }

  const TemporaryDirectory directory_;
  EventHub hub_;
  ServerMetrics metrics_{BuildInfo{"test", "test", "test"}};
  DeviceTable devices_{nullptr, int64_t{1} << 30, true};
  StuckLauncher launcher_;
  std::atomic<int> ticks_{0};
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Scheduler> scheduler_;
};

using Row10 = UnkillableWorkerTest;
using Row43 = UnkillableWorkerTest;

TEST_F(Row10, AnUnkillableWorkersDeviceIsDrainedAndTheServerGoesOn) {
  Create("stuck");
  EXPECT_TRUE(Eventually([this] { return Job("stuck").state == JobState::kFailed; }));
  EXPECT_GE(launcher_.kills(), 1);
  EXPECT_EQ(Job("stuck").failure.category, FailureCategory::kWorkerCrash);
  EXPECT_EQ(Job("stuck").failure.reason, "WORKER_UNKILLABLE");
  EXPECT_EQ(devices_.List()[0].health, DeviceHealth::kDrained);
  EXPECT_TRUE(Eventually([this] {
    return metrics_.Render().find("blockswap_device_healthy{gpu=\"host\",uuid=\"\"} 0") !=
           std::string::npos;
  })) << metrics_.Render();
  // Another job waits with the reason, and can be cancelled.
  Create("next");
  EXPECT_TRUE(Eventually([this] { return Job("next").state_reason == "DEVICE_UNHEALTHY"; }));
  EXPECT_THAT(Job("next").state_message, HasSubstr("cannot be killed"));
  EXPECT_TRUE(scheduler_->CancelJob("next", StopMode::kGraceful, "").ok());
  EXPECT_TRUE(scheduler_->IsAlive());
}

TEST_F(Row43, AStuckSchedulerStopsTicking) {
  EXPECT_TRUE(Eventually([this] { return ticks_.load() >= 3; }));
  launcher_.Hold(true);
  Create("held");
  // The launch is reached, and then nothing is.
  EXPECT_TRUE(Eventually([this] { return Job("held").state == JobState::kStarting; }));
  const int before = ticks_.load();
  ::poll(nullptr, 0, 100);  // ten ticks
  EXPECT_LE(ticks_.load(), before + 1);
  launcher_.Hold(false);
  EXPECT_TRUE(Eventually([this, before] { return ticks_.load() > before + 1; }));
}

}  // namespace
}  // namespace blockswap::server
