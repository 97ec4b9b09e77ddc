// SPDX-License-Identifier: Apache-2.0
// RetryJob, templates, holds and deadlines through a real server with a fake worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RetryJobTest : public ::testing::Test {
 protected:
  grpc::Status Retry(const v1::RetryJobRequest& request, v1::Job* job) {
    grpc::ClientContext context;
    return server_.training().RetryJob(&context, request, job);
  }
  // Stopped after two of four steps, with a checkpoint of the first.
  v1::Job Stopped() {
    const v1::Job job =
        server_.MustCreate("digits", "steps=4 save=1 exit_at=3 exit_code=14 exit_attempts=1");
    const v1::Job over = server_.WaitTerminal(job.name());
    EXPECT_EQ(over.state(), v1::JOB_STATE_FAILED);
    return over;
  }
  static v1::RetryJobRequest Request(const v1::Job& job) {
    v1::RetryJobRequest request;
    request.set_name(job.name());
    return request;
  }
  // The fake worker's script is a label.
  static void SetScript(const std::string& script, v1::RetryJobRequest* request) {
    (*request->mutable_overrides()->mutable_labels())["fake"] = script;
    request->mutable_override_mask()->add_paths("labels");
  }
  int64_t FirstStep(const v1::Job& job) {
    const auto attempts = server_.Attempts(job.name());
    return attempts.empty() ? -1 : attempts[0].start_step();
  }

  TemporaryDirectory directory_;
  TestServer server_{directory_.path()};
};

TEST_F(RetryJobTest, NewJobGoesOnFromTheNewestCheckpointAndTheOldOneStays) {
  const v1::Job old = Stopped();
  v1::RetryJobRequest request = Request(old);
  SetScript("steps=4 save=1", &request);
  v1::Job made;
  const grpc::Status status = Retry(request, &made);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_NE(made.name(), old.name());
  EXPECT_EQ(made.retry_of(), old.name());
  EXPECT_EQ(made.from_checkpoint(), old.name() + "/checkpoints/2");
  EXPECT_NE(made.output_directory(), old.output_directory());
  EXPECT_EQ(server_.WaitTerminal(made.name()).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(FirstStep(made), 2);
  EXPECT_EQ(server_.Get(old.name()).SerializeAsString(), old.SerializeAsString());
}

TEST_F(RetryJobTest, BeginningIsOneWord) {
  const v1::Job old = Stopped();
  v1::RetryJobRequest request = Request(old);
  SetScript("steps=4", &request);
  request.set_from_checkpoint("none");
  request.set_new_job_id("again");
  // From the beginning everything may change.
  request.mutable_overrides()->mutable_training()->set_learning_rate(5e-4);
  request.mutable_override_mask()->add_paths("training.learning_rate");
  v1::Job made;
  const grpc::Status status = Retry(request, &made);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(made.name(), "jobs/again");
  EXPECT_EQ(made.from_checkpoint(), "");
  EXPECT_DOUBLE_EQ(made.spec().training().learning_rate(), 5e-4);
  server_.WaitTerminal(made.name());
  EXPECT_EQ(FirstStep(made), 0);
}

TEST_F(RetryJobTest, WhatDecidesTheResultCannotChangeUnderACheckpoint) {
  const v1::Job old = Stopped();
  v1::RetryJobRequest request = Request(old);
  request.mutable_overrides()->mutable_training()->set_learning_rate(5e-4);
  request.mutable_overrides()->mutable_memory()->set_vram_budget("4GiB");
  request.mutable_override_mask()->add_paths("training.learning_rate");
  request.mutable_override_mask()->add_paths("memory.vram_budget");
  request.mutable_override_mask()->add_paths("memory.typo");
  v1::Job made;
  const grpc::Status status = Retry(request, &made);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const google::rpc::BadRequest request_faults = ErrorViolations(status);
  const auto& violations = request_faults.field_violations();
  ASSERT_EQ(violations.size(), 2);
  EXPECT_EQ(violations[0].field(), "memory.typo");
  EXPECT_EQ(violations[1].field(), "training.learning_rate");
  EXPECT_THAT(violations[1].description(), HasSubstr("from_checkpoint none"));
}

TEST_F(RetryJobTest, UnknownCheckpointsAndUnfinishedJobsAreRefused) {
  const v1::Job old = Stopped();
  v1::RetryJobRequest request = Request(old);
  v1::Job made;
  request.set_from_checkpoint("checkpoints/7");
  const grpc::Status missing = Retry(request, &made);
  EXPECT_EQ(missing.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ErrorReason(missing), "CHECKPOINT_NOT_FOUND");
  EXPECT_THAT(missing.error_message(), HasSubstr("2"));
  const v1::Job running = server_.MustCreate("running", "steps=2 hold_at=1");
  const grpc::Status early = Retry(Request(running), &made);
  EXPECT_EQ(early.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(early), "INVALID_STATE");
  LetGo(running);
}

TEST_F(RetryJobTest, SameRequestIdMakesOneRetryAndValidateOnlyNone) {
  const v1::Job old = Stopped();
  v1::RetryJobRequest request = Request(old);
  SetScript("steps=4", &request);
  request.set_validate_only(true);
  v1::Job made, again;
  ASSERT_TRUE(Retry(request, &made).ok());
  EXPECT_EQ(made.uid(), "");
  EXPECT_FALSE(std::filesystem::exists(made.output_directory()));
  request.set_validate_only(false);
  request.set_request_id("3fa459ea-ee8a-4ca4-894e-db77e160355e");
  ASSERT_TRUE(Retry(request, &made).ok());
  ASSERT_TRUE(Retry(request, &again).ok());
  EXPECT_EQ(again.uid(), made.uid());
  request.set_from_checkpoint("none");
  EXPECT_EQ(ErrorReason(Retry(request, &again)), "REQUEST_ID_REUSED");
  // A taken id leaves nothing of the try behind.
  request.clear_request_id();
  request.clear_from_checkpoint();
  request.set_new_job_id(old.name().substr(5));
  EXPECT_EQ(ErrorReason(Retry(request, &again)), "JOB_EXISTS");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path() + "/outputs"), {}),
            2);
}

class TemplatesTest : public RetryJobTest {
 protected:
  void SetUp() override {
    const std::string templates = directory_.path() + "/templates";
    std::filesystem::create_directories(templates);
    std::ofstream(templates + "/small.yaml")
        << "description: a small run\n"
           "allowed_overrides: [name, training.max_steps, memory]\n"
           "spec:\n"
           "  name: small\n"
           "  labels: {fake: steps=1, team: red}\n"
           "  training: {max_steps: 10, learning_rate: 1e-3}\n";
    std::ofstream(templates + "/broken.yaml")
        << "spec: {trainig: {}}\nallowed_overrides: [nothing]\n";
    std::ofstream(templates + "/notes.txt") << "no template";
  }
  grpc::Status Create(const v1::CreateJobRequest& request, v1::Job* job) {
    return server_.Create(request, job);
  }
};

TEST_F(TemplatesTest, ListAndGetShowWhatTheOperatorOffers) {
  grpc::ClientContext list_context, get_context, broken_context, missing_context;
  v1::ListTemplatesResponse list;
  ASSERT_TRUE(
      server_.training().ListTemplates(&list_context, v1::ListTemplatesRequest(), &list).ok());
  ASSERT_EQ(list.templates_size(), 1) << "a broken one does not hide the others";
  EXPECT_EQ(list.templates(0).name(), "templates/small");
  v1::GetTemplateRequest request;
  request.set_name("templates/small");
  v1::JobTemplate found;
  ASSERT_TRUE(server_.training().GetTemplate(&get_context, request, &found).ok());
  EXPECT_EQ(found.description(), "a small run");
  EXPECT_EQ(found.spec().training().max_steps(), 10);
  request.set_name("templates/broken");
  const grpc::Status broken = server_.training().GetTemplate(&broken_context, request, &found);
  EXPECT_EQ(ErrorReason(broken), "TEMPLATE_INVALID");
  EXPECT_THAT(broken.error_message(), HasSubstr("trainig"));
  EXPECT_THAT(broken.error_message(), HasSubstr("nothing"));
  request.set_name("templates/none");
  const grpc::Status missing = server_.training().GetTemplate(&missing_context, request, &found);
  EXPECT_EQ(missing.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ErrorReason(missing), "TEMPLATE_NOT_FOUND");
  EXPECT_THAT(missing.error_message(), HasSubstr("small"));
}

TEST_F(TemplatesTest, JobTakesTheTemplateAndWhatItMayChange) {
  v1::CreateJobRequest request;
  request.set_template_("templates/small");
  request.mutable_spec()->set_name("mine");
  request.mutable_spec()->mutable_training()->set_max_steps(20);
  request.mutable_spec()->mutable_memory()->set_vram_budget("1GiB");
  // Equal to the template's: no override.
  request.mutable_spec()->mutable_training()->set_learning_rate(1e-3);
  v1::Job job;
  const grpc::Status status = Create(request, &job);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(job.template_(), "templates/small");
  EXPECT_EQ(job.spec().name(), "mine");
  EXPECT_EQ(job.spec().training().max_steps(), 20);
  EXPECT_EQ(job.spec().memory().vram_budget(), "1GiB");
  EXPECT_EQ(job.spec().labels().at("team"), "red");
  EXPECT_EQ(server_.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(TemplatesTest, OtherChangesAreRefusedByName) {
  v1::CreateJobRequest request;
  request.set_template_("small");
  request.mutable_spec()->mutable_training()->set_learning_rate(1);
  request.mutable_spec()->mutable_model()->set_weights("w.safetensors");
  v1::Job job;
  const grpc::Status status = Create(request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(ErrorReason(status), "OVERRIDE_NOT_ALLOWED");
  EXPECT_THAT(status.error_message(), HasSubstr("model.weights"));
  EXPECT_THAT(status.error_message(), HasSubstr("training.learning_rate"));
}

TEST_F(RetryJobTest, DeadlinesAreTimesOrSpansInTheFuture) {
  v1::CreateJobRequest request = server_.Request("digits", "steps=1");
  request.mutable_spec()->set_deadline("36h");
  v1::Job job;
  ASSERT_TRUE(server_.Create(request, &job).ok());
  EXPECT_NEAR(static_cast<double>(job.deadline_time().seconds() - job.create_time().seconds()),
              36 * 3600, 1);
  for (const char* bad :
       {"tomorrow", "-1h", "2001-01-01T00:00:00Z", "2026-12-01 08:00", "999999h"}) {
    request.mutable_spec()->set_deadline(bad);
    const grpc::Status status = server_.Create(request, &job);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << bad;
    ASSERT_EQ(ErrorViolations(status).field_violations_size(), 1) << bad;
    EXPECT_EQ(ErrorViolations(status).field_violations(0).field(), "deadline") << bad;
  }
}

TEST_F(RetryJobTest, LimitsOfTheServerComeWithTheViolationsOfTheChecker) {
  v1::CreateJobRequest request = server_.Request("invalid", "");
  request.set_job_id("NOT AN ID");
  request.mutable_spec()->mutable_output()->set_name(std::string(5000, 'x'));
  v1::Job job;
  const grpc::Status status = server_.Create(request, &job);
  std::vector<std::string> fields;
  const auto faults = ErrorViolations(status);
  for (const auto& violation : faults.field_violations()) {
    fields.push_back(violation.field());
  }
  EXPECT_THAT(fields, ElementsAre("job_id", "output.name", "model.weights", "network.rank"));
}

}  // namespace
}  // namespace blockswap::server
