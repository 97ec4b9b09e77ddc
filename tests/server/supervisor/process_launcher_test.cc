// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/process_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "offload/base/mutex.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NoGateway final : public WorkerGateway {
 public:
  void Expect(const AttemptKey&, const std::string&, const std::string&,
              AttemptObserver&) override {}
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

// Workers that print which descriptors they have.
class ProcessLauncherTest : public ::testing::Test {
 protected:
  std::string Run(const std::string& job_json, int attempt) {
    LaunchRequest request;
    request.key = {"job", attempt};
    request.job_uid = "uid";
    request.job_json = job_json;
    request.output_directory = directory_.path();
    request.device = "host";
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
  void SetUp() override {
    const std::string worker = directory_.path() + "/worker";
    std::ofstream(worker) << "#!/bin/sh\necho \"fd=$BLOCKSWAP_MASTERS_FD\"\n"
                             "readlink /proc/self/fd/4\ncat <&3 >/dev/null\n";
    std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
    ProcessLauncherOptions options;
    options.worker_binary = worker;
    options.runtime_directory = directory_.path();
    options.passed_environment = {"PATH"};
    options.master_cache_bytes = int64_t{1} << 20;
    options.masters_key = [](const std::string& job) -> absl::StatusOr<std::string> {
      if (job == "broken") return absl::NotFoundError("no such weights");
      return job == "private" ? "" : job;
    };
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
  EXPECT_THAT(Run("weights a", 1), HasSubstr("fd=4\n/memfd:blockswap-masters"));
  EXPECT_THAT(Run("weights a", 2), HasSubstr("fd=4\n/memfd:blockswap-masters"));
  EXPECT_EQ(launcher_->shared_memory().files, 1);
  EXPECT_THAT(Run("weights b", 3), HasSubstr("/memfd:blockswap-masters"));
  EXPECT_EQ(launcher_->shared_memory().files, 2);
}

TEST_F(ProcessLauncherTest, AJobThatSharesNothingGetsNoDescriptor) {
  EXPECT_THAT(Run("private", 1), Not(HasSubstr("memfd")));
  EXPECT_EQ(launcher_->shared_memory().files, 0);
}

TEST_F(ProcessLauncherTest, WeightsThatCannotBeNamedDoNotKeepTheWorkerFromStarting) {
  EXPECT_THAT(Run("broken", 1), HasSubstr("fd=\n"));
}

}  // namespace
}  // namespace blockswap::server
