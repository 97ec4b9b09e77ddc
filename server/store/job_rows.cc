// SPDX-License-Identifier: Apache-2.0
#include "server/store/job_rows.h"

#include <nlohmann/json.hpp>

#include "offload/base/status_macros.h"

namespace blockswap::server {

using Json = nlohmann::json;

const char kSelectJobs[] =
    "SELECT id, uid, name, spec, spec_json, state, state_reason, state_message, failure, progress, "
    "plan, plan_json, plan_text, needs, attempt, requested_device, device, create_micros, "
    "start_micros, end_micros, update_micros, version, created_sequence, output_directory, "
    "retry_of, "
    "warnings, labels, priority, max_restarts, stop_mode, ready_micros, out_of_memory_retried, "
    "swap_override FROM jobs";
const char kSelectAttempts[] =
    "SELECT number, device, start_micros, end_micros, start_step, end_step, failure, "
    "counts_as_retry, pid, process_start_time, boot_id FROM attempts";
const char kSelectEvents[] =
    "SELECT sequence, type, job_id, time_micros, state, reason, message, failure, attempt FROM "
    "events";

namespace {

// Texts come from workers: what is not UTF-8 is replaced, not refused.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json::object() : json;
}

std::string FailureToText(const Failure& failure) {
  if (failure == Failure{}) return std::string();
  return Dump({{"category", static_cast<int>(failure.category)},
               {"reason", failure.reason},
               {"message", failure.message},
               {"exit_code", failure.exit_code},
               {"signal", failure.signal},
               {"retryable", failure.retryable},
               {"step", failure.step}});
}

Failure FailureFromText(const std::string& text) {
  Failure failure;
  if (text.empty()) return failure;
  const Json json = Parse(text);
  failure.category = static_cast<FailureCategory>(json.value("category", 0));
  failure.reason = json.value("reason", "");
  failure.message = json.value("message", "");
  failure.exit_code = json.value("exit_code", 0);
  failure.signal = json.value("signal", 0);
  failure.retryable = json.value("retryable", false);
  failure.step = json.value("step", int64_t{0});
  return failure;
}

// NaN has no JSON form: it is written as null and read as NaN.
double Number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return 0;
  return found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string ProgressToText(const Progress& progress) {
  return Dump({{"step", progress.step},
               {"total_steps", progress.total_steps},
               {"epoch", progress.epoch},
               {"loss", progress.loss},
               {"learning_rate", progress.learning_rate},
               {"grad_norm", progress.grad_norm},
               {"seconds_per_step", progress.seconds_per_step},
               {"eta_seconds", progress.eta_seconds},
               {"last_progress_micros", progress.last_progress_micros},
               {"device_bytes", progress.device_bytes},
               {"stall_ratio", progress.stall_ratio},
               {"phase", progress.phase}});
}

Progress ProgressFromText(const std::string& text) {
  const Json json = Parse(text);
  Progress progress;
  progress.step = json.value("step", int64_t{0});
  progress.total_steps = json.value("total_steps", int64_t{0});
  progress.epoch = json.value("epoch", int64_t{0});
  progress.loss = Number(json, "loss");
  progress.learning_rate = Number(json, "learning_rate");
  progress.grad_norm = Number(json, "grad_norm");
  progress.seconds_per_step = Number(json, "seconds_per_step");
  progress.eta_seconds = Number(json, "eta_seconds");
  progress.last_progress_micros = json.value("last_progress_micros", int64_t{0});
  progress.device_bytes = json.value("device_bytes", int64_t{0});
  progress.stall_ratio = Number(json, "stall_ratio");
  progress.phase = json.value("phase", "");
  return progress;
}

std::string NeedsToText(const PlanNeeds& needs) {
  return Dump({{"device_bytes", needs.device_bytes},
               {"host_bytes", needs.host_bytes},
               {"disk_bytes", needs.disk_bytes},
               {"blocks_to_swap", needs.blocks_to_swap},
               {"max_blocks_to_swap", needs.max_blocks_to_swap},
               {"architecture", needs.architecture}});
}

PlanNeeds NeedsFromText(const std::string& text) {
  const Json json = Parse(text);
  PlanNeeds needs;
  needs.device_bytes = json.value("device_bytes", int64_t{0});
  needs.host_bytes = json.value("host_bytes", int64_t{0});
  needs.disk_bytes = json.value("disk_bytes", int64_t{0});
  needs.blocks_to_swap = json.value("blocks_to_swap", 0);
  needs.max_blocks_to_swap = json.value("max_blocks_to_swap", 0);
  needs.architecture = json.value("architecture", "");
  return needs;
}

// The columns that change during a job's life, in the order of both statements below.
void BindMutable(Statement& row, const JobRecord& job) {
  row.Bind(int64_t{static_cast<int>(job.state)})
      .BindText(job.state_reason)
      .BindText(job.state_message)
      .BindText(FailureToText(job.failure))
      .BindText(ProgressToText(job.progress))
      .BindBlob(job.plan)
      .BindText(job.plan_json)
      .BindText(job.plan_text)
      .BindText(NeedsToText(job.needs))
      .Bind(int64_t{job.attempt})
      .BindText(job.requested_device)
      .BindText(job.device)
      .Bind(job.create_micros)
      .Bind(job.start_micros)
      .Bind(job.end_micros)
      .Bind(job.update_micros)
      .Bind(job.version)
      .BindText(Dump(job.warnings))
      .BindText(Dump(job.labels))
      .Bind(int64_t{job.priority})
      .Bind(int64_t{job.max_restarts})
      .Bind(int64_t{static_cast<int>(job.stop_mode)})
      .Bind(job.ready_micros)
      .Bind(int64_t{job.out_of_memory_retried})
      .Bind(int64_t{job.swap_override});
}

}  // namespace

JobRecord ReadJob(const Statement& row) {
  JobRecord job;
  job.id = row.Text(0);
  job.uid = row.Text(1);
  job.name = row.Text(2);
  job.spec = row.Text(3);
  job.spec_json = row.Text(4);
  job.state = static_cast<JobState>(row.Int(5));
  job.state_reason = row.Text(6);
  job.state_message = row.Text(7);
  job.failure = FailureFromText(row.Text(8));
  job.progress = ProgressFromText(row.Text(9));
  job.plan = row.Text(10);
  job.plan_json = row.Text(11);
  job.plan_text = row.Text(12);
  job.needs = NeedsFromText(row.Text(13));
  job.attempt = static_cast<int>(row.Int(14));
  job.requested_device = row.Text(15);
  job.device = row.Text(16);
  job.create_micros = row.Int(17);
  job.start_micros = row.Int(18);
  job.end_micros = row.Int(19);
  job.update_micros = row.Int(20);
  job.version = row.Int(21);
  job.created_sequence = row.Int(22);
  job.output_directory = row.Text(23);
  job.retry_of = row.Text(24);
  for (const Json& warning : Parse(row.Text(25))) {
    if (warning.is_string()) job.warnings.push_back(warning.get<std::string>());
  }
  const Json labels = Parse(row.Text(26));
  for (const auto& [key, value] : labels.items()) {
    if (value.is_string()) job.labels[key] = value.get<std::string>();
  }
  job.priority = static_cast<int>(row.Int(27));
  job.max_restarts = static_cast<int>(row.Int(28));
  job.stop_mode = static_cast<StopMode>(row.Int(29));
  job.ready_micros = row.Int(30);
  job.out_of_memory_retried = row.Int(31) != 0;
  job.swap_override = static_cast<int>(row.Int(32));
  return job;
}

AttemptRecord ReadAttempt(const Statement& row) {
  AttemptRecord attempt;
  attempt.number = static_cast<int>(row.Int(0));
  attempt.device = row.Text(1);
  attempt.start_micros = row.Int(2);
  attempt.end_micros = row.Int(3);
  attempt.start_step = row.Int(4);
  attempt.end_step = row.Int(5);
  attempt.failure = FailureFromText(row.Text(6));
  attempt.counts_as_retry = row.Int(7) != 0;
  attempt.pid = row.Int(8);
  attempt.process_start_time = row.Int(9);
  attempt.boot_id = row.Text(10);
  return attempt;
}

EventRecord ReadEvent(const Statement& row) {
  EventRecord event;
  event.sequence = row.Int(0);
  event.type = static_cast<EventType>(row.Int(1));
  event.job_id = row.Text(2);
  event.time_micros = row.Int(3);
  event.state = static_cast<JobState>(row.Int(4));
  event.reason = row.Text(5);
  event.message = row.Text(6);
  const std::string failure = row.Text(7);
  if (!failure.empty()) event.failure = FailureFromText(failure);
  event.attempt = static_cast<int>(row.Int(8));
  return event;
}

absl::Status InsertJob(Database& database, const JobRecord& job) {
  auto row = database.Prepare(
      "INSERT INTO jobs (id, uid, name, spec, spec_json, created_sequence, output_directory, "
      "retry_of, state, state_reason, state_message, failure, progress, plan, plan_json, "
      "plan_text, "
      "needs, attempt, requested_device, device, create_micros, start_micros, end_micros, "
      "update_micros, version, warnings, labels, priority, max_restarts, stop_mode, ready_micros, "
      "out_of_memory_retried, swap_override) VALUES "
      "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  row.BindText(job.id)
      .BindText(job.uid)
      .BindText(job.name)
      .BindBlob(job.spec)
      .BindText(job.spec_json)
      .Bind(job.created_sequence)
      .BindText(job.output_directory)
      .BindText(job.retry_of);
  BindMutable(row, job);
  return row.Run();
}

absl::Status UpdateJobRow(Database& database, const JobRecord& job) {
  auto row = database.Prepare(
      "UPDATE jobs SET spec=?, spec_json=?, state=?, state_reason=?, state_message=?, failure=?, "
      "progress=?, plan=?, "
      "plan_json=?, plan_text=?, needs=?, attempt=?, requested_device=?, device=?, "
      "create_micros=?, "
      "start_micros=?, end_micros=?, update_micros=?, version=?, warnings=?, labels=?, priority=?, "
      "max_restarts=?, stop_mode=?, ready_micros=?, out_of_memory_retried=?, swap_override=? "
      "WHERE uid=?");
  // UpdateJob changes the spec, too.
  row.BindBlob(job.spec).BindText(job.spec_json);
  BindMutable(row, job);
  return row.BindText(job.uid).Run();
}

absl::Status PutAttempt(Database& database, const std::string& job_uid,
                        const AttemptRecord& attempt) {
  auto row = database.Prepare(
      "INSERT OR REPLACE INTO attempts (job_uid, number, device, start_micros, end_micros, "
      "start_step, end_step, failure, counts_as_retry, pid, process_start_time, boot_id) "
      "VALUES (?,?,?,?,?,?,?,?,?,?,?,?)");
  return row.BindText(job_uid)
      .Bind(int64_t{attempt.number})
      .BindText(attempt.device)
      .Bind(attempt.start_micros)
      .Bind(attempt.end_micros)
      .Bind(attempt.start_step)
      .Bind(attempt.end_step)
      .BindText(FailureToText(attempt.failure))
      .Bind(int64_t{attempt.counts_as_retry})
      .Bind(attempt.pid)
      .Bind(attempt.process_start_time)
      .BindText(attempt.boot_id)
      .Run();
}

absl::Status PutCheckpoint(Database& database, const std::string& job_uid,
                           const CheckpointRecord& checkpoint) {
  auto row = database.Prepare(
      "INSERT OR REPLACE INTO checkpoints (job_uid, step, bytes, create_micros, directory, "
      "manifest_sha256) VALUES (?,?,?,?,?,?)");
  return row.BindText(job_uid)
      .Bind(checkpoint.step)
      .Bind(checkpoint.bytes)
      .Bind(checkpoint.create_micros)
      .BindText(checkpoint.directory)
      .BindText(checkpoint.manifest_sha256)
      .Run();
}

absl::Status PutMetricPoint(Database& database, const std::string& job_uid,
                            const MetricPoint& point) {
  auto row = database.Prepare(
      "INSERT OR REPLACE INTO metric_points (job_uid, step, loss, learning_rate, grad_norm, "
      "seconds, "
      "h2d_bytes, stall_seconds, device_bytes_peak) VALUES (?,?,?,?,?,?,?,?,?)");
  return row.BindText(job_uid)
      .Bind(point.step)
      .Bind(point.loss)
      .Bind(point.learning_rate)
      .Bind(point.grad_norm)
      .Bind(point.seconds)
      .Bind(point.h2d_bytes)
      .Bind(point.stall_seconds)
      .Bind(point.device_bytes_peak)
      .Run();
}

absl::Status InsertEvent(Database& database, const EventRecord& event) {
  auto row = database.Prepare(
      "INSERT INTO events (sequence, type, job_id, time_micros, state, reason, message, failure, "
      "attempt) VALUES (?,?,?,?,?,?,?,?,?)");
  return row.Bind(event.sequence)
      .Bind(int64_t{static_cast<int>(event.type)})
      .BindText(event.job_id)
      .Bind(event.time_micros)
      .Bind(int64_t{static_cast<int>(event.state)})
      .BindText(event.reason)
      .BindText(event.message)
      .BindText(event.failure.has_value() ? FailureToText(*event.failure) : std::string())
      .Bind(int64_t{event.attempt})
      .Run();
}

}  // namespace blockswap::server
