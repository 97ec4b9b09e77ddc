// SPDX-License-Identifier: Apache-2.0
#include "client/cli/assignments.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/job_file/job_file.h"

namespace blockswap::cli {
namespace {

// "labels.team" changes the map of labels; everything else is a field of its own.
std::string MaskPath(const std::string& word) {
  const std::string path = word.substr(0, word.find('='));
  return absl::StartsWith(path, "labels.") ? "labels" : path;
}

}  // namespace

std::vector<client::FieldViolation> ApplyAssignments(const std::vector<std::string>& words,
                                                     v1::JobSpec* spec,
                                                     google::protobuf::FieldMask* mask) {
  std::vector<client::FieldViolation> violations;
  for (const std::string& word : words) {
    const absl::Status applied = proto::ApplyOverride(word, spec);
    if (!applied.ok()) {
      violations.push_back({absl::StrCat("--set ", word), std::string(applied.message())});
      continue;
    }
    const std::string path = MaskPath(word);
    auto* paths = mask->mutable_paths();
    if (std::find(paths->begin(), paths->end(), path) == paths->end()) *paths->Add() = path;
  }
  return violations;
}

}  // namespace blockswap::cli
