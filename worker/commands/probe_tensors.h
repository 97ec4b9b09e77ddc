// SPDX-License-Identifier: Apache-2.0
// The probe's input and output files as tensors.
#ifndef BLOCKSWAP_WORKER_COMMANDS_PROBE_TENSORS_H_
#define BLOCKSWAP_WORKER_COMMANDS_PROBE_TENSORS_H_

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "worker/family/family.h"
#include "worker/model/model.h"

namespace blockswap::worker {

struct ProbeInputs {
  ModelInputs model;
  at::Tensor grad_output;  // undefined unless asked for
};

// InvalidArgument: a missing, unknown or misshapen tensor, a wrong type, or shapes that do not fit
// each other or `model`.
absl::StatusOr<ProbeInputs> ReadQwenImageInputs(const std::string& path,
                                                const ModelDescription& model, bool gradients);

// Writes `tensors`, widened to F32.
absl::Status WriteProbeOutputs(const std::string& path,
                               const std::map<std::string, at::Tensor>& tensors);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_COMMANDS_PROBE_TENSORS_H_
