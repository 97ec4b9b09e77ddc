// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_service.h"

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace blockswap::testing {
namespace {

bool IsTerminal(v1::JobState state) { return state >= v1::JOB_STATE_SUCCEEDED; }

}  // namespace

FakeService::FakeService(const std::string& directory) : path_(directory + "/server.sock") {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path_, grpc::experimental::LocalServerCredentials(UDS));
  builder.RegisterService(static_cast<v1::TrainingService::Service*>(this));
  builder.RegisterService(static_cast<v1::AdminService::Service*>(this));
  server_ = builder.BuildAndStart();
}

FakeService::~FakeService() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

grpc::Status FakeService::Error(grpc::StatusCode code, const std::string& message,
                                const std::string& reason,
                                const std::map<std::string, std::string>& violations) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("blockswap");
  status.add_details()->PackFrom(info);
  if (!violations.empty()) {
    google::rpc::BadRequest bad_request;
    for (const auto& [field, description] : violations) {
      auto* violation = bad_request.add_field_violations();
      violation->set_field(field);
      violation->set_description(description);
    }
    status.add_details()->PackFrom(bad_request);
  }
  return grpc::Status(code, message, status.SerializeAsString());
}

v1::Job& FakeService::AddJob(const std::string& id, v1::JobState state) {
  base::MutexLock lock(mutex);
  v1::Job& job = jobs[absl::StrCat("jobs/", id)];
  job.set_name(absl::StrCat("jobs/", id));
  job.set_state(state);
  job.mutable_spec()->set_name("digits");
  job.set_output_directory("/out/" + id);
  job.mutable_create_time()->set_seconds(1700000000);
  return job;
}

void FakeService::AwaitWatches(size_t count) {
  base::MutexLock lock(mutex);
  while (watch_requests.size() < count) changed.Wait(mutex);
}

grpc::Status FakeService::NextFailure() {
  if (failures.empty()) return grpc::Status::OK;
  const grpc::Status failure = failures.front();
  failures.pop_front();
  return failure;
}

grpc::Status FakeService::CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                                    v1::Job* job) {
  base::MutexLock lock(mutex);
  create_requests.push_back(*request);
  const grpc::Status failure = NextFailure();
  if (!failure.ok()) return failure;
  const std::string id = request->job_id().empty() ? "made-1" : request->job_id();
  job->set_name(absl::StrCat("jobs/", id));
  job->set_state(v1::JOB_STATE_QUEUED);
  *job->mutable_spec() = request->spec();
  *job->mutable_plan() = plan;
  if (!request->validate_only() && jobs.count(job->name()) == 0) jobs[job->name()] = *job;
  return grpc::Status::OK;
}

grpc::Status FakeService::PlanJob(grpc::ServerContext*, const v1::PlanJobRequest* request,
                                  v1::PlanJobResponse* response) {
  base::MutexLock lock(mutex);
  const grpc::Status failure = NextFailure();
  *response->mutable_plan() = plan;
  const std::string& profile = request->device_profile();
  response->set_device(profile.empty() ? "host" : "device_profiles/" + profile);
  for (const v1::PlanAlternative& alternative : alternatives) {
    *response->add_alternatives() = alternative;
  }
  return failure;
}

grpc::Status FakeService::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                 v1::Job* job) {
  base::MutexLock lock(mutex);
  const grpc::Status failure = NextFailure();
  if (!failure.ok()) return failure;
  const auto found = jobs.find(request->name());
  if (found == jobs.end()) {
    return Error(grpc::StatusCode::NOT_FOUND, absl::StrCat("no job ", request->name()),
                 "JOB_NOT_FOUND");
  }
  *job = found->second;
  return grpc::Status::OK;
}

grpc::Status FakeService::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                   v1::ListJobsResponse* response) {
  base::MutexLock lock(mutex);
  list_requests.push_back(*request);
  const grpc::Status failure = NextFailure();
  if (!failure.ok()) return failure;
  for (const auto& [name, job] : jobs) {
    absl::string_view prefix = request->filter();
    if (absl::ConsumePrefix(&prefix, "name:") &&
        !absl::StartsWith(name, absl::StrCat("jobs/", prefix)))
      continue;
    if (request->filter() == "active" && IsTerminal(job.state())) continue;
    if (request->filter() == "terminal" && !IsTerminal(job.state())) continue;
    *response->add_jobs() = job;
  }
  return grpc::Status::OK;
}

grpc::Status FakeService::UpdateJob(grpc::ServerContext*, const v1::UpdateJobRequest* request,
                                    v1::Job* job) {
  base::MutexLock lock(mutex);
  update_requests.push_back(*request);
  const grpc::Status failure = NextFailure();
  *job = jobs[request->job().name()];
  return failure;
}

grpc::Status FakeService::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                                    v1::Job* job) {
  base::MutexLock lock(mutex);
  cancel_requests.push_back(*request);
  const grpc::Status failure = NextFailure();
  *job = jobs[request->name()];
  job->set_state(v1::JOB_STATE_CANCELLING);
  return failure;
}

grpc::Status FakeService::ListMetricPoints(grpc::ServerContext*, const v1::ListMetricPointsRequest*,
                                           v1::ListMetricPointsResponse* response) {
  base::MutexLock lock(mutex);
  *response = metrics;
  return NextFailure();
}

grpc::Status FakeService::ListDevices(grpc::ServerContext*, const v1::ListDevicesRequest*,
                                      v1::ListDevicesResponse* response) {
  base::MutexLock lock(mutex);
  v1::Device* device = response->add_devices();
  device->set_name("devices/host");
  device->set_kind(v1::Device::KIND_HOST);
  device->set_health(v1::Device::HEALTH_HEALTHY);
  device->set_total_bytes(int64_t{8} << 30);
  return NextFailure();
}

grpc::Status FakeService::GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                                        v1::ServerInfo* info) {
  base::MutexLock lock(mutex);
  info->set_version("9.9.9");
  info->set_metrics_address("127.0.0.1:9464");
  return NextFailure();
}

template <typename Message>
grpc::Status FakeService::Play(grpc::ServerContext* context, const StreamScript<Message>& script,
                               grpc::ServerWriter<Message>* writer) {
  for (const Message& message : script.messages) {
    if (!writer->Write(message)) return grpc::Status::CANCELLED;
  }
  if (script.ends) return script.status;
  base::MutexLock lock(mutex);
  while (!context->IsCancelled()) {
    changed.WaitUntil(mutex, std::chrono::steady_clock::now() + std::chrono::milliseconds(10));
  }
  return grpc::Status::CANCELLED;
}

grpc::Status FakeService::WatchJobs(grpc::ServerContext* context,
                                    const v1::WatchJobsRequest* request,
                                    grpc::ServerWriter<v1::JobEvent>* writer) {
  StreamScript<v1::JobEvent> script;
  {
    base::MutexLock lock(mutex);
    watch_requests.push_back(*request);
    changed.SignalAll();
    script.ends = false;
    if (!watches.empty()) {
      script = watches.front();
      watches.pop_front();
    }
  }
  return Play(context, script, writer);
}

grpc::Status FakeService::StreamJobLogs(grpc::ServerContext* context,
                                        const v1::StreamJobLogsRequest* request,
                                        grpc::ServerWriter<v1::LogChunk>* writer) {
  StreamScript<v1::LogChunk> script;
  {
    base::MutexLock lock(mutex);
    log_requests.push_back(*request);
    script.ends = false;
    if (!logs.empty()) {
      script = logs.front();
      logs.pop_front();
    }
  }
  return Play(context, script, writer);
}

}  // namespace blockswap::testing
