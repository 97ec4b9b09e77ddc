// SPDX-License-Identifier: Apache-2.0
// CreateJob, RetryJob and PlanJob: from a request to a planned, stored job.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cctype>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "offload/base/status_macros.h"
#include "server/base/random_text.h"
#include "server/base/reason.h"
#include "server/base/wall_clock.h"
#include "server/rpc/job_outputs.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/spec_limits.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/template_catalog.h"
#include "server/rpc/tenants.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {
namespace {

constexpr int kSuffixLength = 5;
constexpr int kMaxIdTries = 8;

// The same bytes for the same request: map entries in one order. REQUIRES: without its request id.
std::string CanonicalHash(const google::protobuf::Message& request) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    request.SerializeWithCachedSizes((request.ByteSizeLong(), &coded));
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

std::vector<Violation> CheckIds(const std::string& job_id, const char* job_id_field,
                                const std::string& request_id) {
  std::vector<Violation> violations;
  if (!job_id.empty() && !IsValidJobId(job_id)) {
    violations.push_back({job_id_field,
                          "must be lower-case letters, digits and '-', starting with a letter, "
                          "at most 63 characters"});
  }
  if (request_id.size() > kMaxRequestId) {
    violations.push_back(
        {"request_id", absl::StrCat("must have at most ", kMaxRequestId, " characters")});
  }
  return violations;
}

const char* SubmitResult(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status) ? "invalid"
                                                                             : "rejected";
}

}  // namespace

absl::StatusOr<CheckedSpec> TrainingServiceImpl::CheckSpec(const v1::JobSpec& spec,
                                                           std::vector<Violation> violations,
                                                           int64_t create_micros) {
  const int64_t max_bytes = rpc_.options.max_spec_bytes;
  for (Violation& found : CheckSpecLimits(spec, max_bytes, create_micros)) {
    violations.push_back(std::move(found));
  }
  // What is too large is not even looked at.
  const bool is_too_large = static_cast<int64_t>(spec.ByteSizeLong()) > max_bytes;
  if (is_too_large) return SpecInvalid(violations);
  // Alone: what else is wrong may be told with the text in which it is.
  const std::vector<Violation> secrets = CheckSpecSecrets(spec);
  if (!secrets.empty()) return SpecInvalid(secrets);
  auto checked = rpc_.checker.Check(spec, rpc_.devices.List());
  if (violations.empty()) return checked;
  for (Violation& found : ViolationsOf(checked.status())) violations.push_back(std::move(found));
  return SpecInvalid(violations);
}

absl::StatusOr<JobRecord> TrainingServiceImpl::MakeJob(const NewJob& request,
                                                       const CheckedSpec& checked) {
  const v1::JobSpec& spec = request.spec;
  JobRecord job;
  job.uid = RandomUuid();
  job.id = request.job_id.empty() ? ReadableId(spec.name()) : request.job_id;
  job.name = spec.name();
  job.spec = spec.SerializeAsString();
  BLOCKSWAP_ASSIGN_OR_RETURN(job.spec_json, SpecToJson(spec));
  job.state_reason = "SUBMITTED";
  job.plan = checked.plan.SerializeAsString();
  job.plan_json = checked.plan.json();
  job.plan_text = checked.plan.text();
  job.needs = checked.needs;
  job.requested_device = spec.device().empty() ? "auto" : spec.device();
  job.tenant = request.tenant;
  job.output_directory =
      NewOutputDirectory(TenantOutputs(rpc_.options.outputs_root, request.tenant), job);
  job.warnings = checked.warnings;
  job.create_micros = request.create_micros;
  TakeQueueSettings(spec, job);
  job.progress.total_steps = checked.total_steps;
  job.retry_of = request.retry_of;
  job.template_name = request.template_name;
  job.from_checkpoint = request.from_checkpoint;
  return job;
}

absl::Status TrainingServiceImpl::CreateNew(const NewJob& request, v1::Job* response) {
  auto checked = CheckSpec(request.spec, request.violations, request.create_micros);
  if (!checked.ok()) return checked.status();
  for (int attempt = 0;; ++attempt) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, MakeJob(request, *checked));
    if (request.validate_only) {
      *response = ToProto(job, v1::JOB_VIEW_FULL, 0);
      response->clear_uid();
      return absl::OkStatus();
    }
    if (request.prepare) BLOCKSWAP_RETURN_IF_ERROR(request.prepare(job));
    auto created = rpc_.store.CreateJob(job, request.request_id, request.hash,
                                        rpc_.max_unfinished_jobs.load(std::memory_order_relaxed));
    if (request.prepare && !(created.ok() && created->is_new)) {
      // What was prepared is nobody's; the answer is why.
      RemoveOutputs(job).IgnoreError();
    }
    const bool id_was_taken = !created.ok() && ReasonOf(created.status()) == "JOB_EXISTS";
    if (id_was_taken && request.job_id.empty() && attempt < kMaxIdTries) continue;
    if (!created.ok()) return created.status();
    rpc_.metrics.JobSubmitted(created->is_new ? "accepted" : "duplicate");
    if (created->is_new) rpc_.scheduler.Wake();
    return Fill(std::move(created->job), v1::JOB_VIEW_FULL, response);
  }
}

absl::Status TrainingServiceImpl::Submit(const std::string& request_id, const std::string& hash,
                                         const std::function<absl::StatusOr<NewJob>()>& prepare,
                                         v1::Job* response) {
  if (!rpc_.accepting.load(std::memory_order_relaxed)) {
    return WithReason(absl::UnavailableError("the server is shutting down"), "SHUTTING_DOWN");
  }
  const auto reject = [this](absl::Status status) {
    rpc_.metrics.JobSubmitted(SubmitResult(status));
    return status;
  };
  // Before validation: a repeated request gets its answer even when its files are gone by now.
  auto earlier = rpc_.store.FindRequest(request_id, hash);
  if (!earlier.ok()) return reject(earlier.status());
  if (earlier->has_value()) {
    rpc_.metrics.JobSubmitted("duplicate");
    return Fill(**earlier, v1::JOB_VIEW_FULL, response);
  }
  auto job = prepare();
  if (!job.ok()) return reject(job.status());
  job->request_id = request_id;
  job->hash = hash;
  job->create_micros = WallMicros();
  absl::Status created = CreateNew(*job, response);
  return created.ok() ? created : reject(std::move(created));
}

absl::Status TrainingServiceImpl::DoCreateJob(const std::string& tenant,
                                              const v1::CreateJobRequest& request,
                                              v1::Job* response) {
  const auto prepare = [this, &tenant, &request]() -> absl::StatusOr<NewJob> {
    NewJob job;
    job.tenant = tenant;
    job.spec = request.spec();
    if (!request.template_().empty()) {
      BLOCKSWAP_ASSIGN_OR_RETURN(const v1::JobTemplate found,
                                 rpc_.templates.Get(request.template_()));
      BLOCKSWAP_ASSIGN_OR_RETURN(job.spec, ApplyTemplate(found, request.spec()));
      job.template_name = std::string(absl::StripPrefix(found.name(), "templates/"));
    }
    job.job_id = request.job_id();
    job.validate_only = request.validate_only();
    job.violations = CheckIds(request.job_id(), "job_id", request.request_id());
    return job;
  };
  v1::CreateJobRequest canonical = request;
  canonical.clear_request_id();
  return Submit(RequestIdOfTenant(request.request_id(), tenant), CanonicalHash(canonical), prepare,
                response);
}

absl::Status TrainingServiceImpl::DoRetryJob(const std::string& tenant,
                                             const v1::RetryJobRequest& request,
                                             v1::Job* response) {
  const auto prepare = [this, &request]() -> absl::StatusOr<NewJob> {
    BLOCKSWAP_ASSIGN_OR_RETURN(NewJob job, PrepareRetry(request));
    job.job_id = request.new_job_id();
    job.validate_only = request.validate_only();
    for (Violation& found : CheckIds(request.new_job_id(), "new_job_id", request.request_id())) {
      job.violations.push_back(std::move(found));
    }
    return job;
  };
  v1::RetryJobRequest canonical = request;
  canonical.clear_request_id();
  // Of another kind than a CreateJob with the same bytes.
  return Submit(RequestIdOfTenant(request.request_id(), tenant),
                Sha256(absl::StrCat("RetryJob\n", CanonicalHash(canonical))), prepare, response);
}

absl::Status TrainingServiceImpl::DoPlanJob(const v1::PlanJobRequest& request,
                                            v1::PlanJobResponse* response) {
  const std::string& profile = request.device_profile();
  BLOCKSWAP_ASSIGN_OR_RETURN(CheckedSpec checked,
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
