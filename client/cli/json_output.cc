// SPDX-License-Identifier: Apache-2.0
#include "client/cli/json_output.h"

#include <yaml-cpp/yaml.h>

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

namespace {

// JSON is YAML already; this only changes how it looks. What is quoted in JSON is text and stays
// quoted: yes, 1e3 and 0x1 are no text without.
void Emit(const YAML::Node& node, YAML::Emitter* out) {
  switch (node.Type()) {
    case YAML::NodeType::Map:
      *out << YAML::BeginMap;
      for (const auto& entry : node) {
        *out << YAML::Key << entry.first.Scalar() << YAML::Value;
        Emit(entry.second, out);
      }
      *out << YAML::EndMap;
      break;
    case YAML::NodeType::Sequence:
      if (node.size() == 0) *out << YAML::Flow;
      *out << YAML::BeginSeq;
      for (const YAML::Node& element : node) Emit(element, out);
      *out << YAML::EndSeq;
      break;
    default:
      if (node.Tag() == "!") {
        *out << YAML::DoubleQuoted << node.Scalar();
      } else {
        *out << (node.IsNull() ? "null" : node.Scalar());
      }
  }
}

}  // namespace

std::string ToYaml(const google::protobuf::Message& message) {
  YAML::Emitter out;
  Emit(YAML::Load(ToJson(message, /*pretty=*/false)), &out);
  return std::string(out.c_str(), out.size()) + "\n";
}

}  // namespace blockswap::cli
