// SPDX-License-Identifier: Apache-2.0
// The door before every call: who calls, may that role, and is the job one that the caller sees.
#ifndef BLOCKSWAP_SERVER_RPC_SERVICE_GUARD_H_
#define BLOCKSWAP_SERVER_RPC_SERVICE_GUARD_H_

#include <google/protobuf/message.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/support/server_callback.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/auth/identity.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {

// The names of a client certificate that TLS has verified; none without one.
void AddCertificateNames(const grpc::AuthContext& context, Credentials& credentials);

// What the call shows; from the call's own metadata, never from the connection's auth context: two
// callers may share one connection.
Credentials CredentialsOf(const grpc::ServerContextBase& context);

// Who makes this call. For handlers: the guard has let it in. A token that was revoked since then
// has no role and sees nothing.
Identity IdentityOf(const RpcContext& rpc, const grpc::ServerContextBase& context);

// What lists and watches of this caller are confined to; empty: nothing.
std::string TenantFilterOf(const Identity& identity);

// The jobs that a request names in its fields name, parent, job, job.name and from_checkpoint. What
// is not a job's name comes back whole: no job is called so.
std::vector<std::string> JobIdsIn(const google::protobuf::Message& request);

// Thread safety: safe.
class ServiceGuard final {
 public:
  // `service`: as in the permission table.
  ServiceGuard(RpcContext& rpc, const char* service) : rpc_(rpc), service_(service) {}

  // Before anything of the request is looked at but the job that it names. Unauthenticated,
  // PermissionDenied ACCESS_DENIED, NotFound JOB_NOT_FOUND (also for a job of another tenant, in
  // the same words), InvalidArgument SPEC_INVALID for a value of an enum that is not known here.
  absl::Status Admit(grpc::CallbackServerContext& context, const char* method,
                     const google::protobuf::Message& request) const;

 private:
  absl::Status Check(const std::string& method, const absl::StatusOr<Identity>& identity,
                     const google::protobuf::Message& request) const;

  RpcContext& rpc_;
  const char* const service_;
};

// A stream that ends at once with `status`. Deletes itself.
template <typename Message>
class RefusedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_SERVICE_GUARD_H_
