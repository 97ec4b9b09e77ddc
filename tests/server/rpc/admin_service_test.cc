// SPDX-License-Identifier: Apache-2.0
// The operator's calls through a real server.
#include "server/rpc/admin_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "server/store/job_store.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AdminServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(); }
  void Start() {
    server_.reset();
    server_ = std::make_unique<TestServer>(directory_.path(), [this](ServerConfig& config) {
      config.file = directory_.path() + "/config.toml";
      config.arguments = {"--config", config.file, "--state-dir", config.state_dir};
      config.max_queued_jobs = 2;
    });
  }
  void WriteConfig(const std::string& text) {
    std::ofstream(directory_.path() + "/config.toml", std::ios::trunc) << text;
  }
  v1::Queue Queue() {
    grpc::ClientContext context;
    v1::Queue queue;
    EXPECT_TRUE(server_->admin().GetQueue(&context, v1::GetQueueRequest(), &queue).ok());
    return queue;
  }
  grpc::Status Reload(v1::ReloadConfigResponse* response) {
    grpc::ClientContext context;
    return server_->admin().ReloadConfig(&context, v1::ReloadConfigRequest(), response);
  }
  v1::ServerInfo Info() {
    grpc::ClientContext context;
    v1::ServerInfo info;
    EXPECT_TRUE(server_->admin().GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
    return info;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
};

TEST_F(AdminServiceTest, QueueIsPausedWithAReasonAlsoOverARestart) {
  EXPECT_EQ(Queue().name(), "queues/default");
  EXPECT_FALSE(Queue().paused());
  v1::PauseQueueRequest pause;
  pause.set_reason("new driver");
  v1::Queue queue;
  grpc::ClientContext context, again, other, resume;
  ASSERT_TRUE(server_->admin().PauseQueue(&context, pause, &queue).ok());
  EXPECT_TRUE(queue.paused());
  EXPECT_EQ(queue.pause_reason(), "new driver");
  EXPECT_GT(queue.pause_time().seconds(), 0);
  // A second pause changes nothing.
  pause.set_reason("another");
  ASSERT_TRUE(server_->admin().PauseQueue(&again, pause, &queue).ok());
  EXPECT_EQ(queue.pause_reason(), "new driver");
  Start();
  EXPECT_TRUE(Queue().paused());
  pause.set_name("queues/other");
  const grpc::Status unknown = server_->admin().PauseQueue(&other, pause, &queue);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ErrorReason(unknown), "QUEUE_NOT_FOUND");
  ASSERT_TRUE(server_->admin().ResumeQueue(&resume, v1::ResumeQueueRequest(), &queue).ok());
  EXPECT_FALSE(queue.paused());
  EXPECT_EQ(queue.pause_reason(), "");
}

TEST_F(AdminServiceTest, QueueCountsWhatWaitsAndRuns) {
  const v1::Job running = server_->MustCreate("running", "steps=2 hold_at=1");
  server_->WaitState(running.name(), v1::JOB_STATE_RUNNING);
  v1::CreateJobRequest request = server_->Request("held", "steps=1");
  request.mutable_spec()->set_hold(true);
  v1::Job held;
  ASSERT_TRUE(server_->Create(request, &held).ok());
  const v1::Queue queue = Queue();
  EXPECT_EQ(queue.running_jobs(), 1);
  EXPECT_EQ(queue.queued_jobs(), 1);
  EXPECT_EQ(queue.held_jobs(), 1);
  LetGo(running);
}

TEST_F(AdminServiceTest, ReloadTakesOverWhatCanChangeAndNamesTheRest) {
  WriteConfig("max_queued_jobs = 5\nretention_days = 1.5\nstop_grace = 7\n");
  v1::ReloadConfigResponse response;
  const grpc::Status status = Reload(&response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.changed(), ElementsAre("max_queued_jobs", "retention_days"));
  EXPECT_THAT(response.restart_needed(), ::testing::Contains("stop_grace"));
  const v1::Limits limits = Info().limits();
  EXPECT_EQ(limits.max_queued_jobs(), 5);
  EXPECT_DOUBLE_EQ(limits.retention_days(), 1.5);
  v1::ReloadConfigResponse second;
  ASSERT_TRUE(Reload(&second).ok());
  EXPECT_THAT(second.changed(), IsEmpty());
}

TEST_F(AdminServiceTest, WrongFileChangesNothing) {
  WriteConfig("max_queued_jobs = 5\nlog_level = \"loud\"\n");
  v1::ReloadConfigResponse response;
  const grpc::Status status = Reload(&response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(status), "CONFIG_INVALID");
  EXPECT_THAT(status.error_message(), HasSubstr("log_level"));
  EXPECT_EQ(Info().limits().max_queued_jobs(), 2);
}

TEST_F(AdminServiceTest, ConfigShowsWhereEachValueComesFrom) {
  WriteConfig("max_queued_jobs = 5\n");
  v1::ReloadConfigResponse reloaded;
  ASSERT_TRUE(Reload(&reloaded).ok());
  grpc::ClientContext context;
  v1::GetConfigResponse config;
  ASSERT_TRUE(server_->admin().GetConfig(&context, v1::GetConfigRequest(), &config).ok());
  EXPECT_GT(config.settings_size(), 20);
  for (const v1::ConfigSetting& setting : config.settings()) {
    EXPECT_FALSE(setting.help().empty()) << setting.key();
    if (setting.key() != "max_queued_jobs") continue;
    EXPECT_EQ(setting.value(), "5");
    EXPECT_EQ(setting.origin(), v1::ConfigSetting::ORIGIN_FILE);
    EXPECT_TRUE(setting.reloadable());
  }
}

TEST_F(AdminServiceTest, FullQueueSaysItsLimitAndWhenToTryAgain) {
  const v1::Job running = server_->MustCreate("running", "steps=2 hold_at=1");
  server_->MustCreate("second", "steps=1");
  v1::Job job;
  const grpc::Status status = server_->Create(server_->Request("third", ""), &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ErrorReason(status), "QUEUE_FULL");
  EXPECT_THAT(status.error_message(), HasSubstr("2 unfinished jobs of at most 2"));
  LetGo(running);
}

TEST_F(AdminServiceTest, BackupOpensAsAStoreAndCheckIsClean) {
  const v1::Job job = server_->MustCreate("digits", "steps=1");
  server_->WaitTerminal(job.name());
  grpc::ClientContext context, check_context;
  v1::BackUpStoreResponse backup;
  const grpc::Status status =
      server_->admin().BackUpStore(&context, v1::BackUpStoreRequest(), &backup);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_GT(backup.bytes(), 0);
  const auto store = JobStore::Open(backup.file());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->GetJob(job.name().substr(5)).ok());
  EXPECT_GE((*store)->last_sequence(), backup.sequence());
  v1::CheckStoreResponse check;
  ASSERT_TRUE(server_->admin().CheckStore(&check_context, v1::CheckStoreRequest(), &check).ok());
  EXPECT_TRUE(check.ok());
  EXPECT_THAT(check.problems(), IsEmpty());
  EXPECT_GT(check.schema_version(), 2);
}

TEST_F(AdminServiceTest, LimitsAreStated) {
  const v1::Limits limits = Info().limits();
  EXPECT_EQ(limits.max_spec_bytes(), 256 << 10);
  EXPECT_EQ(limits.max_string_bytes(), 4096);
  EXPECT_EQ(limits.max_labels(), 32);
  EXPECT_EQ(limits.max_page_size(), 1000);
  EXPECT_EQ(limits.max_metric_points(), 10000);
  EXPECT_EQ(limits.max_log_line_bytes(), 16 << 10);
  EXPECT_GT(limits.max_log_bytes(), 0);
  EXPECT_EQ(limits.max_waiting_events(), 1024);
  EXPECT_THAT(Info().features(), ::testing::Contains("templates"));
}

}  // namespace
}  // namespace blockswap::server
