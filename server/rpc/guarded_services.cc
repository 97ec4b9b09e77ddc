// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/guarded_services.h"

namespace blockswap::server {
namespace {

grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace

#define BLOCKSWAP_DEFINE_CALL(Service, Method, Request, Response)                         \
  grpc::ServerUnaryReactor* Service::Method(grpc::CallbackServerContext* context,         \
                                            const Request* request, Response* response) { \
    const absl::Status admitted = guard_.Admit(*context, #Method, *request);              \
    return admitted.ok() ? service_.Method(context, request, response)                    \
                         : Refuse(context, admitted);                                     \
  }

#define BLOCKSWAP_DEFINE_TRAINING_CALL(Method, Request, Response) \
  BLOCKSWAP_DEFINE_CALL(GuardedTrainingService, Method, Request, Response)
#define BLOCKSWAP_DEFINE_ADMIN_CALL(Method, Request, Response) \
  BLOCKSWAP_DEFINE_CALL(GuardedAdminService, Method, Request, Response)
#define BLOCKSWAP_DEFINE_TRAINING_STREAM(Method, Request, Response)          \
  grpc::ServerWriteReactor<Response>* GuardedTrainingService::Method(        \
      grpc::CallbackServerContext* context, const Request* request) {        \
    const absl::Status admitted = guard_.Admit(*context, #Method, *request); \
    if (!admitted.ok()) return new RefusedStream<Response>(admitted);        \
    return service_.Method(context, request);                                \
  }

BLOCKSWAP_TRAINING_CALLS(BLOCKSWAP_DEFINE_TRAINING_CALL)
BLOCKSWAP_TRAINING_STREAMS(BLOCKSWAP_DEFINE_TRAINING_STREAM)
BLOCKSWAP_ADMIN_CALLS(BLOCKSWAP_DEFINE_ADMIN_CALL)

}  // namespace blockswap::server
