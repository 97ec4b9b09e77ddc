// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/json_conversion.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/base/reason.h"
#include "server/rpc/status_conversion.h"

namespace blockswap::server {
namespace {

using Json = nlohmann::json;

}  // namespace

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &json, options);
  return printed.ok() ? json : "{}";  // only a timestamp out of range can fail
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::Status plain(FromGrpcCode(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return plain;
  for (const auto& any : details.details()) {
    google::rpc::ErrorInfo info;
    if (!any.Is<google::rpc::ErrorInfo>() || !any.UnpackTo(&info)) continue;
    return WithReason(plain, info.reason(), {info.metadata().begin(), info.metadata().end()});
  }
  return plain;
}

absl::Status FillFromQuery(const HttpRequest& request, google::protobuf::Message* message) {
  Json fields = Json::object();
  for (const auto& [name, value] : request.query) {
    const auto* field = message->GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": is no parameter of this call; a parameter is a field of ",
                       std::string(message->GetDescriptor()->name())));
    }
    if (field->is_repeated()) {
      fields[name] = std::vector<std::string>(absl::StrSplit(value, ',', absl::SkipEmpty()));
    } else if (field->type() == google::protobuf::FieldDescriptor::TYPE_BOOL) {
      if (value != "true" && value != "false") {
        return absl::InvalidArgumentError(absl::StrCat(name, ": must be true or false"));
      }
      fields[name] = value == "true";
    } else {
      fields[name] = value;
    }
  }
  const std::string text = fields.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, message);
  if (parsed.ok()) return absl::OkStatus();
  const absl::string_view reason(parsed.message().data(), parsed.message().size());
  return absl::InvalidArgumentError(absl::StrCat("parameters: ", reason));
}

void PassOn(const HttpRequest& request, grpc::ClientContext& context) {
  if (!request.authorization.empty()) context.AddMetadata("authorization", request.authorization);
}

}  // namespace blockswap::server
