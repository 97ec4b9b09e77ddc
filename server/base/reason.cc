// SPDX-License-Identifier: Apache-2.0
#include "server/base/reason.h"

#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace blockswap::server {
namespace {

constexpr char kReasonUrl[] = "blockswap/reason";
constexpr char kMetadataUrl[] = "blockswap/metadata";

}  // namespace

absl::Status WithReason(absl::Status status, absl::string_view reason,
                        const std::map<std::string, std::string>& metadata) {
  status.SetPayload(kReasonUrl, absl::Cord(reason));
  std::string packed;
  for (const auto& [key, value] : metadata) {
    packed.append(key).push_back('\0');
    packed.append(value).push_back('\0');
  }
  if (!packed.empty()) status.SetPayload(kMetadataUrl, absl::Cord(packed));
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

std::map<std::string, std::string> MetadataOf(const absl::Status& status) {
  std::map<std::string, std::string> metadata;
  const auto payload = status.GetPayload(kMetadataUrl);
  if (!payload.has_value()) return metadata;
  const std::string packed(*payload);
  const std::vector<std::string> parts = absl::StrSplit(packed, '\0');
  for (size_t i = 0; i + 1 < parts.size(); i += 2) metadata[parts[i]] = parts[i + 1];
  return metadata;
}

absl::Status JobNotFound(absl::string_view job_id) {
  return WithReason(absl::NotFoundError(absl::StrCat("no such job: ", job_id)), "JOB_NOT_FOUND",
                    {{"job", std::string(job_id)}});
}

}  // namespace blockswap::server
