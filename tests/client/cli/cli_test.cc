// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cli.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/cli/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/cli/cli_fixture.h"
#include "tests/fakes/fake_service.h"

namespace blockswap::cli {
namespace {

using testing::FakeService;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::StreamScript;

v1::JobEvent StateEvent(v1::JobState state, const std::string& token) {
  v1::JobEvent event;
  event.set_type(v1::JobEvent::TYPE_STATE_CHANGED);
  event.set_job("jobs/digits-1");
  event.set_state(state);
  event.set_resume_token(token);
  return event;
}

v1::JobEvent TerminalEnd() {
  v1::JobEvent event;
  event.set_type(v1::JobEvent::TYPE_END);
  event.set_end_reason(v1::JobEvent::END_REASON_JOB_TERMINAL);
  return event;
}

class CliTest : public CliFixture {
 protected:
  // A job that a watch sees end in `state`.
  void Script(v1::JobState state) {
    service_->AddJob("digits-1", state);
    service_->watches = {
        {{StateEvent(v1::JOB_STATE_RUNNING, "t1"), StateEvent(state, "t2"), TerminalEnd()}}};
  }
};

TEST_F(CliTest, SubmitSendsTheSpecWithOverrides) {
  const Result result =
      Run({"submit", file_, "--id", "my-job", "--blocks_to_swap", "4", "--set", "training.seed=7"});
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_EQ(result.out, "submitted my-job\n");
  EXPECT_THAT(result.err, HasSubstr("6 blocks, 4 streamed"));
  EXPECT_THAT(result.err, HasSubstr("blockswap logs -f my-job"));
  ASSERT_EQ(service_->create_requests.size(), 1u);
  const v1::CreateJobRequest& request = service_->create_requests[0];
  EXPECT_EQ(request.job_id(), "my-job");
  EXPECT_EQ(request.spec().memory().blocks_to_swap(), "4");
  EXPECT_EQ(request.spec().training().seed(), 7);
  EXPECT_FALSE(request.validate_only());
  EXPECT_EQ(request.request_id().size(), 36u);
}

TEST_F(CliTest, SubmitQuietPrintsTheIdAlone) {
  const Result result = Run({"submit", "-q", file_});
  EXPECT_EQ(result.code, kOk);
  EXPECT_EQ(result.out, "made-1\n");
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(CliTest, DryRunPlansAndCreatesNothing) {
  const Result result = Run({"submit", "--dry-run", file_});
  EXPECT_EQ(result.code, kOk);
  EXPECT_EQ(result.out, "6 blocks, 4 streamed\n");
  EXPECT_TRUE(service_->create_requests[0].validate_only());
  EXPECT_TRUE(service_->jobs.empty());
}

TEST_F(CliTest, FollowExitsByTheJobsResult) {
  for (const auto& [state, code] :
       std::vector<std::pair<v1::JobState, int>>{{v1::JOB_STATE_SUCCEEDED, kOk},
                                                 {v1::JOB_STATE_FAILED, kJobFailed},
                                                 {v1::JOB_STATE_CANCELLED, kJobCancelled}}) {
    Script(state);
    for (const char* how : {"--follow", "--wait"}) {
      service_->watches = {
          {{StateEvent(v1::JOB_STATE_RUNNING, "t1"), StateEvent(state, "t2"), TerminalEnd()}}};
      const Result result = Run({"submit", file_, "--id", "digits-1", how});
      EXPECT_EQ(result.code, code) << how;
      EXPECT_THAT(result.out, HasSubstr("digits-1 " + v1::JobState_Name(state).substr(10)));
    }
    service_->watches = {{{StateEvent(state, "t2"), TerminalEnd()}}};
    EXPECT_EQ(Run({"wait", "digits-1"}).code, code);
    service_->watches = {{{StateEvent(state, "t2"), TerminalEnd()}}};
    EXPECT_EQ(Run({"watch", "digits-1"}).code, code);
  }
}

TEST_F(CliTest, FollowShowsLossAndWhereTheAdapterIs) {
  Script(v1::JOB_STATE_SUCCEEDED);
  auto* series = service_->metrics.add_series();
  series->set_name("loss");
  for (const auto& [step, value] : {std::pair<int, double>{1, 0.5}, {300, 0.125}}) {
    auto* point = series->add_points();
    point->set_step(step);
    point->set_value(value);
  }
  const Result result = Run({"submit", file_, "--id", "digits-1", "--follow"});
  EXPECT_THAT(result.out, HasSubstr("loss:     0.5 at step 1, 0.125 at step 300\n"));
  EXPECT_THAT(result.out, HasSubstr("adapter:  /out/digits-1/digits.safetensors\n"));
  EXPECT_THAT(result.err, HasSubstr("RUNNING\n"));
}

TEST_F(CliTest, ACutConnectionIsResumedAndNeverSuccess) {
  service_->AddJob("digits-1", v1::JOB_STATE_FAILED);
  service_->watches = {{{StateEvent(v1::JOB_STATE_RUNNING, "t1")},
                        grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut")},
                       {{}, grpc::Status::OK},
                       {{StateEvent(v1::JOB_STATE_FAILED, "t2"), TerminalEnd()}}};
  EXPECT_EQ(Run({"submit", file_, "--id", "digits-1", "--follow"}).code, kJobFailed);
  ASSERT_EQ(service_->watch_requests.size(), 3u);
  EXPECT_EQ(service_->watch_requests[2].resume_token(), "t1");

  service_->watches = {
      {{StateEvent(v1::JOB_STATE_RUNNING, "t1")},
       FakeService::Error(grpc::StatusCode::PERMISSION_DENIED, "no", "ACCESS_DENIED")}};
  EXPECT_EQ(Run({"wait", "digits-1"}).code, kDenied);
}

TEST_F(CliTest, ErrorsHaveTheirExitCodes) {
  const std::vector<std::pair<grpc::Status, int>> cases = {
      {FakeService::Error(grpc::StatusCode::INVALID_ARGUMENT, "m", "SPEC_INVALID"), kError},
      {FakeService::Error(grpc::StatusCode::INTERNAL, "m", "BUG"), kError},
      {FakeService::Error(grpc::StatusCode::NOT_FOUND, "m", "JOB_NOT_FOUND"), kNotFound},
      {FakeService::Error(grpc::StatusCode::RESOURCE_EXHAUSTED, "m", "QUEUE_FULL"), kUnavailable},
      {FakeService::Error(grpc::StatusCode::PERMISSION_DENIED, "m", "PATH_NOT_ALLOWED"), kDenied},
      {FakeService::Error(grpc::StatusCode::UNAUTHENTICATED, "m", "TOKEN_MISSING"), kDenied},
      {FakeService::Error(grpc::StatusCode::ALREADY_EXISTS, "m", "JOB_EXISTS"), kConflict},
      {FakeService::Error(grpc::StatusCode::ABORTED, "m", "ETAG_MISMATCH"), kConflict},
      {FakeService::Error(grpc::StatusCode::FAILED_PRECONDITION, "m", "INVALID_STATE"), kConflict},
      {FakeService::Error(grpc::StatusCode::FAILED_PRECONDITION, "m", "WILL_NOT_FIT"),
       kWillNotFit}};
  for (const auto& [status, code] : cases) {
    service_->failures = {status};
    const Result result = Run({"submit", file_});
    EXPECT_EQ(result.code, code) << status.error_code();
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr("error: m ["));
  }
  EXPECT_EQ(Run({"--server", directory_ + "/nobody.sock", "list"}).code, kUnavailable);
  EXPECT_EQ(Run({"--server", "host:1", "list"}).code, kError);
  EXPECT_EQ(Run({"get", "no-such-job"}).code, kNotFound);
  EXPECT_EQ(Run({"get", "NOT/AN/ID"}).code, kNotFound);
  EXPECT_EQ(Run({"submit", directory_ + "/missing.yaml"}).code, kError);
}

TEST_F(CliTest, ShowsTheFaultsOfTheFileAndOfTheServerTogether) {
  WriteFile("name: digits\nmemory: {ring_sise: 2}\n");
  service_->failures = {FakeService::Error(grpc::StatusCode::INVALID_ARGUMENT, "1 violation",
                                           "SPEC_INVALID",
                                           {{"spec.training.max_steps", "is required"}})};
  const Result result = Run({"submit", file_});
  EXPECT_EQ(result.code, kError);
  EXPECT_THAT(result.err, HasSubstr("2 faults"));
  EXPECT_THAT(result.err,
              HasSubstr("memory.ring_sise: unknown key, did you mean \"ring_size\"? (line 2)"));
  EXPECT_THAT(result.err, HasSubstr("spec.training.max_steps: is required"));
  for (const auto& request : service_->create_requests) EXPECT_TRUE(request.validate_only());
}

TEST_F(CliTest, WaitGivesUpAtTheTimeoutAndEndsOnAnyTerminalState) {
  service_->AddJob("digits-1", v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Run({"wait", "digits-1", "--timeout", "0.1"}).code, kStillRunning);
  service_->watches = {{{StateEvent(v1::JOB_STATE_RUNNING, "t")}, grpc::Status::OK, false}};
  EXPECT_EQ(Run({"wait", "digits-1", "--for", "running"}).code, kOk);
  Script(v1::JOB_STATE_FAILED);
  EXPECT_EQ(Run({"wait", "digits-1", "--for", "succeeded"}).code, kJobFailed);
  service_->watches = {{{StateEvent(v1::JOB_STATE_FAILED, "t"), TerminalEnd()}}};
  EXPECT_EQ(Run({"wait", "digits-1", "--for", "running"}).code, kJobFailed);
}

TEST_F(CliTest, FindsJobsByTheBeginningOfTheirId) {
  service_->AddJob("digits-abc", v1::JOB_STATE_RUNNING);
  service_->AddJob("digits-xyz", v1::JOB_STATE_RUNNING);
  EXPECT_THAT(Run({"get", "digits-a"}).out, HasSubstr("digits-abc"));
  EXPECT_THAT(Run({"get", "jobs/digits-xyz"}).out, HasSubstr("digits-xyz"));
  const Result ambiguous = Run({"get", "digits"});
  EXPECT_EQ(ambiguous.code, kError);
  EXPECT_THAT(ambiguous.err, HasSubstr("digits-abc, digits-xyz"));
}

TEST_F(CliTest, PlanShowsWhatMoreAndLessMemoryWouldChange) {
  v1::PlanAlternative less;
  less.set_vram_budget_bytes(int64_t{10} << 30);
  less.set_saves("does not fit");
  v1::PlanAlternative more;
  more.set_vram_budget_bytes(int64_t{14} << 30);
  more.set_fits(true);
  more.set_blocks_to_swap(33);
  more.set_h2d_bytes_per_step(int64_t{25} << 30);
  more.mutable_step_time()->set_seconds(2);
  more.mutable_step_time()->set_nanos(250000000);
  more.set_saves("a step 12.0 % shorter");
  service_->alternatives = {less, more};
  const Result result = Run({"plan", file_, "--device-profile", "rtx4090"});
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("6 blocks, 4 streamed"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("10.0 GiB +- +- +- +does not fit"));
  EXPECT_THAT(result.out,
              ::testing::ContainsRegex("14.0 GiB +33 +2.250 s +25.0 GiB +a step 12.0 % shorter"));
  EXPECT_THAT(result.out, HasSubstr("on device_profiles/rtx4090"));
  const auto json = nlohmann::json::parse(Run({"plan", file_, "-o", "json"}).out);
  ASSERT_EQ(json["alternatives"].size(), 2u);
  EXPECT_EQ(json["alternatives"][1]["blocks_to_swap"], 33);
}

TEST_F(CliTest, EveryReadVerbSpeaksJson) {
  service_->AddJob("digits-1", v1::JOB_STATE_SUCCEEDED)
      .mutable_end_time()
      ->set_seconds(absl::ToUnixSeconds(absl::Now()));
  service_->metrics.add_series()->set_name("loss");
  const std::vector<std::vector<std::string>> commands = {{"list"},
                                                          {"get", "digits-1"},
                                                          {"describe", "digits-1"},
                                                          {"devices"},
                                                          {"metrics", "digits-1"},
                                                          {"server", "info"},
                                                          {"version"},
                                                          {"plan", file_},
                                                          {"validate", file_},
                                                          {"submit", "--dry-run", file_},
                                                          {"submit", file_},
                                                          {"cancel", "digits-1"}};
  for (std::vector<std::string> words : commands) {
    words.insert(words.end(), {"-o", "json"});
    const Result result = Run(words);
    EXPECT_EQ(result.code, kOk) << words[0] << result.err;
    EXPECT_TRUE(nlohmann::json::accept(result.out)) << words[0] << ": " << result.out;
  }
  const auto job = nlohmann::json::parse(Run({"get", "digits-1", "-o", "json"}).out);
  EXPECT_EQ(job["state"], "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(job["output_directory"], "/out/digits-1");
  EXPECT_EQ(job["warnings"], nlohmann::json::array());

  service_->watches = {{{StateEvent(v1::JOB_STATE_SUCCEEDED, "t"), TerminalEnd()}}};
  v1::LogChunk chunk;
  chunk.set_text("hello\n");
  chunk.set_end(v1::JobEvent::END_REASON_JOB_TERMINAL);
  service_->logs = {{{chunk}}};
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"watch", "digits-1", "-o", "jsonl"},
        {"logs", "digits-1", "-o", "json"}}) {
    const Result result = Run(words);
    EXPECT_EQ(result.code, kOk) << result.err;
    std::istringstream lines(result.out);
    std::string line;
    int count = 0;
    while (std::getline(lines, line)) count += nlohmann::json::accept(line);
    EXPECT_EQ(count, 1) << result.out;
  }
}

TEST_F(CliTest, AnEmptyListIsSuccess) {
  EXPECT_EQ(Run({"list"}).code, kOk);
  EXPECT_EQ(nlohmann::json::parse(Run({"list", "-o", "json"}).out)["jobs"],
            nlohmann::json::array());
}

TEST_F(CliTest, ListLeavesOutWhatEndedLongAgo) {
  service_->AddJob("old", v1::JOB_STATE_FAILED).mutable_end_time()->set_seconds(1);
  service_->AddJob("new", v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Run({"list", "-o", "name"}).out, "new\n");
  EXPECT_EQ(Run({"list", "-A", "-o", "name"}).out, "new\nold\n");
  EXPECT_EQ(Run({"ps", "--state", "running", "-l", "team=a"}).code, kOk);
  EXPECT_EQ(service_->list_requests.back().filter(), "state=RUNNING AND label.team=a");
}

TEST_F(CliTest, CancelAsksNicelyOrNow) {
  service_->AddJob("digits-1", v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Run({"cancel", "digits-1", "--reason", "enough"}).out, "digits-1 CANCELLING\n");
  EXPECT_EQ(Run({"cancel", "digits-1", "--now"}).code, kOk);
  ASSERT_EQ(service_->cancel_requests.size(), 2u);
  EXPECT_EQ(service_->cancel_requests[0].mode(), v1::CancelJobRequest::MODE_GRACEFUL);
  EXPECT_EQ(service_->cancel_requests[0].reason(), "enough");
  EXPECT_EQ(service_->cancel_requests[1].mode(), v1::CancelJobRequest::MODE_NOW);
}

TEST_F(CliTest, UpdateNamesWhatIsSetAndNothingElse) {
  v1::Job& job = service_->AddJob("digits-1", v1::JOB_STATE_RUNNING);
  (*job.mutable_spec()->mutable_labels())["stage"] = "two";
  EXPECT_EQ(Run({"update", "digits-1", "--set", "memory.vram_budget=10GiB", "--set", "priority=5",
                 "--set", "labels.team=vision", "--etag", "v7"})
                .out,
            "updated digits-1 RUNNING\n");
  ASSERT_EQ(service_->update_requests.size(), 1u);
  const v1::UpdateJobRequest& request = service_->update_requests[0];
  EXPECT_EQ(request.job().name(), "jobs/digits-1");
  EXPECT_EQ(request.job().etag(), "v7");
  EXPECT_EQ(request.job().spec().memory().vram_budget(), "10GiB");
  EXPECT_EQ(request.job().spec().priority(), 5);
  EXPECT_THAT(request.update_mask().paths(),
              ::testing::ElementsAre("memory.vram_budget", "priority", "labels"));
  EXPECT_EQ(request.job().spec().labels().size(), 2u);
}

TEST_F(CliTest, UpdateShowsEveryFaultAndSendsNothing) {
  service_->AddJob("digits-1", v1::JOB_STATE_RUNNING);
  const Result result =
      Run({"update", "digits-1", "--set", "memory.ring_sise=1", "--set", "priority=high"});
  EXPECT_NE(result.code, kOk);
  EXPECT_THAT(result.err, ::testing::AllOf(::testing::HasSubstr("ring_size"),
                                           ::testing::HasSubstr("priority=high")));
  EXPECT_TRUE(service_->update_requests.empty());
}

TEST_F(CliTest, LogsAskForTheTail) {
  service_->AddJob("digits-1", v1::JOB_STATE_SUCCEEDED);
  v1::LogChunk chunk;
  chunk.set_text("last line\n");
  chunk.set_end(v1::JobEvent::END_REASON_JOB_TERMINAL);
  service_->logs = {{{chunk}}};
  EXPECT_EQ(Run({"logs", "digits-1", "--tail", "1", "--attempt", "2"}).out, "last line\n");
  EXPECT_EQ(service_->log_requests[0].tail_lines(), 1);
  EXPECT_EQ(service_->log_requests[0].attempt(), 2);
}

TEST_F(CliTest, MetricsAsCsvKeepEveryDigit) {
  service_->AddJob("digits-1", v1::JOB_STATE_SUCCEEDED);
  auto* loss = service_->metrics.add_series();
  loss->set_name("loss");
  auto* point = loss->add_points();
  point->set_step(1);
  point->set_value(0.1);
  auto* rate = service_->metrics.add_series();
  rate->set_name("learning_rate");
  point = rate->add_points();
  point->set_step(2);
  point->set_value(0.5);
  EXPECT_EQ(Run({"metrics", "digits-1", "--csv"}).out,
            "step,loss,learning_rate\n1,0.10000000000000001,\n2,,0.5\n");
}

TEST_F(CliTest, RemoteTextCannotSteerTheTerminal) {
  v1::Job& job = service_->AddJob("digits-1", v1::JOB_STATE_FAILED);
  job.mutable_spec()->set_name("x\x1b]0;evil\x07");
  job.mutable_failure()->set_message("\x1b[2J");
  job.mutable_end_time()->set_seconds(absl::ToUnixSeconds(absl::Now()));
  for (const char* verb : {"describe", "get"})
    EXPECT_THAT(Run({verb, "digits-1"}).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(Run({"list"}).out, Not(HasSubstr("\x1b")));
}

// The whole program: Ctrl-C detaches, says how to go on, and exits 130.
TEST_F(CliTest, CtrlCDetaches) {
  const char* bin = std::getenv("BLOCKSWAP_BIN_DIR");
  ASSERT_NE(bin, nullptr);
  const std::string program = std::string(bin) + "/blockswap";
  const std::string err_file = directory_ + "/err";
  const std::string target = service_->target();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (std::freopen(err_file.c_str(), "w", stderr) == nullptr) _exit(99);
    execl(program.c_str(), program.c_str(), "--server", target.c_str(), "submit", file_.c_str(),
          "--follow", nullptr);
    _exit(98);
  }
  service_->AwaitWatches(1);
  kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kInterrupted);
  std::stringstream err;
  err << std::ifstream(err_file).rdbuf();
  EXPECT_THAT(err.str(), HasSubstr("detached; the job goes on"));
  EXPECT_THAT(err.str(), HasSubstr("blockswap cancel made-1"));
  EXPECT_TRUE(service_->cancel_requests.empty());
}

}  // namespace
}  // namespace blockswap::cli
