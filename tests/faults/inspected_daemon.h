// SPDX-License-Identifier: Apache-2.0
// A daemon that reads the files of jobs as blockswapd does, with a tiny model and data set below
// its roots.
#ifndef BLOCKSWAP_TESTS_FAULTS_INSPECTED_DAEMON_H_
#define BLOCKSWAP_TESTS_FAULTS_INSPECTED_DAEMON_H_

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/spec_inspector.h"
#include "tests/faults/wire_client.h"
#include "tests/server/testing/test_server.h"
#include "tests/worker/data/tiny_checkpoint.h"
#include "tests/worker/data/tiny_dataset.h"

namespace blockswap::server {

class InspectedDaemonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* made : {"models", "datasets", "outside"})
      std::filesystem::create_directories(Path(made));
    ASSERT_TRUE(
        worker::WriteTinyCheckpoint(Path("models/base"), worker::TinyQwenImageConfig(6)).ok());
    worker::WriteLatentCache(Path("datasets/cache"), "i");
    worker::WriteTextCache(Path("datasets/cache"), "i");
    Write("datasets/d.toml", "[general]\nresolution=64\n[[datasets]]\ncache_directory='cache'\n");
    const ServerConfig config = TestConfig(directory_.path());
    auto daemon = Daemon::Start(config, std::make_unique<SpecInspector>(worker::Roots{
                                            config.models, config.datasets, config.outputs}));
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    channel_ = ChannelTo(config.socket);
    stub_ = v1::TrainingService::NewStub(channel_);
    good_.set_name("digits");
    good_.mutable_model()->set_weights("base");
    good_.mutable_dataset()->set_config("d.toml");
    good_.mutable_training()->set_max_steps(10);
  }

  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
  }
  grpc::Status Create(const v1::CreateJobRequest& request, v1::Job* job) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return stub_->CreateJob(&context, request, job);
  }
  // `change` is made to a spec without a fault.
  grpc::Status CreateWith(const std::function<void(v1::JobSpec&)>& change) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = good_;
    change(*request.mutable_spec());
    v1::Job job;
    return Create(request, &job);
  }
  int64_t NumJobs() {
    grpc::ClientContext context;
    v1::ListJobsResponse jobs;
    EXPECT_TRUE(stub_->ListJobs(&context, v1::ListJobsRequest(), &jobs).ok());
    return jobs.jobs_size();
  }
  static std::set<std::string> FieldsOf(const grpc::Status& status) {
    std::set<std::string> fields;
    const google::rpc::BadRequest violations = ErrorViolations(status);
    for (const auto& violation : violations.field_violations()) fields.insert(violation.field());
    return fields;
  }

  const TemporaryDirectory directory_;
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::TrainingService::Stub> stub_;
  v1::JobSpec good_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_FAULTS_INSPECTED_DAEMON_H_
