// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/spec_merge.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/field_mask.pb.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/field_mask_util.h>
#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::FieldMask;
using google::protobuf::Message;
using google::protobuf::util::FieldMaskUtil;

void AddSetPaths(const Message& message, const std::string& prefix,
                 std::vector<std::string>* paths) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string path = absl::StrCat(prefix, field->name());
    if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      paths->push_back(path);
    } else {
      AddSetPaths(message.GetReflection()->GetMessage(message, field), absl::StrCat(path, "."),
                  paths);
    }
  }
}

}  // namespace

std::vector<std::string> SetPaths(const v1::JobSpec& spec) {
  std::vector<std::string> paths;
  AddSetPaths(spec, "", &paths);
  return paths;
}

void TakeOverPaths(const std::vector<std::string>& paths, const v1::JobSpec& from,
                   v1::JobSpec* to) {
  FieldMask mask;
  for (const std::string& path : paths) mask.add_paths(path);
  FieldMaskUtil::MergeOptions options;
  options.set_replace_message_fields(true);
  options.set_replace_repeated_fields(true);
  FieldMaskUtil::MergeMessageTo(from, mask, options, to);
}

bool IsWithin(const std::string& path, const std::vector<std::string>& groups) {
  for (const std::string& group : groups) {
    if (path == group || absl::StartsWith(path, absl::StrCat(group, "."))) return true;
  }
  return false;
}

bool AgreeAt(const std::string& path, const v1::JobSpec& a, const v1::JobSpec& b) {
  v1::JobSpec copy = a;
  TakeOverPaths({path}, b, &copy);
  return google::protobuf::util::MessageDifferencer::Equals(copy, a);
}

}  // namespace blockswap::server
