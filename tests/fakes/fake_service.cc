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

grpc::Status FakeService::Note(const char* call, const google::protobuf::Message& request) {
  calls.push_back(absl::StrCat(call, " ", request.ShortDebugString()));
  return NextFailure();
}

grpc::Status FakeService::NoteForJob(const char* call, const google::protobuf::Message& request,
                                     const std::string& name, v1::Job* job) {
  base::MutexLock lock(mutex);
  const grpc::Status failure = Note(call, request);
  if (!failure.ok()) return failure;
  const auto found = jobs.find(name);
  if (found == jobs.end()) {
    return Error(grpc::StatusCode::NOT_FOUND, absl::StrCat("no job ", name), "JOB_NOT_FOUND");
  }
  *job = found->second;
  return grpc::Status::OK;
}

grpc::Status FakeService::SuspendJob(grpc::ServerContext*, const v1::SuspendJobRequest* request,
                                     v1::Job* job) {
  return NoteForJob("SuspendJob", *request, request->name(), job);
}

grpc::Status FakeService::ResumeJob(grpc::ServerContext*, const v1::ResumeJobRequest* request,
                                    v1::Job* job) {
  return NoteForJob("ResumeJob", *request, request->name(), job);
}

grpc::Status FakeService::CheckpointJob(grpc::ServerContext*,
                                        const v1::CheckpointJobRequest* request, v1::Job* job) {
  return NoteForJob("CheckpointJob", *request, request->name(), job);
}

grpc::Status FakeService::SampleJob(grpc::ServerContext*, const v1::SampleJobRequest* request,
                                    v1::Job* job) {
  return NoteForJob("SampleJob", *request, request->name(), job);
}

grpc::Status FakeService::RetryJob(grpc::ServerContext*, const v1::RetryJobRequest* request,
                                   v1::Job* job) {
  const grpc::Status status = NoteForJob("RetryJob", *request, request->name(), job);
  job->set_retry_of(request->name());
  job->set_name(
      absl::StrCat("jobs/", request->new_job_id().empty() ? "made-2" : request->new_job_id()));
  job->set_state(v1::JOB_STATE_QUEUED);
  return status;
}

grpc::Status FakeService::DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                                    google::protobuf::Empty*) {
  base::MutexLock lock(mutex);
  return Note("DeleteJob", *request);
}

grpc::Status FakeService::DeleteCheckpoint(grpc::ServerContext*,
                                           const v1::DeleteCheckpointRequest* request,
                                           google::protobuf::Empty*) {
  base::MutexLock lock(mutex);
  return Note("DeleteCheckpoint", *request);
}

grpc::Status FakeService::ListAttempts(grpc::ServerContext*, const v1::ListAttemptsRequest* request,
                                       v1::ListAttemptsResponse* response) {
  base::MutexLock lock(mutex);
  *response = attempts;
  return Note("ListAttempts", *request);
}

grpc::Status FakeService::ListCheckpoints(grpc::ServerContext*,
                                          const v1::ListCheckpointsRequest* request,
                                          v1::ListCheckpointsResponse* response) {
  base::MutexLock lock(mutex);
  *response = checkpoints;
  return Note("ListCheckpoints", *request);
}

grpc::Status FakeService::ListJobEvents(grpc::ServerContext*,
                                        const v1::ListJobEventsRequest* request,
                                        v1::ListJobEventsResponse* response) {
  base::MutexLock lock(mutex);
  *response = events;
  return Note("ListJobEvents", *request);
}

grpc::Status FakeService::ListTemplates(grpc::ServerContext*,
                                        const v1::ListTemplatesRequest* request,
                                        v1::ListTemplatesResponse* response) {
  base::MutexLock lock(mutex);
  *response = templates;
  return Note("ListTemplates", *request);
}

grpc::Status FakeService::GetCheckpoint(grpc::ServerContext*,
                                        const v1::GetCheckpointRequest* request,
                                        v1::Checkpoint* checkpoint) {
  base::MutexLock lock(mutex);
  for (const v1::Checkpoint& each : checkpoints.checkpoints()) {
    if (each.name() == request->name()) *checkpoint = each;
  }
  const grpc::Status failure = Note("GetCheckpoint", *request);
  if (!failure.ok() || !checkpoint->name().empty()) return failure;
  return Error(grpc::StatusCode::NOT_FOUND, absl::StrCat("no checkpoint ", request->name()),
               "CHECKPOINT_NOT_FOUND");
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
