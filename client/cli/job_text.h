// SPDX-License-Identifier: Apache-2.0
// A job as text for people: everything that is known, or the end of it.
#ifndef BLOCKSWAP_CLIENT_CLI_JOB_TEXT_H_
#define BLOCKSWAP_CLIENT_CLI_JOB_TEXT_H_

#include <string>

#include "absl/time/time.h"
#include "blockswap/v1/training.pb.h"

namespace blockswap::cli {

std::string DescribeJob(const v1::Job& job, absl::Time now);

// The server's table, or the figures in words when it sent none.
std::string PlanText(const v1::MemoryPlan& plan);

// The fields of a spec that are set, in the form of a job file.
std::string SpecText(const v1::JobSpec& spec);

// Where the adapter of a finished job is.
std::string AdapterFile(const v1::Job& job);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_JOB_TEXT_H_
