// SPDX-License-Identifier: Apache-2.0
// The largest section of a spec, checked in a file of its own.
#ifndef BLOCKSWAP_WORKER_CONFIG_SPEC_VALIDATION_SECTIONS_H_
#define BLOCKSWAP_WORKER_CONFIG_SPEC_VALIDATION_SECTIONS_H_

#include "blockswap/v1/job.pb.h"
#include "worker/config/field_checker.h"
#include "worker/config/train_config.h"

namespace blockswap::worker {

void CheckTraining(const v1::TrainingSpec& spec, FieldChecker* check, TrainingConfig* config);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CONFIG_SPEC_VALIDATION_SECTIONS_H_
