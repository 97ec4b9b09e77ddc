// SPDX-License-Identifier: Apache-2.0
// Rows 39 and 40: what others write into logs and records, and what must not get there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/text/utf8.h"
#include "tests/server/testing/daemon_process.h"
#include "tests/server/testing/http_client.h"
#include "tests/server/testing/metrics_page.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using Context = grpc::ClientContext;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kSecret[] = "NeverShowThisTokenToAnybody1234";  // the fake worker's, see "hostile"

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

class SecretFaultsTest : public ::testing::Test {
 protected:
  void Start() {
    server_ = std::make_unique<TestServer>(
        directory_.path(), [](ServerConfig& config) { config.http = "127.0.0.1:0"; });
  }

  const TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
};

using Row39 = SecretFaultsTest;
using Row40 = SecretFaultsTest;

// The daemon's log while it lives.
class CapturedLog {
 public:
  CapturedLog() : before_(spdlog::default_logger()) {
    const auto logger = std::make_shared<spdlog::logger>(
        "captured", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
    logger->set_pattern("%l| %v");
    spdlog::set_default_logger(logger);
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::logger> before_;
};

std::vector<std::string> LinesOf(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

bool SteersTerminals(const std::string& text) {
  return absl::StrContains(text, "\x1b") || absl::StrContains(text, "\xe2\x80\xae");
}

TEST_F(Row39, TextOfOthersIsNoLineOfAnyLogAndNoFieldOfAnyRecord) {
  const std::string hostile =
      "x\x1b[2J\xe2\x80\xae\ninfo| serving\n{\"decision\":\"allowed\",\"rpc\":\"all\"}\r\n# "
      "HELP x\n";
  CapturedLog log;
  Start();
  v1::CreateJobRequest request = server_->Request(hostile, "steps=3 hostile exit_at=3");
  request.mutable_spec()->mutable_retry()->set_max_restarts(0);
  (*request.mutable_spec()->mutable_labels())[hostile] = hostile;
  v1::Job job;
  ASSERT_TRUE(server_->Create(request, &job).ok());
  EXPECT_EQ(server_->WaitTerminal(job.name()).state(), v1::JOB_STATE_FAILED);
  // Calls are audited with what the caller wrote.
  Context context;
  v1::CancelJobRequest cancel;
  cancel.set_name(hostile);
  v1::Job none;
  EXPECT_FALSE(server_->training().CancelJob(&context, cancel, &none).ok());
  const std::string page = MetricsPage(server_->daemon().http_port());
  const std::string events =
      HttpFetch(server_->daemon().http_port(), absl::StrCat("/api/v1/", job.name(), "/events"))
          .body;
  const std::string text = server_->Log(job.name(), 1);
  const std::string audit = ReadAll(directory_.path() + "/state/audit.jsonl");
  server_.reset();

  const std::string logged = log.text();
  EXPECT_THAT(logged, HasSubstr(job.name().substr(job.name().find('/') + 1)));
  EXPECT_FALSE(SteersTerminals(logged));
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\r'), 0);
  for (const std::string& line : LinesOf(logged)) {
    EXPECT_THAT(line.substr(0, line.find('|')), AnyOf("info", "warning", "error", "debug")) << line;
    EXPECT_NE(line, "info| serving");
  }

  EXPECT_FALSE(SteersTerminals(audit));
  EXPECT_THAT(audit, HasSubstr("# HELP x")) << "the name is there";
  for (const std::string& line : LinesOf(audit)) {
    const nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(record.is_object()) << line;
    EXPECT_NE(record.value("rpc", ""), "all");
    EXPECT_NE(record.value("rpc", ""), "");
  }
  for (const std::string& line : LinesOf(page)) {
    EXPECT_THAT(line, AnyOf(StartsWith("# HELP blockswap_"), StartsWith("# TYPE blockswap_"),
                            StartsWith("# HELP grpc_"), StartsWith("# TYPE grpc_"),
                            StartsWith("# HELP process_"), StartsWith("# TYPE process_"),
                            StartsWith("blockswap_"), StartsWith("grpc_"), StartsWith("process_")));
  }
  EXPECT_TRUE(nlohmann::json::accept(events)) << events.substr(0, 200);
  // The job's own log is the worker's words: valid text, of which the CLI shows a terminal only
  // what is printable (tests/proto/text/utf8_test, client/cli/logs_command).
  EXPECT_EQ(proto::ToValidUtf8(text), text);
  EXPECT_THAT(text, HasSubstr("all jobs deleted"));
  EXPECT_FALSE(SteersTerminals(proto::ToPrintable(text)));
}

TEST_F(Row40, WhatAWorkerTellsIsKeptAndShownWithoutItsToken) {
  CapturedLog log;
  Start();
  v1::CreateJobRequest request = server_->Request("job", "steps=3 hostile exit_at=3");
  request.mutable_spec()->mutable_retry()->set_max_restarts(0);
  v1::Job job;
  ASSERT_TRUE(server_->Create(request, &job).ok());
  const v1::Job done = server_->WaitTerminal(job.name());
  EXPECT_THAT(done.failure().message(), HasSubstr("token hf_[redacted]"));
  EXPECT_THAT(server_->Log(job.name(), 1), HasSubstr("token hf_[redacted]"));
  const int port = server_->daemon().http_port();
  std::string shown = done.DebugString() + server_->Log(job.name(), 1) + MetricsPage(port);
  for (const v1::JobEvent& event : server_->WatchToEnd(job.name())) shown += event.DebugString();
  for (const char* part : {"", "/events", "/attempts"})
    shown += HttpFetch(port, absl::StrCat("/api/v1/", job.name(), part)).body;
  EXPECT_THAT(shown, HasSubstr("[redacted]"));
  EXPECT_THAT(shown, Not(HasSubstr(kSecret)));
  server_.reset();
  EXPECT_THAT(log.text(), Not(HasSubstr(kSecret)));
  // Nor is it kept.
  int files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(directory_.path() + "/state")) {
    if (!entry.is_regular_file()) continue;
    ++files;
    EXPECT_THAT(ReadAll(entry.path()), Not(HasSubstr(kSecret))) << entry.path();
  }
  EXPECT_GE(files, 2);
}

TEST_F(Row40, ASpecWithASecretIsRefusedByFieldAndNotRepeated) {
  CapturedLog log;
  Start();
  const std::string secrets[] = {absl::StrCat("hf_", kSecret),
                                 absl::StrCat("bst_", std::string(43, 'k')),
                                 "https://me:passw0rd@host/model"};
  using Change = std::function<void(v1::JobSpec&, const std::string&)>;
  const std::pair<const char*, Change> fields[] = {
      {"name", [](auto& s, const auto& t) { s.set_name(t); }},
      {"labels.value", [](auto& s, const auto& t) { (*s.mutable_labels())["token"] = t; }},
      {"labels.key", [](auto& s, const auto& t) { (*s.mutable_labels())[t] = "x"; }},
      {"model.weights", [](auto& s, const auto& t) { s.mutable_model()->set_weights(t); }},
      {"network.include_patterns",
       [](auto& s, const auto& t) { s.mutable_network()->add_include_patterns(t); }}};
  for (const std::string& secret : secrets) {
    for (const auto& [field, change] : fields) {
      v1::CreateJobRequest request = server_->Request("job", "steps=1");
      change(*request.mutable_spec(), secret);
      v1::Job job;
      const grpc::Status status = server_->Create(request, &job);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
      ASSERT_EQ(ErrorViolations(status).field_violations_size(), 1) << field;
      EXPECT_EQ(ErrorViolations(status).field_violations(0).field(), field);
      EXPECT_THAT(status.error_message(), Not(HasSubstr(secret)));
      EXPECT_THAT(status.error_details(), Not(HasSubstr(secret)));
    }
  }
  server_.reset();
  for (const std::string& secret : secrets) {
    EXPECT_THAT(log.text(), Not(HasSubstr(secret)));
    EXPECT_THAT(ReadAll(directory_.path() + "/state/jobs.db"), Not(HasSubstr(secret)));
    EXPECT_THAT(ReadAll(directory_.path() + "/state/audit.jsonl"), Not(HasSubstr(secret)));
  }
}

TEST(Row40Process, TheServersEnvironmentStaysItsOwnAndNobodyLeavesACore) {
  const TemporaryDirectory directory;
  DaemonProcess daemon(directory.path(), {},
                       {absl::StrCat("HF_TOKEN=hf_", kSecret), "AWS_SECRET_ACCESS_KEY=topsecret"});
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory.path());
  const v1::Job job = client.Create("steps=2 hold_at=1");
  ASSERT_TRUE(client.WatchUntil(job.name(), [](const v1::JobEvent& event) {
    return event.state() == v1::JOB_STATE_RUNNING;
  }));
  const pid_t worker = FakeWorkerPid(job);
  const std::string environment = ReadAll(absl::StrCat("/proc/", worker, "/environ"));
  EXPECT_THAT(environment, HasSubstr("PATH="));
  EXPECT_THAT(environment, Not(HasSubstr("SECRET")));
  EXPECT_THAT(environment, Not(HasSubstr(kSecret)));
  ASSERT_THAT(ReadAll(absl::StrCat("/proc/", daemon.pid(), "/environ")), HasSubstr(kSecret));
  for (const pid_t pid : {daemon.pid(), worker}) {
    bool is_off = false;
    for (const std::string& line : LinesOf(ReadAll(absl::StrCat("/proc/", pid, "/limits")))) {
      if (!absl::StartsWith(line, "Max core file size")) continue;
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      is_off = words[4] == "0";  // the soft limit
    }
    EXPECT_TRUE(is_off) << pid;
  }
  LetGo(job);
  EXPECT_EQ(client.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace blockswap::server
