// SPDX-License-Identifier: Apache-2.0
// CreateJob and PlanJob: from a request to a planned, stored job.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cctype>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/random_text.h"
#include "server/base/reason.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {
namespace {

constexpr int kMaxLabels = 32;
constexpr size_t kMaxRequestId = 64;
constexpr int kSuffixLength = 5;
constexpr int kMaxIdTries = 8;

// The same bytes for the same request: map entries in one order, the id itself left out.
std::string CanonicalHash(const v1::CreateJobRequest& request) {
  v1::CreateJobRequest copy = request;
  copy.clear_request_id();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    copy.SerializeWithCachedSizes((copy.ByteSizeLong(), &coded));
  }
  return Sha256(bytes);
}

std::string ReadableId(const std::string& name) {
  std::string slug;
  for (const char c : absl::AsciiStrToLower(name)) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte)) {
      slug.push_back(c);
    } else if (!slug.empty() && slug.back() != '-') {
      slug.push_back('-');
    }
    if (slug.size() >= 40) break;
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  if (slug.empty() || !std::islower(static_cast<unsigned char>(slug[0])))
    slug = absl::StrCat("job-", slug);
  while (slug.back() == '-') slug.pop_back();
  return absl::StrCat(slug, "-", RandomSuffix(kSuffixLength));
}

absl::Status CheckRequest(const v1::CreateJobRequest& request, int64_t max_spec_bytes) {
  std::vector<Violation> violations;
  if (!request.job_id().empty() && !IsValidJobId(request.job_id())) {
    violations.push_back({"job_id",
                          "must be lower-case letters, digits and '-', starting with a letter, "
                          "at most 63 characters"});
  }
  if (request.request_id().size() > kMaxRequestId) {
    violations.push_back(
        {"request_id", absl::StrCat("must have at most ", kMaxRequestId, " characters")});
  }
  const auto bytes = static_cast<int64_t>(request.spec().ByteSizeLong());
  if (bytes > max_spec_bytes) {
    violations.push_back({"spec", absl::StrCat("has ", bytes, " bytes, at most ", max_spec_bytes,
                                               " are allowed; refer to files by path")});
  }
  for (Violation& found : ViolationsOf(CheckLabels(request.spec()))) {
    violations.push_back(std::move(found));
  }
  return violations.empty() ? absl::OkStatus() : SpecInvalid(violations);
}

const char* SubmitResult(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status) ? "invalid"
                                                                             : "rejected";
}

}  // namespace

absl::Status CheckLabels(const v1::JobSpec& spec) {
  if (spec.labels_size() <= kMaxLabels) return absl::OkStatus();
  return SpecInvalid({{"labels", absl::StrCat("has ", spec.labels_size(), " entries, at most ",
                                              kMaxLabels, " are allowed")}});
}

absl::StatusOr<JobRecord> TrainingServiceImpl::MakeJob(const v1::CreateJobRequest& request,
                                                       const CheckedSpec& checked) {
  JobRecord job;
  job.uid = RandomUuid();
  job.id = request.job_id().empty() ? ReadableId(request.spec().name()) : request.job_id();
  job.name = request.spec().name();
  job.spec = request.spec().SerializeAsString();
  BLOCKSWAP_ASSIGN_OR_RETURN(job.spec_json, SpecToJson(request.spec()));
  job.state_reason = "SUBMITTED";
  job.plan = checked.plan.SerializeAsString();
  job.plan_json = checked.plan.json();
  job.plan_text = checked.plan.text();
  job.needs = checked.needs;
  job.requested_device = request.spec().device().empty() ? "auto" : request.spec().device();
  job.output_directory = absl::StrCat(rpc_.options.outputs_root, "/", job.id);
  job.warnings = checked.warnings;
  job.labels.insert(request.spec().labels().begin(), request.spec().labels().end());
  job.priority = request.spec().priority();
  if (request.spec().retry().has_max_restarts()) {
    job.max_restarts = request.spec().retry().max_restarts();
  }
  job.progress.total_steps = checked.total_steps;
  return job;
}

absl::Status TrainingServiceImpl::DoCreateJob(const v1::CreateJobRequest& request,
                                              v1::Job* response) {
  if (!rpc_.accepting.load(std::memory_order_relaxed)) {
    return WithReason(absl::UnavailableError("the server is shutting down"), "SHUTTING_DOWN");
  }
  const auto reject = [this](absl::Status status) {
    rpc_.metrics.JobSubmitted(SubmitResult(status));
    return status;
  };
  absl::Status valid = CheckRequest(request, rpc_.options.max_spec_bytes);
  if (!valid.ok()) return reject(std::move(valid));
  const std::string hash = CanonicalHash(request);
  // Before validation: a repeated request gets its answer even when its files are gone by now.
  auto earlier = rpc_.store.FindRequest(request.request_id(), hash);
  if (!earlier.ok()) return reject(earlier.status());
  if (earlier->has_value()) {
    rpc_.metrics.JobSubmitted("duplicate");
    return Fill(**earlier, v1::JOB_VIEW_FULL, response);
  }
  auto checked = rpc_.checker.Check(request.spec(), rpc_.devices.List());
  if (!checked.ok()) return reject(checked.status());
  for (int attempt = 0;; ++attempt) {
    auto job = MakeJob(request, *checked);
    if (!job.ok()) return reject(job.status());
    if (request.validate_only()) {
      *response = ToProto(*job, v1::JOB_VIEW_FULL, 0);
      response->clear_uid();
      return absl::OkStatus();
    }
    auto created = rpc_.store.CreateJob(*std::move(job), request.request_id(), hash,
                                        rpc_.options.max_unfinished_jobs);
    const bool id_was_taken = !created.ok() && ReasonOf(created.status()) == "JOB_EXISTS";
    if (id_was_taken && request.job_id().empty() && attempt < kMaxIdTries) continue;
    if (!created.ok()) return reject(created.status());
    rpc_.metrics.JobSubmitted(created->is_new ? "accepted" : "duplicate");
    if (created->is_new) rpc_.scheduler.Wake();
    return Fill(std::move(created->job), v1::JOB_VIEW_FULL, response);
  }
}

absl::Status TrainingServiceImpl::DoPlanJob(const v1::PlanJobRequest& request,
                                            v1::PlanJobResponse* response) {
  const std::string& profile = request.device_profile();
  BLOCKSWAP_ASSIGN_OR_RETURN(
      CheckedSpec checked,
      rpc_.checker.PlanOnly(request.spec(), rpc_.devices.List(), profile));
  *response->mutable_plan() = std::move(checked.plan);
  response->set_device(
      absl::StrCat(profile.empty() ? "devices/" : "device_profiles/", checked.device));
  response->set_total_steps(checked.total_steps);
  response->set_num_items(checked.num_items);
  for (const std::string& warning : checked.warnings) response->add_warnings(ValidUtf8(warning));
  for (v1::PlanAlternative& alternative : checked.alternatives) {
    *response->add_alternatives() = std::move(alternative);
  }
  return absl::OkStatus();
}

}  // namespace blockswap::server
