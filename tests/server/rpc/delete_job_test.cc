// SPDX-License-Identifier: Apache-2.0
// DeleteJob, GetCheckpoint and DeleteCheckpoint through a real server with a fake worker.
#include <gmock/gmock.h>
#include <google/protobuf/empty.pb.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/time/clock.h"
#include "server/base/wall_clock.h"
#include "server/rpc/retention.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;

class DeleteJobTest : public ::testing::Test {
 protected:
  grpc::Status Delete(const v1::DeleteJobRequest& request) {
    grpc::ClientContext context;
    google::protobuf::Empty response;
    return server_.training().DeleteJob(&context, request, &response);
  }
  static v1::DeleteJobRequest Of(const v1::Job& job) {
    v1::DeleteJobRequest request;
    request.set_name(job.name());
    return request;
  }
  v1::Job Finished() {
    const v1::Job job = server_.MustCreate("digits", "steps=2 save=1");
    return server_.WaitTerminal(job.name());
  }
  grpc::Status Get(const std::string& name) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_name(name);
    v1::Job job;
    return server_.training().GetJob(&context, request, &job);
  }
  grpc::Status GetCheckpoint(const std::string& name, v1::Checkpoint* checkpoint) {
    grpc::ClientContext context;
    v1::GetCheckpointRequest request;
    request.set_name(name);
    return server_.training().GetCheckpoint(&context, request, checkpoint);
  }
  grpc::Status DeleteCheckpoint(const std::string& name, bool allow_missing = false) {
    grpc::ClientContext context;
    v1::DeleteCheckpointRequest request;
    request.set_name(name);
    request.set_allow_missing(allow_missing);
    google::protobuf::Empty response;
    return server_.training().DeleteCheckpoint(&context, request, &response);
  }
  static bool Exists(const std::string& path) { return std::filesystem::exists(path); }

  TemporaryDirectory directory_;
  TestServer server_{directory_.path()};
};

TEST_F(DeleteJobTest, JobGoesWithItsLogsAndWhatItTrainedStays) {
  const v1::Job job = Finished();
  ASSERT_TRUE(Exists(job.output_directory() + "/attempt-1.log"));
  const grpc::Status status = Delete(Of(job));
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Get(job.name()).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_FALSE(Exists(job.output_directory() + "/attempt-1.log"));
  EXPECT_TRUE(Exists(job.output_directory() + "/fake-step"));
  const grpc::Status again = Delete(Of(job));
  EXPECT_EQ(ErrorReason(again), "JOB_NOT_FOUND");
  v1::DeleteJobRequest request = Of(job);
  request.set_allow_missing(true);
  EXPECT_TRUE(Delete(request).ok());
}

TEST_F(DeleteJobTest, OutputsGoWhenAskedFor) {
  const v1::Job job = Finished();
  v1::DeleteJobRequest request = Of(job);
  request.set_delete_outputs(true);
  ASSERT_TRUE(Delete(request).ok());
  EXPECT_FALSE(Exists(job.output_directory()));
  EXPECT_TRUE(Exists(directory_.path() + "/outputs"));
}

TEST_F(DeleteJobTest, JobThatIsNotOverAndStaleEtagsAreRefused) {
  const v1::Job running = server_.MustCreate("running", "steps=2 hold_at=1");
  server_.WaitState(running.name(), v1::JOB_STATE_RUNNING);
  const grpc::Status early = Delete(Of(running));
  EXPECT_EQ(early.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(early), "INVALID_STATE");
  EXPECT_THAT(early.error_message(), HasSubstr("cancel it first"));
  LetGo(running);
  const v1::Job over = server_.WaitTerminal(running.name());
  v1::DeleteJobRequest request = Of(over);
  request.set_etag(running.etag());
  const grpc::Status stale = Delete(request);
  EXPECT_EQ(stale.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(ErrorReason(stale), "ETAG_MISMATCH");
  request.set_etag(over.etag());
  EXPECT_TRUE(Delete(request).ok());
}

TEST_F(DeleteJobTest, SameIdGetsADirectoryOfItsOwn) {
  v1::CreateJobRequest request = server_.Request("digits", "steps=2 save=1");
  request.set_job_id("twice");
  v1::Job first, second;
  ASSERT_TRUE(server_.Create(request, &first).ok());
  server_.WaitTerminal(first.name());
  ASSERT_TRUE(Delete(Of(first)).ok());
  ASSERT_TRUE(server_.Create(request, &second).ok());
  EXPECT_NE(second.output_directory(), first.output_directory());
  EXPECT_EQ(server_.WaitTerminal(second.name()).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(Exists(first.output_directory() + "/fake-step"));
}

TEST_F(DeleteJobTest, WatchersHearOfIt) {
  const v1::Job job = Finished();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  auto stream = server_.training().WatchJobs(&context, v1::WatchJobsRequest());
  // The stream is there once it has told something: another job's beginning.
  server_.MustCreate("other", "steps=1");
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));
  ASSERT_TRUE(Delete(Of(job)).ok());
  bool heard = false;
  while (!heard && stream->Read(&event)) {
    heard = event.type() == v1::JobEvent::TYPE_DELETED && event.job() == job.name();
  }
  EXPECT_TRUE(heard);
  EXPECT_EQ(event.reason(), "DELETED_BY_CLIENT");
  context.TryCancel();
  stream->Finish();
}

TEST_F(DeleteJobTest, CheckpointsAreThoseOnDisk) {
  const v1::Job job = server_.MustCreate("digits", "steps=3 save=1");
  server_.WaitTerminal(job.name());
  v1::Checkpoint checkpoint;
  ASSERT_TRUE(GetCheckpoint(job.name() + "/checkpoints/3", &checkpoint).ok());
  EXPECT_EQ(checkpoint.step(), 3);
  EXPECT_EQ(checkpoint.name(), job.name() + "/checkpoints/3");
  const grpc::Status missing = GetCheckpoint(job.name() + "/checkpoints/9", &checkpoint);
  EXPECT_EQ(missing.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ErrorReason(missing), "CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(GetCheckpoint("jobs/x/checkpoints", &checkpoint).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  std::filesystem::remove(checkpoint.directory());
  EXPECT_EQ(ErrorReason(GetCheckpoint(job.name() + "/checkpoints/3", &checkpoint)),
            "CHECKPOINT_NOT_FOUND");
}

TEST_F(DeleteJobTest, NewestCheckpointOfAnUnfinishedJobStays) {
  const v1::Job job = server_.MustCreate("digits", "steps=3 save=1 hold_at=3");
  v1::Checkpoint checkpoint;
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!GetCheckpoint(job.name() + "/checkpoints/2", &checkpoint).ok() &&
         absl::Now() < deadline) {
  }
  const grpc::Status refused = DeleteCheckpoint(job.name() + "/checkpoints/2");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(refused), "CHECKPOINT_IN_USE");
  EXPECT_TRUE(GetCheckpoint(job.name() + "/checkpoints/2", &checkpoint).ok());
  LetGo(job);
  server_.WaitTerminal(job.name());
  ASSERT_TRUE(DeleteCheckpoint(job.name() + "/checkpoints/3").ok());
  EXPECT_FALSE(Exists(checkpoint.directory()));
  EXPECT_EQ(ErrorReason(DeleteCheckpoint(job.name() + "/checkpoints/3")), "CHECKPOINT_NOT_FOUND");
  EXPECT_TRUE(DeleteCheckpoint(job.name() + "/checkpoints/3", /*allow_missing=*/true).ok());
}

TEST_F(DeleteJobTest, RetentionForgetsOldJobsAndKeepsWhatTheyTrained) {
  const v1::Job first = Finished(), second = Finished();
  const v1::Job waiting = server_.MustCreate("waiting", "steps=2 hold_at=1");
  RetentionKeeper keeper(server_.daemon().store(), {30, 100000}, std::chrono::hours(1));
  const int64_t day = int64_t{86400} * 1000000;
  EXPECT_EQ(keeper.Sweep(WallMicros() + 29 * day), 0);
  keeper.SetLimits({0, 1});
  // The thread or this call, whoever comes first.
  keeper.Sweep(WallMicros());
  EXPECT_EQ(Get(first.name()).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(Get(second.name()).ok());
  EXPECT_TRUE(Exists(first.output_directory() + "/fake-step"));
  EXPECT_FALSE(Exists(first.output_directory() + "/attempt-1.log"));
  keeper.SetLimits({30, 100000});
  EXPECT_EQ(keeper.Sweep(WallMicros() + 31 * day), 1);
  EXPECT_EQ(Get(second.name()).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(Get(waiting.name()).ok());
  LetGo(waiting);
}

}  // namespace
}  // namespace blockswap::server
