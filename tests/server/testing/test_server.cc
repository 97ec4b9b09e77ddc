// SPDX-License-Identifier: Apache-2.0
#include "tests/server/testing/test_server.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/status.pb.h"
#include "server/base/reason.h"
#include "server/rpc/status_conversion.h"
#include "tests/server/testing/job_calls.h"

namespace blockswap::server {

namespace {

// What the label says.
int64_t MebibytesOf(const v1::JobSpec& spec, const char* label, int64_t otherwise) {
  const auto found = spec.labels().find(label);
  int64_t number = 0;
  const bool is_said = found != spec.labels().end() && absl::SimpleAtoi(found->second, &number);
  return (is_said ? number : otherwise) << 20;
}

}  // namespace

absl::StatusOr<CheckedSpec> ScriptedChecker::Check(const v1::JobSpec& spec,
                                                   const std::vector<DeviceState>& devices) {
  if (absl::StartsWith(spec.name(), "invalid")) {
    return SpecInvalid(
        {{"model.weights", "is required"}, {"network.rank", "must be at least 1, is 0"}});
  }
  if (absl::StartsWith(spec.name(), "outside"))
    return PathNotAllowed({{"model.weights", "leaves its root"}});
  if (absl::StartsWith(spec.name(), "huge")) {
    return WithReason(absl::FailedPreconditionError("needs 9 GiB, the device has 1 GiB"),
                      "WILL_NOT_FIT");
  }
  CheckedSpec checked;
  checked.plan.set_num_blocks(8);
  checked.plan.set_blocks_to_swap(2);
  checked.plan.set_device_bytes(1 << 20);
  checked.plan.set_text("planned by the test");
  checked.needs.device_bytes = MebibytesOf(spec, "device_mib", 1);
  checked.needs.disk_bytes = MebibytesOf(spec, "disk_mib", 0);
  checked.needs.blocks_to_swap = 2;
  checked.needs.max_blocks_to_swap = 7;
  checked.needs.architecture = "fake";
  checked.device = devices.empty() ? "" : devices[0].name;
  checked.total_steps = 3;
  checked.num_items = 1;
  return checked;
}

absl::StatusOr<CheckedSpec> ScriptedChecker::PlanOnly(const v1::JobSpec& spec,
                                                      const std::vector<DeviceState>& devices,
                                                      const std::string& device_profile) {
  absl::StatusOr<CheckedSpec> checked = Check(spec, devices);
  if (!checked.ok()) return checked;
  if (!device_profile.empty()) checked->device = device_profile;
  v1::PlanAlternative& more = checked->alternatives.emplace_back();
  more.set_fits(true);
  more.set_vram_budget_bytes(checked->plan.device_bytes() + 1);
  return checked;
}

ServerConfig TestConfig(const std::string& directory) {
  ServerConfig config;
  config.state_dir = absl::StrCat(directory, "/state");
  config.socket = absl::StrCat(directory, "/run/d.sock");
  config.http = "off";
  config.models = absl::StrCat(directory, "/models");
  config.datasets = absl::StrCat(directory, "/datasets");
  config.outputs = absl::StrCat(directory, "/outputs");
  config.templates = absl::StrCat(directory, "/templates");
  const char* bin = ::getenv("BLOCKSWAP_FAKE_WORKER");
  config.worker = bin == nullptr ? "fake_worker_is_not_set" : bin;
  config.host_budget_bytes = int64_t{1} << 30;
  config.measure_links = false;
  config.retry_backoff_seconds = 0.01;
  config.stop_grace_seconds = 20;
  config.pass_environment = {"PATH", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"};
  return config;
}

TestServer::TestServer(const std::string& directory,
                       const std::function<void(ServerConfig&)>& adjust) {
  ::signal(SIGPIPE, SIG_IGN);
  ServerConfig config = TestConfig(directory);
  adjust(config);
  auto daemon = Daemon::Start(config, std::make_unique<ScriptedChecker>());
  if (!daemon.ok()) {
    ADD_FAILURE() << daemon.status();
    std::abort();
  }
  daemon_ = *std::move(daemon);
  grpc::ChannelArguments arguments;
  // A test that starts a server twice on one socket must not get the first one's connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  channel_ = grpc::CreateCustomChannel(absl::StrCat("unix:", config.socket),
                                       grpc::experimental::LocalCredentials(UDS), arguments);
  training_ = v1::TrainingService::NewStub(channel_);
  admin_ = v1::AdminService::NewStub(channel_);
}

TestServer::~TestServer() = default;

v1::CreateJobRequest TestServer::Request(const std::string& name, const std::string& script) const {
  v1::CreateJobRequest request;
  request.mutable_spec()->set_name(name);
  (*request.mutable_spec()->mutable_labels())["fake"] = script;
  return request;
}

grpc::Status TestServer::Create(const v1::CreateJobRequest& request, v1::Job* job) {
  grpc::ClientContext context;
  return training_->CreateJob(&context, request, job);
}

v1::Job TestServer::MustCreate(const std::string& name, const std::string& script) {
  v1::Job job;
  const grpc::Status status = Create(Request(name, script), &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

v1::Job TestServer::Get(const std::string& name) { return GetJob(*training_, name); }

std::vector<v1::JobEvent> TestServer::Watch(const std::string& name,
                                            const std::function<bool(const v1::JobEvent&)>& done) {
  return WatchJob(*training_, name, done).events;
}

std::vector<v1::JobEvent> TestServer::WatchToEnd(const std::string& name) {
  return Watch(name, [](const v1::JobEvent&) { return false; });
}

v1::Job TestServer::WaitTerminal(const std::string& name) {
  const auto events = WatchToEnd(name);
  EXPECT_FALSE(events.empty());
  if (!events.empty()) {
    EXPECT_EQ(events.back().end_reason(), v1::JobEvent::END_REASON_JOB_TERMINAL);
  }
  return Get(name);
}

v1::Job TestServer::WaitState(const std::string& name, v1::JobState state) {
  Watch(name, [state](const v1::JobEvent& event) { return event.state() == state; });
  return Get(name);
}

std::string TestServer::Log(const std::string& name, int attempt) {
  return JobLog(*training_, name, attempt);
}

std::vector<v1::Attempt> TestServer::Attempts(const std::string& name) {
  return JobAttempts(*training_, name);
}

std::string ErrorReason(const grpc::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  for (const auto& detail : details.details()) {
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&info)) return info.reason();
  }
  return std::string();
}

google::rpc::BadRequest ErrorViolations(const grpc::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  google::rpc::BadRequest violations;
  for (const auto& detail : details.details()) {
    if (detail.UnpackTo(&violations)) break;
  }
  return violations;
}

void LetGo(const v1::Job& job) { std::ofstream(job.output_directory() + "/go") << "go"; }

}  // namespace blockswap::server
