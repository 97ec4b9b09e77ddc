// SPDX-License-Identifier: Apache-2.0
#include "client/cli/job_columns.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/people_text.h"
#include "offload/base/byte_size.h"

namespace blockswap::cli {
namespace {

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string StepText(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  return progress.step() > 0 ? absl::StrCat(progress.step(), "/", progress.total_steps()) : "-";
}

std::string LossText(const v1::Job& job) {
  return job.progress().step() > 0 ? absl::StrFormat("%.4g", job.progress().loss()) : "-";
}

std::string RateText(const v1::Job& job) {
  const double seconds = job.progress().seconds_per_step();
  return seconds > 0 ? absl::StrFormat("%.3g", 1 / seconds) : "-";
}

std::string LeftText(const v1::Job& job) {
  const double seconds = job.progress().eta_seconds();
  const bool runs = job.state() == v1::JOB_STATE_RUNNING;
  return runs && seconds > 0
             ? absl::FormatDuration(absl::Trunc(absl::Seconds(seconds), absl::Seconds(1)))
             : "-";
}

std::string StallText(const v1::Job& job) {
  return job.progress().step() > 0 ? absl::StrFormat("%.0f%%", job.progress().stall_ratio() * 100)
                                   : "-";
}

std::string BytesText(int64_t bytes) { return bytes > 0 ? base::FormatByteSize(bytes) : "-"; }

std::string WhyText(const v1::Job& job) {
  return job.has_failure() ? FailureText(job.failure()) : StateReason(job);
}

}  // namespace

std::vector<Column<v1::Job>> JobColumns(absl::Time now) {
  using Job = v1::Job;
  return {
      {"JOB", [](const Job& job) { return JobId(job.name()); }},
      {"NAME", [](const Job& job) { return job.spec().name(); }},
      {"STATE", [](const Job& job) { return StateName(job.state()); }},
      {"STEP", StepText},
      {"LOSS", LossText},
      {"STEPS/S", RateText, true},
      {"LEFT", LeftText, true},
      {"STALL", StallText, true},
      {"MEMORY", [](const Job& job) { return BytesText(job.progress().device_bytes()); }, true},
      {"PLANNED", [](const Job& job) { return BytesText(job.plan().device_bytes()); }, true},
      {"AWAY",
       [](const Job& job) {
         return job.plan().num_blocks() > 0
                    ? absl::StrCat(job.plan().blocks_to_swap(), "/", job.plan().num_blocks())
                    : "-";
       },
       true},
      {"PRIORITY", [](const Job& job) { return absl::StrCat(job.spec().priority()); }, true},
      {"ATTEMPT", [](const Job& job) { return absl::StrCat(job.attempt()); }, true},
      {"DEVICE", [](const Job& job) { return OrDash(job.device()); }},
      {"CREATED", [now](const Job& job) { return Ago(job.create_time(), now); }},
      {"ENDED", [now](const Job& job) { return Ago(job.end_time(), now); }, true},
      {"OUTPUTS", [](const Job& job) { return OrDash(job.output_directory()); }, true},
      {"WHY", WhyText},
  };
}

}  // namespace blockswap::cli
