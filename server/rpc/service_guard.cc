// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/service_guard.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "offload/base/status_macros.h"
#include "server/base/random_text.h"
#include "server/base/reason.h"
#include "server/base/wall_clock.h"
#include "server/rpc/proto_conversion.h"

namespace blockswap::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string TextOf(const grpc::string_ref& text) { return std::string(text.data(), text.size()); }

// "jobs/a/checkpoints/3" is job a.
std::string IdInName(absl::string_view name) {
  if (absl::ConsumePrefix(&name, "jobs/")) name = name.substr(0, name.find('/'));
  return std::string(name);
}

std::string ValuesOf(const google::protobuf::EnumDescriptor& type) {
  std::string names;
  for (int i = 1; i < type.value_count(); ++i) {  // 0 is what an absent field has
    absl::StrAppend(&names, names.empty() ? "" : ", ", type.value(i)->name());
  }
  return names;
}

// To take what only a newer client knows for the default would do something else than was asked.
// No request has enums in repeated fields or in messages within it.
std::vector<Violation> UnknownEnumValues(const Message& request) {
  std::vector<Violation> violations;
  std::vector<const FieldDescriptor*> fields;
  request.GetReflection()->ListFields(request, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_ENUM || field->is_repeated()) continue;
    const int value = request.GetReflection()->GetEnumValue(request, field);
    if (field->enum_type()->FindValueByNumber(value) != nullptr) continue;
    violations.push_back(
        {field->name(), absl::StrCat("this server does not know the value ", value, "; it knows ",
                                     ValuesOf(*field->enum_type()))});
  }
  return violations;
}

}  // namespace

void AddCertificateNames(const grpc::AuthContext& context, Credentials& credentials) {
  // Local credentials call their peer authenticated, too, but have none of these names.
  if (!context.IsPeerAuthenticated()) return;
  for (const char* property : {GRPC_PEER_URI_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    for (const grpc::string_ref& value : context.FindPropertyValues(property)) {
      credentials.certificate_names.push_back(TextOf(value));
    }
  }
}

Credentials CredentialsOf(const grpc::ServerContextBase& context) {
  Credentials credentials;
  const auto& metadata = context.client_metadata();
  const auto authorization = metadata.find("authorization");
  if (authorization != metadata.end()) credentials.authorization = TextOf(authorization->second);
  const auto auth = context.auth_context();
  if (auth == nullptr) return credentials;
  const auto kinds = auth->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  const std::string peer = context.peer();
  credentials.is_unix =
      kinds.size() == 1 && TextOf(kinds[0]) == "local" && absl::StartsWith(peer, "unix:");
  AddCertificateNames(*auth, credentials);
  return credentials;
}

Identity IdentityOf(const RpcContext& rpc, const grpc::ServerContextBase& context) {
  return rpc.auth.Identify(CredentialsOf(context)).value_or(Identity{});
}

std::string TenantFilterOf(const Identity& identity) {
  return identity.sees_all_tenants() ? std::string() : identity.tenant;
}

std::vector<std::string> JobIdsIn(const Message& request) {
  std::vector<std::string> ids;
  const auto* descriptor = request.GetDescriptor();
  const auto* reflection = request.GetReflection();
  for (const char* name : {"name", "parent", "job", "from_checkpoint"}) {
    const FieldDescriptor* field = descriptor->FindFieldByName(name);
    if (field == nullptr || field->is_repeated()) continue;
    std::string text;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      text = reflection->GetString(request, field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const Message& inner = reflection->GetMessage(request, field);
      const FieldDescriptor* of_inner = inner.GetDescriptor()->FindFieldByName("name");
      if (of_inner != nullptr) text = inner.GetReflection()->GetString(inner, of_inner);
    }
    // A checkpoint may go without its job: then it is one of the job that `name` says.
    const bool is_short = field->name() == "from_checkpoint" && !absl::StartsWith(text, "jobs/");
    if (!text.empty() && !is_short) ids.push_back(IdInName(text));
  }
  return ids;
}

absl::Status ServiceGuard::Check(const std::string& method,
                                 const absl::StatusOr<Identity>& identity,
                                 const Message& request) const {
  BLOCKSWAP_RETURN_IF_ERROR(identity.status());
  BLOCKSWAP_RETURN_IF_ERROR(CheckPermission(method, *identity));
  if (!FindPermission(method)->names_job || identity->sees_all_tenants()) return absl::OkStatus();
  for (const std::string& id : JobIdsIn(request)) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const std::string tenant, rpc_.store.TenantOf(id));
    if (!identity->Sees(tenant)) return JobNotFound(id);
  }
  return absl::OkStatus();
}

absl::Status ServiceGuard::Admit(grpc::CallbackServerContext& context, const char* method,
                                 const Message& request) const {
  const std::string full_method = absl::StrCat(service_, "/", method);
  const absl::StatusOr<Identity> identity = rpc_.auth.Identify(CredentialsOf(context));
  const std::string request_id = ToHex(RandomBytes(8));
  context.AddInitialMetadata("blockswap-request-id", request_id);
  absl::Status admitted = Check(full_method, identity, request);
  const std::string refusal = AuthFailureLabel(admitted);
  if (!refusal.empty()) rpc_.metrics.AuthFailed(refusal);
  if (admitted.ok()) admitted = rpc_.limits.TakeCall(*identity);
  const std::vector<Violation> unknown = UnknownEnumValues(request);
  if (admitted.ok() && !unknown.empty()) admitted = SpecInvalid(unknown);
  // Who only reads leaves no line, unless it was refused.
  const Permission* permission = FindPermission(full_method);
  const bool reads = permission != nullptr && permission->least == Role::kViewer;
  if (rpc_.audit == nullptr || (reads && admitted.ok())) return admitted;
  AuditRecord record;
  record.time_micros = WallMicros();
  if (identity.ok()) record.caller = *identity;
  record.peer = context.peer();
  record.method = full_method;
  for (const std::string& id : JobIdsIn(request)) {
    absl::StrAppend(&record.resource, record.resource.empty() ? "" : " ", id);
  }
  record.decision = admitted.ok() ? "allowed" : ReasonOf(admitted);
  record.request_id = request_id;
  rpc_.audit->Write(record);
  return admitted;
}

}  // namespace blockswap::server
