// SPDX-License-Identifier: Apache-2.0
// CreateToken, ListTokens and RevokeToken of the AdminService.
#include <google/protobuf/util/time_util.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/status_conversion.h"

namespace blockswap::server {
namespace {

using google::protobuf::util::TimeUtil;

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

v1::Token ToProto(const TokenRecord& record) {
  v1::Token token;
  token.set_name(absl::StrCat("tokens/", record.id));
  token.set_display_name(record.name);
  token.set_role(record.role);
  token.set_tenant(record.tenant);
  *token.mutable_create_time() = TimeUtil::MicrosecondsToTimestamp(record.create_micros);
  if (record.expire_micros != 0)
    *token.mutable_expire_time() = TimeUtil::MicrosecondsToTimestamp(record.expire_micros);
  if (record.last_used_micros != 0)
    *token.mutable_last_used_time() = TimeUtil::MicrosecondsToTimestamp(record.last_used_micros);
  if (record.revoke_micros != 0)
    *token.mutable_revoke_time() = TimeUtil::MicrosecondsToTimestamp(record.revoke_micros);
  return token;
}

bool IsValid(const google::protobuf::Timestamp& time) {
  return time.seconds() >= TimeUtil::kTimestampMinSeconds &&
         time.seconds() <= TimeUtil::kTimestampMaxSeconds && time.nanos() >= 0 &&
         time.nanos() < 1000000000;
}

absl::Status DoCreate(TokenTable& tokens, const v1::CreateTokenRequest& request,
                      v1::CreateTokenResponse* response) {
  int64_t expire_micros = 0;
  if (request.has_expire_time()) {
    if (!IsValid(request.expire_time())) {
      return absl::InvalidArgumentError("expire_time: is not a time of the years 1 to 9999");
    }
    expire_micros = TimeUtil::TimestampToMicroseconds(request.expire_time());
    // 0 stands for never; a time in 1970 is in the past anyway.
    if (expire_micros == 0) expire_micros = 1;
  }
  const std::string tenant = request.tenant().empty() ? kDefaultTenant : request.tenant();
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const TokenTable::Created created,
      tokens.Create(request.display_name(), request.role(), tenant, expire_micros));
  *response->mutable_token() = ToProto(created.record);
  response->set_secret(created.token);
  return absl::OkStatus();
}

absl::Status DoRevoke(TokenTable& tokens, const v1::RevokeTokenRequest& request,
                      v1::Token* response) {
  int64_t id = 0;
  absl::string_view number = request.name();
  if (!absl::ConsumePrefix(&number, "tokens/") || !absl::SimpleAtoi(number, &id)) {
    for (const TokenRecord& record : tokens.List()) {
      if (record.name == request.name() && record.revoke_micros == 0) id = record.id;
    }
  }
  if (id <= 0) {
    return WithReason(absl::NotFoundError(absl::StrCat("no such token: ", request.name())),
                      "TOKEN_NOT_FOUND", {{"token", request.name()}});
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const TokenRecord record, tokens.Revoke(id));
  *response = ToProto(record);
  return absl::OkStatus();
}

}  // namespace

AdminServiceImpl::Unary* AdminServiceImpl::CreateToken(Context* context,
                                                       const v1::CreateTokenRequest* request,
                                                       v1::CreateTokenResponse* response) {
  return Finish(context, DoCreate(rpc_.auth.tokens(), *request, response));
}

AdminServiceImpl::Unary* AdminServiceImpl::ListTokens(Context* context,
                                                      const v1::ListTokensRequest*,
                                                      v1::ListTokensResponse* response) {
  for (const TokenRecord& record : rpc_.auth.tokens().List())
    *response->add_tokens() = ToProto(record);
  return Finish(context, absl::OkStatus());
}

AdminServiceImpl::Unary* AdminServiceImpl::RevokeToken(Context* context,
                                                       const v1::RevokeTokenRequest* request,
                                                       v1::Token* response) {
  return Finish(context, DoRevoke(rpc_.auth.tokens(), *request, response));
}

}  // namespace blockswap::server
