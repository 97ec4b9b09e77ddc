// SPDX-License-Identifier: Apache-2.0
#include "client/cli/people_text.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "offload/base/byte_size.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {

std::string StateName(v1::JobState state) {
  const std::string name = v1::JobState_Name(state);
  return name.empty() ? absl::StrCat("state ", static_cast<int>(state))
                      : std::string(absl::StripPrefix(name, "JOB_STATE_"));
}

std::string Coloured(v1::JobState state, bool colour) {
  const std::string name = StateName(state);
  if (!colour) return name;
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return absl::StrCat("\x1b[32m", name, "\x1b[0m");
    case v1::JOB_STATE_FAILED:
      return absl::StrCat("\x1b[31m", name, "\x1b[0m");
    case v1::JOB_STATE_CANCELLED:
    case v1::JOB_STATE_CANCELLING:
    case v1::JOB_STATE_RECOVERING:
      return absl::StrCat("\x1b[33m", name, "\x1b[0m");
    default:
      return name;
  }
}

std::string StateReason(const v1::Job& job) {
  const bool repeats = job.state_reason() == StateName(job.state());
  const std::string reason = repeats ? "" : proto::ToPrintable(job.state_reason());
  const std::string message = proto::ToPrintable(job.state_message());
  return absl::StrCat(reason, reason.empty() || message.empty() ? "" : ": ", message);
}

std::string JobId(const std::string& name) {
  return proto::ToPrintable(absl::StripPrefix(name, "jobs/"));
}

absl::Time ToTime(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) + absl::Nanoseconds(timestamp.nanos());
}

std::string Ago(const google::protobuf::Timestamp& timestamp, absl::Time now) {
  if (timestamp.seconds() == 0) return "-";
  // A server's clock a little ahead is no reason to show a dash.
  const double seconds = absl::ToDoubleSeconds(now - ToTime(timestamp));
  return absl::StrCat(proto::FormatSeconds(seconds < 0 ? 0 : seconds), " ago");
}

std::string LocalTime(const google::protobuf::Timestamp& timestamp) {
  if (timestamp.seconds() == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S %Z", ToTime(timestamp), absl::LocalTimeZone());
}

proto::ProgressFigures ToFigures(const v1::Progress& progress) {
  proto::ProgressFigures figures;
  figures.step = progress.step();
  figures.total_steps = progress.total_steps();
  figures.seconds_per_step = progress.seconds_per_step();
  figures.eta_seconds = progress.eta_seconds();
  figures.loss = progress.loss();
  if (progress.device_bytes() > 0)
    figures.device_memory = base::FormatByteSize(progress.device_bytes());
  figures.stall_ratio = progress.stall_ratio();
  figures.phase = progress.phase();
  if (progress.phase_bytes_total() > 0) {
    absl::StrAppend(&figures.phase, " ", base::FormatByteSize(progress.phase_bytes_done()), " of ",
                    base::FormatByteSize(progress.phase_bytes_total()));
  }
  return figures;
}

std::string FailureText(const v1::Failure& failure) {
  const std::string category(
      absl::StripPrefix(v1::FailureCategory_Name(failure.category()), "FAILURE_CATEGORY_"));
  std::vector<std::string> details;
  if (failure.step() > 0) details.push_back(absl::StrCat("step ", failure.step()));
  if (failure.exit_code() != 0) details.push_back(absl::StrCat("exit code ", failure.exit_code()));
  if (failure.signal() != 0) details.push_back(absl::StrCat("signal ", failure.signal()));
  std::string text = absl::StrCat(category, ": ", proto::ToPrintable(failure.message()));
  if (!failure.reason().empty())
    absl::StrAppend(&text, " [", proto::ToPrintable(failure.reason()), "]");
  if (!details.empty()) absl::StrAppend(&text, " (", absl::StrJoin(details, ", "), ")");
  return text;
}

}  // namespace blockswap::cli
