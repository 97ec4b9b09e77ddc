// SPDX-License-Identifier: Apache-2.0
#include "proto/job_file/job_file.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/job_file/message_filler.h"
#include "proto/job_file/yaml_tree.h"

namespace blockswap::proto {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status Joined(const std::vector<JobFileFault>& faults) {
  if (faults.empty()) return absl::OkStatus();
  const std::string text =
      absl::StrJoin(faults, "; ", [](std::string* out, const JobFileFault& fault) {
        absl::StrAppend(out, fault.field, ": ", fault.description);
      });
  return absl::InvalidArgumentError(text);
}

// Scalars are taken as they stand, so that "name=a: b" needs no quotes; tables and lists are YAML.
absl::StatusOr<YamlNode> OverrideValue(const std::string& value, const FieldDescriptor* field) {
  if (field->is_repeated() || field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return ParseYamlTree(value);
  }
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING
                  ? value
                  : std::string(absl::StripAsciiWhitespace(value));
  return node;
}

}  // namespace

absl::Status ParseMessageFile(const std::string& text, Message* message,
                              std::vector<JobFileFault>* faults) {
  absl::StatusOr<YamlNode> root = ParseYamlTree(text);
  if (!root.ok()) return root.status();
  if (root->kind != YamlNode::Kind::kMap) {
    return absl::InvalidArgumentError("it is a single value or a list, not a table of settings");
  }
  MessageFiller(message->GetDescriptor(), faults).FillMessage(*root, "", message);
  return absl::OkStatus();
}

absl::StatusOr<v1::JobSpec> ParseJobFile(const std::string& text,
                                         std::vector<JobFileFault>* faults) {
  absl::StatusOr<YamlNode> root = ParseYamlTree(text);
  if (!root.ok()) return root.status();
  if (root->kind != YamlNode::Kind::kMap) {
    return absl::InvalidArgumentError("a job file is a table of name, model, dataset and so on");
  }
  v1::JobSpec spec;
  MessageFiller(v1::JobSpec::descriptor(), faults).FillMessage(*root, "", &spec);
  return spec;
}

absl::Status ApplyOverride(const std::string& assignment, v1::JobSpec* spec) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(absl::StrCat("override is not path=value: \"", assignment,
                                                   "\", write for instance memory.ring_size=1"));
  }
  const std::string path = assignment.substr(0, equals);
  const std::string value = assignment.substr(equals + 1);
  std::vector<JobFileFault> faults;
  MessageFiller filler(v1::JobSpec::descriptor(), &faults);

  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  Message* message = spec;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Descriptor* descriptor = message->GetDescriptor();
    const FieldDescriptor* field = descriptor->FindFieldByName(parts[i]);
    if (field == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", filler.DescribeUnknownKey(parts[i], descriptor)));
    }
    const bool last = i + 1 == parts.size();
    if (field->is_map() && !last) {
      // labels.team=x, labels.a.b=x: what follows the map's name is the key.
      YamlNode pair;
      pair.kind = YamlNode::Kind::kMap;
      YamlNode text;
      text.kind = YamlNode::Kind::kScalar;
      text.text = value;
      const std::vector<std::string> key(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                         parts.end());
      pair.entries.push_back(YamlEntry{absl::StrJoin(key, "."), 0, text});
      filler.FillField(pair, path, field, message);
      return Joined(faults);
    }
    if (last) {
      absl::StatusOr<YamlNode> node = OverrideValue(value, field);
      if (!node.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": ", node.status().message()));
      }
      filler.FillField(*node, path, field, message);
      return Joined(faults);
    }
    if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", parts[i], " is a single value and has nothing below it"));
    }
    message = message->GetReflection()->MutableMessage(message, field);
  }
  return absl::InternalError("a path has at least one part");
}

}  // namespace blockswap::proto
