// SPDX-License-Identifier: Apache-2.0
// TrainingService: jobs, their events, logs and figures.
#ifndef BLOCKSWAP_SERVER_RPC_TRAINING_SERVICE_H_
#define BLOCKSWAP_SERVER_RPC_TRAINING_SERVICE_H_

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "blockswap/v1/training.grpc.pb.h"
#include "server/auth/audit_log.h"
#include "server/auth/authenticator.h"
#include "server/auth/call_limits.h"
#include "server/auth/permissions.h"
#include "server/events/event_hub.h"
#include "server/metrics/server_metrics.h"
#include "server/rpc/retention.h"
#include "server/rpc/spec_checker.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/template_catalog.h"
#include "server/rpc/tokens.h"
#include "server/rpc/work_pool.h"
#include "server/scheduler/scheduler.h"
#include "server/store/job_store.h"

namespace blockswap::server {

// Aborted ETAG_MISMATCH with the etag the job has now.
absl::Status EtagMismatch(const JobRecord& job, const std::string& etag);

struct TrainingServiceOptions {
  std::string outputs_root;
  int64_t max_spec_bytes = 256 << 10;
  int max_streams = 256;
};

// What the service and its streams share. Everything here is thread safe and outlives the service.
struct RpcContext {
  JobStore& store;
  EventHub& hub;
  Scheduler& scheduler;
  DeviceTable& devices;
  ServerMetrics& metrics;
  SpecChecker& checker;
  const TokenMaker tokens;
  const TemplateCatalog templates;
  RetentionKeeper& retention;
  TrainingServiceOptions options;
  const Authenticator& auth;
  CallLimits& limits;
  AuditLog* audit;  // null: none
  // Relaxed: settings that may change while the server runs; the next use sees the new value.
  std::atomic<int64_t> max_unfinished_jobs{10000};
  std::atomic<int64_t> bookmark_micros{15000000};
  std::atomic<bool> accepting{true};  // relaxed: false once the server is on its way down
  std::atomic<int> streams{0};        // relaxed: a limit, not a guard
};

// Thread safety: safe. No handler throws: gRPC 1.51 would swallow it.
class TrainingServiceImpl final : public v1::TrainingService::CallbackService {
 public:
  using Unary = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  explicit TrainingServiceImpl(RpcContext& context);

  Unary* CreateJob(Context*, const v1::CreateJobRequest*, v1::Job*) override;
  Unary* PlanJob(Context*, const v1::PlanJobRequest*, v1::PlanJobResponse*) override;
  Unary* GetJob(Context*, const v1::GetJobRequest*, v1::Job*) override;
  Unary* ListJobs(Context*, const v1::ListJobsRequest*, v1::ListJobsResponse*) override;
  Unary* UpdateJob(Context*, const v1::UpdateJobRequest*, v1::Job*) override;
  Unary* CancelJob(Context*, const v1::CancelJobRequest*, v1::Job*) override;
  Unary* SuspendJob(Context*, const v1::SuspendJobRequest*, v1::Job*) override;
  Unary* ResumeJob(Context*, const v1::ResumeJobRequest*, v1::Job*) override;
  Unary* RetryJob(Context*, const v1::RetryJobRequest*, v1::Job*) override;
  Unary* CheckpointJob(Context*, const v1::CheckpointJobRequest*, v1::Job*) override;
  Unary* SampleJob(Context*, const v1::SampleJobRequest*, v1::Job*) override;
  Unary* DeleteJob(Context*, const v1::DeleteJobRequest*, google::protobuf::Empty*) override;
  grpc::ServerWriteReactor<v1::JobEvent>* WatchJobs(Context*, const v1::WatchJobsRequest*) override;
  grpc::ServerWriteReactor<v1::LogChunk>* StreamJobLogs(Context*,
                                                        const v1::StreamJobLogsRequest*) override;
  Unary* ListJobEvents(Context*, const v1::ListJobEventsRequest*,
                       v1::ListJobEventsResponse*) override;
  Unary* ListAttempts(Context*, const v1::ListAttemptsRequest*, v1::ListAttemptsResponse*) override;
  Unary* ListCheckpoints(Context*, const v1::ListCheckpointsRequest*,
                         v1::ListCheckpointsResponse*) override;
  Unary* GetCheckpoint(Context*, const v1::GetCheckpointRequest*, v1::Checkpoint*) override;
  Unary* DeleteCheckpoint(Context*, const v1::DeleteCheckpointRequest*,
                          google::protobuf::Empty*) override;
  Unary* ListMetricPoints(Context*, const v1::ListMetricPointsRequest*,
                          v1::ListMetricPointsResponse*) override;
  Unary* ListTemplates(Context*, const v1::ListTemplatesRequest*,
                       v1::ListTemplatesResponse*) override;
  Unary* GetTemplate(Context*, const v1::GetTemplateRequest*, v1::JobTemplate*) override;

 private:
  // A job that is asked for, before it is planned and stored.
  struct NewJob {
    v1::JobSpec spec;
    std::string tenant;  // whose it will be
    std::string job_id;  // empty: the server chooses
    std::string request_id, hash;
    int64_t create_micros = 0;
    bool validate_only = false;
    std::string template_name, retry_of, from_checkpoint;
    std::vector<Violation> violations;  // found so far
    // What has to be there before the job can start; may be null. Undone when the job is not made.
    std::function<absl::Status(const JobRecord&)> prepare;
  };

  // Fills `response` and returns how the call ends; runs on a pool thread.
  absl::Status DoCreateJob(const std::string& tenant, const v1::CreateJobRequest& request,
                           v1::Job* response);
  absl::Status DoRetryJob(const std::string& tenant, const v1::RetryJobRequest& request,
                          v1::Job* response);
  absl::StatusOr<NewJob> PrepareRetry(const v1::RetryJobRequest& request);
  // Answers an earlier request with that id, or makes what `prepare` asks for.
  absl::Status Submit(const std::string& request_id, const std::string& hash,
                      const std::function<absl::StatusOr<NewJob>()>& prepare, v1::Job* response);
  absl::Status CreateNew(const NewJob& request, v1::Job* response);
  // The checker's answer; `violations` and those of the limits come with its own.
  absl::StatusOr<CheckedSpec> CheckSpec(const v1::JobSpec& spec, std::vector<Violation> violations,
                                        int64_t create_micros);
  absl::Status DoListJobs(const Identity& caller, const v1::ListJobsRequest& request,
                          v1::ListJobsResponse* response);
  // Places in the queue, by id; sets what the scheduler knows better than the store.
  absl::StatusOr<std::map<std::string, int64_t>> PlacesOf(std::vector<JobRecord>& jobs);
  absl::Status DoListEvents(const v1::ListJobEventsRequest& request,
                            v1::ListJobEventsResponse* response);
  absl::Status DoListAttempts(const v1::ListAttemptsRequest& request,
                              v1::ListAttemptsResponse* response);
  absl::Status DoListCheckpoints(const v1::ListCheckpointsRequest& request,
                                 v1::ListCheckpointsResponse* response);
  absl::Status DoListPoints(const v1::ListMetricPointsRequest& request,
                            v1::ListMetricPointsResponse* response);
  absl::Status DoListTemplates(const v1::ListTemplatesRequest& request,
                               v1::ListTemplatesResponse* response);
  absl::Status DoDeleteJob(const v1::DeleteJobRequest& request);
  absl::Status DoGetCheckpoint(const v1::GetCheckpointRequest& request, v1::Checkpoint* response);
  absl::Status DoDeleteCheckpoint(const v1::DeleteCheckpointRequest& request);
  absl::Status DoPlanJob(const v1::PlanJobRequest& request, v1::PlanJobResponse* response);
  absl::Status DoUpdateJob(const v1::UpdateJobRequest& request, v1::Job* response);
  // `again`: the spec changed while the new one was planned.
  absl::StatusOr<JobRecord> TryUpdate(const v1::UpdateJobRequest& request, const std::string& id,
                                      bool* again);
  absl::StatusOr<JobRecord> MakeJob(const NewJob& request, const CheckedSpec& checked);
  Unary* RunOnPool(Context* context, std::function<absl::Status()> work);
  absl::Status Fill(const absl::StatusOr<JobRecord>& job, v1::JobView view, v1::Job* response);

  RpcContext& rpc_;
  WorkPool pool_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_TRAINING_SERVICE_H_
