// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/process_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "offload/base/mutex.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NoGateway final : public WorkerGateway {
 public:
  void Expect(const ExpectedWorker&, AttemptObserver&) override {}
  void Forget(const AttemptKey&) override {}
  void Send(const AttemptKey&, const WorkerCommand&) override {}
  void Acknowledge(const AttemptKey&, int64_t) override {}
  std::string socket_path() const override { return "/nowhere"; }
};

class ExitWaiter final : public AttemptObserver {
 public:
  void OnUpdate(const AttemptKey&, int64_t, WorkerUpdate) override {}
  void OnExit(const AttemptKey&, const ProcessExit&) override {
    base::MutexLock lock(mutex_);
    ++exits_;
    changed_.SignalAll();
  }
  void WaitFor(int exits) {
    base::MutexLock lock(mutex_);
    while (exits_ < exits) changed_.Wait(mutex_);
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  int exits_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Workers that print which descriptors they have, and put something into the first file.
class ProcessLauncherTest : public ::testing::Test {
 protected:
  std::string Run(const std::vector<std::string>& base_keys, int attempt) {
    LaunchRequest request;
    request.key = {"job", attempt};
    request.job_uid = "uid";
    request.job_json = "{}";
    request.base_keys = base_keys;
    request.output_directory = directory_.path();
    request.device = "host";
    request.host_bytes = int64_t{64} << 20;
    auto handle = launcher_->Launch(request, exits_);
    EXPECT_TRUE(handle.ok()) << handle.status();
    EXPECT_TRUE((*handle)->Release().ok());
    exits_.WaitFor(attempt);
    std::ifstream log(AttemptLogPath(directory_.path(), attempt));
    std::stringstream text;
    text << log.rdbuf();
    handles_.push_back(*std::move(handle));
    return text.str();
  }
  void SetAvailableMebibytes(int64_t mebibytes) const {
    std::filesystem::create_directories(directory_.path() + "/proc");
    std::ofstream(directory_.path() + "/proc/meminfo")
        << "MemTotal: 8388608 kB\nMemAvailable: " << (mebibytes << 10) << " kB\n";
  }
  void SetUp() override {
    SetAvailableMebibytes(8192);
    const std::string worker = directory_.path() + "/worker";
    std::ofstream(worker) << "#!/bin/sh\necho \"fd=$BLOCKSWAP_MASTERS_FD\"\n"
                             "readlink /proc/self/fd/4\n"
                             "[ -e /proc/self/fd/4 ] && head -c 16384 /dev/zero >&4\n"
                             "cat <&3 >/dev/null\n";
    std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
    ProcessLauncherOptions options;
    options.worker_binary = worker;
    options.runtime_directory = directory_.path();
    options.passed_environment = {"PATH"};
    options.master_cache_bytes = int64_t{1} << 20;
    options.host_files = {directory_.path() + "/proc", directory_.path() + "/cgroup"};
    monitor_ = *ProcessMonitor::Create();
    launcher_ = std::make_unique<ProcessLauncher>(std::move(options), gateway_, *monitor_);
  }
  void TearDown() override {
    handles_.clear();
    monitor_.reset();
  }

  const TemporaryDirectory directory_;
  NoGateway gateway_;
  ExitWaiter exits_;
  std::unique_ptr<ProcessMonitor> monitor_;
  std::unique_ptr<ProcessLauncher> launcher_;
  std::vector<std::unique_ptr<WorkerHandle>> handles_;
};

TEST_F(ProcessLauncherTest, AWorkerInheritsTheSharedMastersOfItsWeights) {
  EXPECT_THAT(Run({"weights a"}, 1), HasSubstr("fd=4\n/memfd:blockswap-masters"));
  EXPECT_THAT(Run({"weights a"}, 2), HasSubstr("fd=4\n/memfd:blockswap-masters"));
  EXPECT_EQ(launcher_->shared_memory().files, 1);
  EXPECT_THAT(Run({"weights b"}, 3), HasSubstr("/memfd:blockswap-masters"));
  EXPECT_EQ(launcher_->shared_memory().files, 2);
}

TEST_F(ProcessLauncherTest, AJobThatMaySettleTwoWaysGetsAFileForEach) {
  const std::string said = Run({"off", "on"}, 1);
  EXPECT_THAT(said, HasSubstr("fd=4,5\n/memfd:blockswap-masters"));
  EXPECT_EQ(launcher_->shared_memory().files, 2);
}

// Row 47 of tests/faults: kept weights are the first to go when others took the host's memory.
TEST_F(ProcessLauncherTest, WeightsThatNobodyUsesGiveWayToAWorkerOnAHostThatOthersHaveFilled) {
  Run({"weights a"}, 1);
  handles_.clear();
  Run({"weights b"}, 2);
  handles_.clear();
  EXPECT_EQ(launcher_->shared_memory().files, 2);
  SetAvailableMebibytes(10);
  Run({"weights c"}, 3);
  EXPECT_EQ(launcher_->shared_memory().files, 1);
}

TEST_F(ProcessLauncherTest, AJobThatSharesNothingGetsNoDescriptor) {
  const std::string said = Run({}, 1);
  EXPECT_THAT(said, HasSubstr("fd=\n"));
  EXPECT_THAT(said, Not(HasSubstr("memfd")));
  EXPECT_EQ(launcher_->shared_memory().files, 0);
}

}  // namespace
}  // namespace blockswap::server
