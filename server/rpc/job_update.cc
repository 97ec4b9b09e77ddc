// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/job_update.h"

#include <google/protobuf/field_mask.pb.h>
#include <google/protobuf/util/field_mask_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace blockswap::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FieldMask;
using google::protobuf::util::FieldMaskUtil;

constexpr char kMayChange[] =
    "only priority, labels, retry, deadline, hold and memory.* can change";

// Each leaf that `path` covers, in the spec's own terms: "memory" is every field of it.
std::vector<std::string> Leaves(const std::string& path) {
  const FieldDescriptor* field = v1::JobSpec::descriptor()->FindFieldByName(path);
  const bool is_group =
      field != nullptr && !field->is_map() && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (!is_group) return {path};
  std::vector<std::string> leaves;
  for (int i = 0; i < field->message_type()->field_count(); ++i) {
    leaves.push_back(absl::StrCat(path, ".", field->message_type()->field(i)->name()));
  }
  return leaves;
}

// Empty when the field may change after submission.
std::string WhyFixed(const std::string& leaf) {
  if (leaf == "memory.host_modulation") {
    return "is decided once for a job, because the last bits of its result depend on it; submit a "
           "new job";
  }
  const std::vector<std::string> parts = absl::StrSplit(leaf, absl::MaxSplits('.', 1));
  const bool may_change = parts[0] == "priority" || parts[0] == "labels" || parts[0] == "retry" ||
                          parts[0] == "deadline" || parts[0] == "hold" || parts[0] == "memory";
  return may_change ? "" : absl::StrCat("cannot change after submission: ", kMayChange);
}

bool IsFieldOfJob(const std::string& path) {
  const std::vector<std::string> parts = absl::StrSplit(path, absl::MaxSplits('.', 1));
  return v1::Job::descriptor()->FindFieldByName(parts[0]) != nullptr;
}

// The leaves to take over; violations for everything else.
std::vector<std::string> ReadMask(const FieldMask& mask, std::vector<Violation>* violations) {
  std::vector<std::string> leaves;
  if (mask.paths_size() == 0) {
    violations->push_back({"update_mask", absl::StrCat("names no field; ", kMayChange)});
  }
  for (const std::string& given : mask.paths()) {
    const std::string path(absl::StripPrefix(given, "spec."));
    if (!FieldMaskUtil::IsValidPath<v1::JobSpec>(path)) {
      violations->push_back({given, IsFieldOfJob(path)
                                        ? absl::StrCat("is the server's to set: ", kMayChange)
                                        : absl::StrCat("is no field of a job: ", kMayChange)});
      continue;
    }
    // Of a group that is named as a whole, what may not change simply stays.
    const bool is_whole_group = Leaves(path).size() > 1;
    size_t fixed = 0;
    std::string why;
    for (const std::string& leaf : Leaves(path)) {
      const std::string reason = WhyFixed(leaf);
      if (reason.empty()) {
        leaves.push_back(leaf);
      } else {
        why = reason;
        ++fixed;
      }
    }
    if (!why.empty() && (!is_whole_group || fixed == Leaves(path).size())) {
      violations->push_back({given, why});
    }
  }
  return leaves;
}

void TakeOver(const std::string& leaf, const v1::JobSpec& from, v1::JobSpec* to) {
  FieldMask mask;
  mask.add_paths(leaf);
  FieldMaskUtil::MergeOptions options;
  options.set_replace_message_fields(true);
  options.set_replace_repeated_fields(true);
  FieldMaskUtil::MergeMessageTo(from, mask, options, to);
}

}  // namespace

SpecUpdate ApplyUpdate(const v1::JobSpec& before, const v1::UpdateJobRequest& request) {
  SpecUpdate update;
  update.spec = before;
  for (const std::string& leaf : ReadMask(request.update_mask(), &update.violations)) {
    v1::JobSpec changed = update.spec;
    TakeOver(leaf, request.job().spec(), &changed);
    if (google::protobuf::util::MessageDifferencer::Equivalent(changed, update.spec)) continue;
    update.spec = std::move(changed);
    if (std::find(update.changed.begin(), update.changed.end(), leaf) == update.changed.end()) {
      update.changed.push_back(leaf);
    }
    if (absl::StartsWith(leaf, "memory.")) update.memory_changed = true;
  }
  return update;
}

}  // namespace blockswap::server
