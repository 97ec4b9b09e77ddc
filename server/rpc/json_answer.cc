// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/json_answer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/base/reason.h"

namespace blockswap::server {
namespace {

using Json = nlohmann::json;

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kOutOfRange:
      return ReasonOf(status) == "RESUME_TOKEN_EXPIRED" ? 410 : 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace

HttpResponse JsonAnswer(std::string body) {
  HttpResponse response;
  response.type = "application/json; charset=utf-8";
  response.body = std::move(body);
  return response;
}

std::string JsonErrorText(const absl::Status& status) {
  Json error = {{"code", HttpStatusOf(status)},
                {"status", absl::StatusCodeToString(status.code())},
                {"reason", ReasonOf(status)},
                {"message", std::string(status.message())},
                {"metadata", MetadataOf(status)}};
  return Json({{"error", std::move(error)}}).dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse JsonError(const absl::Status& status) {
  HttpResponse response = JsonAnswer(JsonErrorText(status));
  response.status = HttpStatusOf(status);
  if (response.status == 503 || response.status == 429)
    response.headers.emplace("Retry-After", "1");
  return response;
}

}  // namespace blockswap::server
