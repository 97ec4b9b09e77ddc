// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_observer.h"

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "blockswap/v1/admin.pb.h"
#include "blockswap/v1/training.pb.h"
#include "server/base/wall_clock.h"

namespace blockswap::server {
namespace {

using grpc::experimental::InterceptionHookPoints;

const char* TypeName(bool client_streams, bool server_streams) {
  if (client_streams) return server_streams ? "bidi_stream" : "client_stream";
  return server_streams ? "server_stream" : "unary";
}

class CallInterceptor final : public grpc::experimental::Interceptor {
 public:
  CallInterceptor(CallMetrics& metrics, const CalledMethod& method)
      : metrics_(metrics), method_(method), begun_(SteadyNow()) {
    metrics_.Started(method_);
  }
  // A call that is cut sends no status.
  ~CallInterceptor() override {
    if (!handled_) Handled("Canceled");
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      Handled(CodeName(batch->GetSendStatus().error_code()));
    }
    batch->Proceed();
  }

 private:
  void Handled(const char* code) {
    if (handled_) return;
    handled_ = true;
    metrics_.Handled(method_, code, std::chrono::duration<double>(SteadyNow() - begun_).count());
  }

  CallMetrics& metrics_;
  const CalledMethod& method_;
  const SteadyTime begun_;
  bool handled_ = false;
};

}  // namespace

CallObserver::CallObserver(CallMetrics& metrics) : metrics_(metrics) {
  using google::protobuf::DescriptorPool;
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  for (const char* name : {"blockswap.v1.TrainingService", "blockswap.v1.AdminService"}) {
    const auto* service = pool.FindServiceByName(name);
    for (int i = 0; service != nullptr && i < service->method_count(); ++i) {
      const auto& method = *service->method(i);
      known_[absl::StrCat("/", name, "/", method.name())] = {
          name, method.name(), TypeName(method.client_streaming(), method.server_streaming())};
    }
  }
  // gRPC's own; their messages are not linked in by name.
  known_["/grpc.health.v1.Health/Check"] = {"grpc.health.v1.Health", "Check", "unary"};
  known_["/grpc.health.v1.Health/Watch"] = {"grpc.health.v1.Health", "Watch", "server_stream"};
  const char* reflection = "grpc.reflection.v1alpha.ServerReflection";
  known_[absl::StrCat("/", reflection, "/ServerReflectionInfo")] = {
      reflection, "ServerReflectionInfo", "bidi_stream"};
}

grpc::experimental::Interceptor* CallObserver::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* call) {
  const auto found = known_.find(call->method());
  return new CallInterceptor(metrics_, found == known_.end() ? other_ : found->second);
}

const char* CodeName(grpc::StatusCode code) {
  constexpr const char* kNames[] = {
      "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
      "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
      "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
      "DataLoss", "Unauthenticated"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "Unknown";
}

}  // namespace blockswap::server
