// SPDX-License-Identifier: Apache-2.0
#include "tests/server/testing/job_calls.h"

#include <gtest/gtest.h>

#include <chrono>

namespace blockswap::server {

v1::Job GetJob(v1::TrainingService::Stub& stub, const std::string& name) {
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name(name);
  v1::Job job;
  const grpc::Status status = stub.GetJob(&context, request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

std::vector<v1::Attempt> JobAttempts(v1::TrainingService::Stub& stub, const std::string& name) {
  grpc::ClientContext context;
  v1::ListAttemptsRequest request;
  request.set_parent(name);
  v1::ListAttemptsResponse response;
  const grpc::Status status = stub.ListAttempts(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return {response.attempts().begin(), response.attempts().end()};
}

std::string JobLog(v1::TrainingService::Stub& stub, const std::string& name, int attempt) {
  grpc::ClientContext context;
  v1::StreamJobLogsRequest request;
  request.set_name(name);
  request.set_attempt(attempt);
  auto stream = stub.StreamJobLogs(&context, request);
  std::string text;
  v1::LogChunk chunk;
  while (stream->Read(&chunk)) text += chunk.text();
  EXPECT_TRUE(stream->Finish().ok());
  return text;
}

WatchedEvents WatchJob(v1::TrainingService::Stub& stub, const std::string& name,
                       const std::function<bool(const v1::JobEvent&)>& done) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::WatchJobsRequest request;
  request.set_job(name);
  request.set_include_snapshot(true);
  auto stream = stub.WatchJobs(&context, request);
  WatchedEvents watched;
  v1::JobEvent event;
  while (!watched.is_done && stream->Read(&event)) {
    watched.events.push_back(event);
    watched.is_done = done(event);
  }
  context.TryCancel();
  stream->Finish();
  return watched;
}

}  // namespace blockswap::server
