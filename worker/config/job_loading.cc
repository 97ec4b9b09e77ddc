// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "proto/job_file/job_file.h"
#include "worker/config/spec_validation.h"
#include "worker/config/train_config.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kMaxJobBytes = 256 * base::kKiB;

// Faults of the file come first; what they already name is not reported twice.
void PrependFaults(const std::vector<proto::JobFileFault>& faults, SpecResult* result) {
  std::vector<FieldViolation> all;
  for (const proto::JobFileFault& fault : faults) all.push_back({fault.field, fault.description});
  for (FieldViolation& violation : result->violations) {
    const bool known = std::any_of(faults.begin(), faults.end(), [&](const auto& fault) {
      return fault.field == violation.field;
    });
    if (!known) all.push_back(std::move(violation));
  }
  result->violations = std::move(all);
  if (!faults.empty()) result->config.reset();
}

}  // namespace

absl::StatusOr<SpecResult> LoadJobFile(const std::string& path,
                                       const std::vector<std::string>& overrides,
                                       const Roots& roots) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxJobBytes));
  std::vector<proto::JobFileFault> faults;
  auto spec = proto::ParseJobFile(text, &faults);
  if (!spec.ok()) {
    return absl::Status(spec.status().code(), absl::StrCat(path, ": ", spec.status().message()));
  }
  for (const std::string& assignment : overrides) {
    BLOCKSWAP_RETURN_IF_ERROR(proto::ApplyOverride(assignment, &*spec));
  }
  SpecResult result = ValidateSpec(*spec, roots);
  PrependFaults(faults, &result);
  return result;
}

absl::StatusOr<SpecResult> LoadJobJson(const std::string& json, const Roots& roots) {
  if (static_cast<int64_t>(json.size()) > kMaxJobBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job has ", json.size(), " bytes, at most ", kMaxJobBytes, " are read"));
  }
  v1::JobSpec spec;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &spec);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not the JSON of a job: ", std::string(parsed.message().data(), parsed.message().size())));
  }
  return ValidateSpec(spec, roots);
}

}  // namespace blockswap::worker
