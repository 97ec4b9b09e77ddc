// SPDX-License-Identifier: Apache-2.0
// Values of the API as people read them: states, times ago, job ids, progress.
#ifndef BLOCKSWAP_CLIENT_CLI_PEOPLE_TEXT_H_
#define BLOCKSWAP_CLIENT_CLI_PEOPLE_TEXT_H_

#include <string>

#include "absl/time/time.h"
#include "blockswap/v1/event.pb.h"
#include "blockswap/v1/training.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "proto/text/progress_text.h"

namespace blockswap::cli {

// "RUNNING"; coloured when asked.
std::string StateName(v1::JobState state);
std::string Coloured(v1::JobState state, bool colour);

// Why the job is in its state: "WAITING_FOR_VRAM: needs 3.1 GiB". A reason that only says the state
// again is left out.
std::string StateReason(const v1::Job& job);

// "jobs/digits-1" -> "digits-1".
std::string JobId(const std::string& name);

absl::Time ToTime(const google::protobuf::Timestamp& timestamp);
// "4m 05s ago", "-" when not set.
std::string Ago(const google::protobuf::Timestamp& timestamp, absl::Time now);
// "2026-01-31 12:00:00 CET" in local time, "-" when not set.
std::string LocalTime(const google::protobuf::Timestamp& timestamp);

proto::ProgressFigures ToFigures(const v1::Progress& progress);

// "OUT_OF_MEMORY_DEVICE: ring does not fit (step 12, exit code 11)".
std::string FailureText(const v1::Failure& failure);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_PEOPLE_TEXT_H_
