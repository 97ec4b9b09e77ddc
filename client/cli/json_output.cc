// SPDX-License-Identifier: Apache-2.0
#include "client/cli/json_output.h"

#include "google/protobuf/util/json_util.h"

namespace blockswap::cli {

std::string ToJson(const google::protobuf::Message& message, bool pretty) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  options.add_whitespace = pretty;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) return "{}\n";  // only a timestamp out of range can fail
  if (json.empty() || json.back() != '\n') json += '\n';
  return json;
}

}  // namespace blockswap::cli
