// SPDX-License-Identifier: Apache-2.0
// The services as clients reach them: each call passes the guard, then goes to the real service.
#ifndef BLOCKSWAP_SERVER_RPC_GUARDED_SERVICES_H_
#define BLOCKSWAP_SERVER_RPC_GUARDED_SERVICES_H_

#include "blockswap/v1/admin.grpc.pb.h"
#include "blockswap/v1/training.grpc.pb.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/service_guard.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {

// Only these are registered with gRPC: a call that is not listed here answers UNIMPLEMENTED, so a
// new one cannot be forgotten by the guard. Method, request, response.
#define BLOCKSWAP_TRAINING_CALLS(CALL)                                              \
  CALL(CreateJob, v1::CreateJobRequest, v1::Job)                                    \
  CALL(PlanJob, v1::PlanJobRequest, v1::PlanJobResponse)                            \
  CALL(GetJob, v1::GetJobRequest, v1::Job)                                          \
  CALL(ListJobs, v1::ListJobsRequest, v1::ListJobsResponse)                         \
  CALL(UpdateJob, v1::UpdateJobRequest, v1::Job)                                    \
  CALL(CancelJob, v1::CancelJobRequest, v1::Job)                                    \
  CALL(SuspendJob, v1::SuspendJobRequest, v1::Job)                                  \
  CALL(ResumeJob, v1::ResumeJobRequest, v1::Job)                                    \
  CALL(RetryJob, v1::RetryJobRequest, v1::Job)                                      \
  CALL(CheckpointJob, v1::CheckpointJobRequest, v1::Job)                            \
  CALL(SampleJob, v1::SampleJobRequest, v1::Job)                                    \
  CALL(DeleteJob, v1::DeleteJobRequest, google::protobuf::Empty)                    \
  CALL(ListJobEvents, v1::ListJobEventsRequest, v1::ListJobEventsResponse)          \
  CALL(ListAttempts, v1::ListAttemptsRequest, v1::ListAttemptsResponse)             \
  CALL(ListCheckpoints, v1::ListCheckpointsRequest, v1::ListCheckpointsResponse)    \
  CALL(GetCheckpoint, v1::GetCheckpointRequest, v1::Checkpoint)                     \
  CALL(DeleteCheckpoint, v1::DeleteCheckpointRequest, google::protobuf::Empty)      \
  CALL(ListMetricPoints, v1::ListMetricPointsRequest, v1::ListMetricPointsResponse) \
  CALL(ListTemplates, v1::ListTemplatesRequest, v1::ListTemplatesResponse)          \
  CALL(GetTemplate, v1::GetTemplateRequest, v1::JobTemplate)

#define BLOCKSWAP_TRAINING_STREAMS(CALL)              \
  CALL(WatchJobs, v1::WatchJobsRequest, v1::JobEvent) \
  CALL(StreamJobLogs, v1::StreamJobLogsRequest, v1::LogChunk)

#define BLOCKSWAP_ADMIN_CALLS(CALL)                                     \
  CALL(ListDevices, v1::ListDevicesRequest, v1::ListDevicesResponse)    \
  CALL(GetDevice, v1::GetDeviceRequest, v1::Device)                     \
  CALL(DrainDevice, v1::DrainDeviceRequest, v1::Device)                 \
  CALL(UndrainDevice, v1::UndrainDeviceRequest, v1::Device)             \
  CALL(GetServerInfo, v1::GetServerInfoRequest, v1::ServerInfo)         \
  CALL(GetQueue, v1::GetQueueRequest, v1::Queue)                        \
  CALL(PauseQueue, v1::PauseQueueRequest, v1::Queue)                    \
  CALL(ResumeQueue, v1::ResumeQueueRequest, v1::Queue)                  \
  CALL(SetLogLevel, v1::SetLogLevelRequest, v1::SetLogLevelResponse)    \
  CALL(ReloadConfig, v1::ReloadConfigRequest, v1::ReloadConfigResponse) \
  CALL(GetConfig, v1::GetConfigRequest, v1::GetConfigResponse)          \
  CALL(BackUpStore, v1::BackUpStoreRequest, v1::BackUpStoreResponse)    \
  CALL(CheckStore, v1::CheckStoreRequest, v1::CheckStoreResponse)       \
  CALL(CreateToken, v1::CreateTokenRequest, v1::CreateTokenResponse)    \
  CALL(ListTokens, v1::ListTokensRequest, v1::ListTokensResponse)       \
  CALL(RevokeToken, v1::RevokeTokenRequest, v1::Token)

#define BLOCKSWAP_DECLARE_CALL(Method, Request, Response)                                   \
  grpc::ServerUnaryReactor* Method(grpc::CallbackServerContext*, const Request*, Response*) \
      override;
#define BLOCKSWAP_DECLARE_STREAM(Method, Request, Response) \
  grpc::ServerWriteReactor<Response>* Method(grpc::CallbackServerContext*, const Request*) override;

// Thread safety: safe.
class GuardedTrainingService final : public v1::TrainingService::CallbackService {
 public:
  GuardedTrainingService(RpcContext& rpc, TrainingServiceImpl& service)
      : service_(service), guard_(rpc, "TrainingService") {}
  BLOCKSWAP_TRAINING_CALLS(BLOCKSWAP_DECLARE_CALL)
  BLOCKSWAP_TRAINING_STREAMS(BLOCKSWAP_DECLARE_STREAM)

 private:
  // As the base that has all calls, also those that the real service does not answer yet.
  v1::TrainingService::CallbackService& service_;
  const ServiceGuard guard_;
};

// Thread safety: safe.
class GuardedAdminService final : public v1::AdminService::CallbackService {
 public:
  GuardedAdminService(RpcContext& rpc, AdminServiceImpl& service)
      : service_(service), guard_(rpc, "AdminService") {}
  BLOCKSWAP_ADMIN_CALLS(BLOCKSWAP_DECLARE_CALL)

 private:
  v1::AdminService::CallbackService& service_;
  const ServiceGuard guard_;
};

#undef BLOCKSWAP_DECLARE_CALL
#undef BLOCKSWAP_DECLARE_STREAM

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_GUARDED_SERVICES_H_
