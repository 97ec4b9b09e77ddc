// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/proto_conversion.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/text/utf8.h"
#include "server/base/random_text.h"

namespace blockswap::server {
namespace {

using google::protobuf::util::TimeUtil;

static_assert(static_cast<int>(JobState::kQueued) == v1::JOB_STATE_QUEUED);
static_assert(static_cast<int>(JobState::kStarting) == v1::JOB_STATE_STARTING);
static_assert(static_cast<int>(JobState::kRunning) == v1::JOB_STATE_RUNNING);
static_assert(static_cast<int>(JobState::kSuspending) == v1::JOB_STATE_SUSPENDING);
static_assert(static_cast<int>(JobState::kSuspended) == v1::JOB_STATE_SUSPENDED);
static_assert(static_cast<int>(JobState::kRecovering) == v1::JOB_STATE_RECOVERING);
static_assert(static_cast<int>(JobState::kCancelling) == v1::JOB_STATE_CANCELLING);
static_assert(static_cast<int>(JobState::kSucceeded) == v1::JOB_STATE_SUCCEEDED);
static_assert(static_cast<int>(JobState::kFailed) == v1::JOB_STATE_FAILED);
static_assert(static_cast<int>(JobState::kCancelled) == v1::JOB_STATE_CANCELLED);
static_assert(static_cast<int>(FailureCategory::kServerInternal) ==
              v1::FAILURE_CATEGORY_SERVER_INTERNAL);
static_assert(static_cast<int>(FailureCategory::kWorkerCrash) == v1::FAILURE_CATEGORY_WORKER_CRASH);
static_assert(static_cast<int>(FailureCategory::kNumerics) == v1::FAILURE_CATEGORY_NUMERICS);
static_assert(static_cast<int>(EventType::kEnd) == v1::JobEvent::TYPE_END);
static_assert(static_cast<int>(EventType::kUpdated) == v1::JobEvent::TYPE_UPDATED);
static_assert(static_cast<int>(EventType::kCheckpointDeleted) ==
              v1::JobEvent::TYPE_CHECKPOINT_DELETED);
static_assert(static_cast<int>(EventType::kProgress) == v1::JobEvent::TYPE_PROGRESS);

void SetTime(int64_t micros, google::protobuf::Timestamp* time) {
  *time = TimeUtil::MicrosecondsToTimestamp(micros);
}

v1::Failure ToProto(const Failure& failure) {
  v1::Failure out;
  out.set_category(static_cast<v1::FailureCategory>(failure.category));
  out.set_reason(failure.reason);
  out.set_message(ValidUtf8(failure.message));
  out.set_exit_code(failure.exit_code);
  out.set_signal(failure.signal);
  out.set_retryable(failure.retryable);
  out.set_step(failure.step);
  return out;
}

v1::Progress ToProto(const Progress& progress) {
  v1::Progress out;
  out.set_step(progress.step);
  out.set_total_steps(progress.total_steps);
  out.set_epoch(progress.epoch);
  out.set_loss(progress.loss);
  out.set_learning_rate(progress.learning_rate);
  out.set_grad_norm(progress.grad_norm);
  out.set_seconds_per_step(progress.seconds_per_step);
  out.set_eta_seconds(progress.eta_seconds);
  if (progress.last_progress_micros != 0) {
    SetTime(progress.last_progress_micros, out.mutable_last_progress_time());
  }
  out.set_device_bytes(progress.device_bytes);
  out.set_stall_ratio(progress.stall_ratio);
  out.set_phase(progress.phase);
  out.set_phase_bytes_done(progress.phase_bytes_done);
  out.set_phase_bytes_total(progress.phase_bytes_total);
  return out;
}

}  // namespace

std::string ValidUtf8(const std::string& text) { return proto::ToValidUtf8(text); }

std::string EtagOf(const JobRecord& job) {
  constexpr size_t kLength = 16;
  const std::string content = absl::StrCat(job.uid, " ", static_cast<int>(job.state), " ",
                                           static_cast<int>(job.stop_mode), " ", job.spec);
  return ToHex(Sha256(content)).substr(0, kLength);
}

v1::Job ToProto(const JobRecord& job, v1::JobView view, int64_t queue_position) {
  v1::Job out;
  out.set_name(absl::StrCat("jobs/", job.id));
  out.set_uid(job.uid);
  // Both blobs were serialised by this server; a row that does not parse shows as an empty message.
  out.mutable_spec()->ParsePartialFromString(job.spec);
  out.set_state(static_cast<v1::JobState>(job.state));
  out.set_state_reason(job.state_reason);
  out.set_state_message(ValidUtf8(job.state_message));
  if (job.failure.category != FailureCategory::kNone) *out.mutable_failure() = ToProto(job.failure);
  *out.mutable_progress() = ToProto(job.progress);
  if (!job.plan.empty() && out.mutable_plan()->ParsePartialFromString(job.plan)) {
    if (!job.plan_json.empty()) out.mutable_plan()->set_json(ValidUtf8(job.plan_json));
    if (!job.plan_text.empty()) out.mutable_plan()->set_text(ValidUtf8(job.plan_text));
    if (view != v1::JOB_VIEW_FULL) {
      out.mutable_plan()->clear_json();
      out.mutable_plan()->clear_text();
      out.mutable_plan()->clear_streamed_blocks();
      out.mutable_plan()->clear_keeping_blocks();
      out.mutable_plan()->clear_notes();
      out.mutable_plan()->clear_device_bytes_by_purpose();
    }
  }
  out.set_attempt(job.attempt);
  if (!job.device.empty()) out.set_device(absl::StrCat("devices/", job.device));
  out.set_queue_position(queue_position);
  SetTime(job.create_micros, out.mutable_create_time());
  if (job.start_micros != 0) SetTime(job.start_micros, out.mutable_start_time());
  if (job.end_micros != 0) SetTime(job.end_micros, out.mutable_end_time());
  SetTime(job.update_micros, out.mutable_update_time());
  out.set_etag(EtagOf(job));
  out.set_output_directory(job.output_directory);
  out.set_tenant(job.tenant);
  if (!job.retry_of.empty()) out.set_retry_of(absl::StrCat("jobs/", job.retry_of));
  if (job.deadline_micros != 0) SetTime(job.deadline_micros, out.mutable_deadline_time());
  if (!job.template_name.empty()) {
    out.set_template_(absl::StrCat("templates/", job.template_name));
  }
  out.set_from_checkpoint(job.from_checkpoint);
  for (const std::string& warning : job.warnings) out.add_warnings(ValidUtf8(warning));
  return out;
}

v1::JobEvent ToProto(const EventRecord& event) {
  v1::JobEvent out;
  out.set_sequence(event.sequence);
  out.set_type(static_cast<v1::JobEvent::Type>(event.type));
  if (!event.job_id.empty()) out.set_job(absl::StrCat("jobs/", event.job_id));
  SetTime(event.time_micros, out.mutable_time());
  if (!event.job_id.empty()) out.set_state(static_cast<v1::JobState>(event.state));
  out.set_reason(event.reason);
  out.set_message(ValidUtf8(event.message));
  if (event.failure.has_value()) *out.mutable_failure() = ToProto(*event.failure);
  if (event.progress.has_value()) *out.mutable_progress() = ToProto(*event.progress);
  out.set_attempt(event.attempt);
  return out;
}

v1::Attempt ToProto(const std::string& job_id, const AttemptRecord& attempt) {
  v1::Attempt out;
  out.set_name(absl::StrCat("jobs/", job_id, "/attempts/", attempt.number));
  out.set_number(attempt.number);
  out.set_device(absl::StrCat("devices/", attempt.device));
  if (attempt.start_micros != 0) SetTime(attempt.start_micros, out.mutable_start_time());
  if (attempt.end_micros != 0) SetTime(attempt.end_micros, out.mutable_end_time());
  out.set_start_step(attempt.start_step);
  out.set_end_step(attempt.end_step);
  if (attempt.failure.category != FailureCategory::kNone) {
    *out.mutable_failure() = ToProto(attempt.failure);
  }
  return out;
}

v1::Checkpoint ToProto(const std::string& job_id, const CheckpointRecord& checkpoint) {
  v1::Checkpoint out;
  out.set_name(absl::StrCat("jobs/", job_id, "/checkpoints/", checkpoint.step));
  out.set_step(checkpoint.step);
  out.set_bytes(checkpoint.bytes);
  SetTime(checkpoint.create_micros, out.mutable_create_time());
  out.set_directory(checkpoint.directory);
  out.set_manifest_sha256(checkpoint.manifest_sha256);
  return out;
}

static v1::DeviceLink LinkToProto(const DeviceState& device) {
  v1::DeviceLink out;
  out.set_h2d_bytes_per_second(device.link.h2d);
  out.set_d2h_bytes_per_second(device.link.d2h);
  out.set_duplex_h2d_bytes_per_second(device.link.duplex_h2d);
  out.set_duplex_d2h_bytes_per_second(device.link.duplex_d2h);
  out.set_duplex_factor(device.link.duplex_factor);
  out.set_pageable_bytes_per_second(device.link.pageable);
  out.set_latency_seconds(device.link.latency_seconds);
  SetTime(device.link.measured_micros, out.mutable_measure_time());
  out.set_generation(device.negotiated.generation);
  out.set_max_generation(device.negotiated.max_generation);
  out.set_width(device.negotiated.width);
  out.set_max_width(device.negotiated.max_width);
  return out;
}

v1::Device ToProto(const DeviceState& device) {
  v1::Device out;
  out.set_name(absl::StrCat("devices/", device.name));
  out.set_kind(static_cast<v1::Device::Kind>(device.kind));
  out.set_description(ValidUtf8(device.description));
  out.set_uuid(device.uuid);
  out.set_total_bytes(device.total_bytes);
  out.set_free_bytes(device.free_bytes);
  out.set_health(static_cast<v1::Device::Health>(device.health));
  out.set_health_reason(ValidUtf8(device.health_reason));
  for (const DeviceHold& hold : device.holders) out.add_jobs(absl::StrCat("jobs/", hold.job));
  out.set_room_bytes(std::max<int64_t>(0, device.room_bytes()));
  if (!device.is_idle()) out.set_job(out.jobs(0));
  out.set_lockable_bytes(device.lockable_bytes);
  if (device.link.measured_micros != 0) *out.mutable_link() = LinkToProto(device);
  out.set_link_warning(device.link_warning);
  return out;
}

absl::StatusOr<std::string> SpecToJson(const v1::JobSpec& spec) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(spec, &json, options).ok()) {
    return absl::InvalidArgumentError("spec: has text that is not UTF-8");
  }
  return json;
}

bool IsValidJobId(const std::string& id) {
  if (id.empty() || id.size() > 63 || !std::islower(static_cast<unsigned char>(id[0])))
    return false;
  for (const char c : id) {
    const auto byte = static_cast<unsigned char>(c);
    if (!std::islower(byte) && !std::isdigit(byte) && c != '-') return false;
  }
  return id.back() != '-';
}

absl::StatusOr<std::string> JobIdOf(const std::string& name) {
  const std::string id(absl::StripPrefix(name, "jobs/"));
  if (!IsValidJobId(id)) {
    return absl::InvalidArgumentError("name: must be jobs/ and a job id");
  }
  return id;
}

}  // namespace blockswap::server
