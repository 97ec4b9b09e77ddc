// SPDX-License-Identifier: Apache-2.0
// Checks a job spec field by field and turns it into a TrainConfig, or reports every violation at
// once.
//
// The only header of the worker that knows protobuf: it must not meet a torch header in one
// translation unit.
#ifndef BLOCKSWAP_WORKER_CONFIG_SPEC_VALIDATION_H_
#define BLOCKSWAP_WORKER_CONFIG_SPEC_VALIDATION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "blockswap/v1/job.pb.h"
#include "worker/config/field_rule.h"
#include "worker/config/train_config.h"

namespace blockswap::worker {

// Looks at the spec alone (and at whether named files exist); what needs file headers is checked by
// InspectJob.
SpecResult ValidateSpec(const v1::JobSpec& spec, const Roots& roots);

// What ValidateSpec holds single fields to: words, limits of numbers, names, byte counts.
std::vector<FieldRule> JobFieldRules();

// Memory settings on their own, for a running job. InvalidArgument with every violation.
absl::StatusOr<MemoryConfig> ReadMemorySpec(const v1::MemorySpec& spec);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CONFIG_SPEC_VALIDATION_H_
