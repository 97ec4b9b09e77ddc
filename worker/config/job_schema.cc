// SPDX-License-Identifier: Apache-2.0
#include "worker/config/job_schema.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "worker/config/spec_validation.h"

namespace blockswap::worker {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Json = nlohmann::ordered_json;  // keys in the order of the proto

// A number where text is expected is taken as its digits.
Json TextOrNumber() { return Json::array({"string", "number"}); }

template <typename Described>
std::string CommentOf(const Described& described) {
  google::protobuf::SourceLocation location;
  if (!described.GetSourceLocation(&location)) return "";
  std::vector<std::string> lines;
  for (const auto line : absl::StrSplit(location.leading_comments, '\n')) {
    const auto text = absl::StripAsciiWhitespace(line);
    if (!text.empty()) lines.emplace_back(text);
  }
  return absl::StrJoin(lines, " ");
}

Json OfRule(const FieldRule& rule) {
  switch (rule.form) {
    case FieldRule::Form::kWord: {
      Json words = rule.words;
      // YAML before 1.2 reads on and off as these.
      const bool is_switch =
          std::find(rule.words.begin(), rule.words.end(), "on") != rule.words.end();
      if (is_switch) words.insert(words.end(), {true, false});
      return {{"enum", words}};
    }
    case FieldRule::Form::kWhole:
      return {{"type", "integer"},
              {"minimum", static_cast<int64_t>(rule.least)},
              {"maximum", static_cast<int64_t>(rule.most)}};
    case FieldRule::Form::kReal:
      return {{"type", "number"},
              {rule.above_least ? "exclusiveMinimum" : "minimum", rule.least},
              {rule.below_most ? "exclusiveMaximum" : "maximum", rule.most}};
    case FieldRule::Form::kBytes:
      return {{"type", TextOrNumber()}, {"examples", {"auto", "12GiB"}}};
    case FieldRule::Form::kName:
      return {{"type", TextOrNumber()}, {"pattern", "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"}};
  }
  return Json::object();
}

// What no check of one field tells.
Json OfType(const FieldDescriptor& field, const std::string& path) {
  if (path == "memory.blocks_to_swap") {
    return {{"type", TextOrNumber()}, {"pattern", "^(auto|[0-9]+)$"}, {"minimum", 0}};
  }
  if (path == "device") {
    return {{"type", "string"}, {"pattern", "^(auto|host|cuda:[0-9]+|(GPU|MIG)-[0-9a-fA-F-]+)$"}};
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return {{"type", "boolean"}};
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return {{"type", "number"}};
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
      return {{"type", "integer"}};
    default:
      return {{"type", "string"}};
  }
}

class SchemaWriter final {
 public:
  SchemaWriter() {
    for (FieldRule& rule : JobFieldRules()) {
      const std::string field = rule.field;
      rules_[field] = std::move(rule);
    }
    // A job that says nothing lacks exactly what is required.
    for (const FieldViolation& violation : ValidateSpec(v1::JobSpec(), Roots()).violations) {
      for (size_t end = 0; end != std::string::npos;) {
        end = violation.field.find('.', end == 0 ? 0 : end + 1);
        required_.insert(violation.field.substr(0, end));
      }
    }
    required_.erase("training.max_steps");  // or max_epochs, see OfMessage
  }

  Json OfMessage(const Descriptor& message, const std::string& path) const {
    Json properties = Json::object(), required = Json::array();
    for (int i = 0; i < message.field_count(); ++i) {
      const FieldDescriptor& field = *message.field(i);
      const std::string at = path.empty() ? field.name() : absl::StrCat(path, ".", field.name());
      Json property = OfField(field, at);
      const std::string comment = CommentOf(field);
      if (!comment.empty()) property["description"] = comment;
      properties[field.name()] = std::move(property);
      if (required_.count(at) != 0) required.push_back(field.name());
    }
    Json schema = {{"type", "object"}, {"additionalProperties", false}};
    if (!required.empty()) schema["required"] = std::move(required);
    if (path == "training") {
      schema["anyOf"] = {{{"required", {"max_steps"}}}, {{"required", {"max_epochs"}}}};
    }
    schema["properties"] = std::move(properties);
    return schema;
  }

 private:
  Json OfField(const FieldDescriptor& field, const std::string& path) const {
    if (field.is_map()) {
      return {{"type", "object"},
              {"additionalProperties", {{"type", {"string", "number", "boolean"}}}}};
    }
    if (field.is_repeated()) return {{"type", "array"}, {"items", OfType(field, path)}};
    if (field.message_type() != nullptr) return OfMessage(*field.message_type(), path);
    const auto rule = rules_.find(path);
    return rule == rules_.end() ? OfType(field, path) : OfRule(rule->second);
  }

  std::map<std::string, FieldRule> rules_;
  std::set<std::string> required_;
};

}  // namespace

absl::StatusOr<std::string> JobSchema(const std::string& descriptor_set) {
  google::protobuf::FileDescriptorSet files;
  google::protobuf::DescriptorPool pool;
  const Descriptor* job = nullptr;
  if (files.ParseFromString(descriptor_set)) {
    for (const auto& file : files.file()) pool.BuildFile(file);
    job = pool.FindMessageTypeByName("blockswap.v1.JobSpec");
  }
  if (job == nullptr) {
    return absl::InvalidArgumentError(
        "no descriptor set of job.proto: make one with protoc --descriptor_set_out "
        "--include_source_info");
  }
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "blockswap job"},
                 {"description", "What to train, on what, with how much memory."}};
  schema.update(SchemaWriter().OfMessage(*job, ""));
  return absl::StrCat(schema.dump(2), "\n");
}

}  // namespace blockswap::worker
