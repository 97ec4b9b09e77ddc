// SPDX-License-Identifier: Apache-2.0
#include "tests/server/testing/daemon_process.h"

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/server/testing/job_calls.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

DaemonProcess::DaemonProcess(const std::string& directory, std::vector<std::string> settings,
                             std::vector<std::string> environment) {
  int output[2];
  EXPECT_EQ(::pipe2(output, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  std::vector<std::string> arguments = {::getenv("BLOCKSWAP_FAKE_DAEMON"), directory};
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.emplace_back(*variable);
  }
  std::vector<char*> argv = Pointers(arguments), envp = Pointers(environment);
  EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(output[1]);
  std::array<char, 16> text{};
  // The end of the pipe when it could not start.
  ready_ = ::read(output[0], text.data(), text.size()) > 0;
  ::close(output[0]);
}

void DaemonProcess::Signal(int signal) const {
  if (pid_ != 0) ::kill(pid_, signal);
}

int DaemonProcess::End(int signal) {
  if (pid_ == 0) return 0;
  if (signal != 0) ::kill(pid_, signal);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

DaemonClient::DaemonClient(const std::string& directory) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  stub_ = v1::TrainingService::NewStub(
      grpc::CreateCustomChannel(absl::StrCat("unix:", TestConfig(directory).socket),
                                grpc::experimental::LocalCredentials(UDS), arguments));
}

grpc::Status DaemonClient::TryCreate(const std::string& script, const std::string& request_id,
                                     v1::Job* job, const std::string& device) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  v1::CreateJobRequest request;
  request.set_request_id(request_id);
  request.mutable_spec()->set_name("job");
  request.mutable_spec()->set_device(device);
  (*request.mutable_spec()->mutable_labels())["fake"] = script;
  return stub_->CreateJob(&context, request, job);
}

v1::Job DaemonClient::Create(const std::string& script) {
  v1::Job job;
  const grpc::Status status = TryCreate(script, "", &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

v1::Job DaemonClient::Get(const std::string& name) { return GetJob(*stub_, name); }

v1::Job DaemonClient::Cancel(const std::string& name) {
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::Job job;
  const grpc::Status status = stub_->CancelJob(&context, request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

bool DaemonClient::WatchUntil(const std::string& name,
                              const std::function<bool(const v1::JobEvent&)>& done) {
  return WatchJob(*stub_, name, done).is_done;
}

v1::Job DaemonClient::WaitTerminal(const std::string& name) {
  EXPECT_TRUE(WatchUntil(
      name, [](const v1::JobEvent& event) { return event.type() == v1::JobEvent::TYPE_END; }));
  return Get(name);
}

std::vector<v1::JobEvent> DaemonClient::Events(const std::string& name) {
  grpc::ClientContext context;
  v1::ListJobEventsRequest request;
  request.set_parent(name);
  request.set_page_size(1000);
  v1::ListJobEventsResponse response;
  EXPECT_TRUE(stub_->ListJobEvents(&context, request, &response).ok());
  return {response.events().begin(), response.events().end()};
}

std::vector<v1::Attempt> DaemonClient::Attempts(const std::string& name) {
  return JobAttempts(*stub_, name);
}

std::vector<v1::MetricPoint> DaemonClient::Points(const std::string& name) {
  grpc::ClientContext context;
  v1::ListMetricPointsRequest request;
  request.set_name(name);
  request.add_series("loss");
  v1::ListMetricPointsResponse response;
  EXPECT_TRUE(stub_->ListMetricPoints(&context, request, &response).ok());
  if (response.series_size() != 1) return {};
  return {response.series(0).points().begin(), response.series(0).points().end()};
}

std::string DaemonClient::Log(const std::string& name, int attempt) {
  return JobLog(*stub_, name, attempt);
}

pid_t FakeWorkerPid(const v1::Job& job) {
  pid_t pid = 0;
  std::ifstream(job.output_directory() + "/fake-pid") >> pid;
  EXPECT_GT(pid, 1);
  return pid;
}

bool IsGone(pid_t pid) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (::kill(pid, 0) == 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 2);
  }
  return true;
}

}  // namespace blockswap::server
