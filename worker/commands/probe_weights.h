// SPDX-License-Identifier: Apache-2.0
// The quantised weights of a block for a probe's output, as they lie on the device.
#ifndef BLOCKSWAP_WORKER_COMMANDS_PROBE_WEIGHTS_H_
#define BLOCKSWAP_WORKER_COMMANDS_PROBE_WEIGHTS_H_

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "offload/swap/block_swapper.h"
#include "worker/family/family.h"

namespace blockswap::worker {

// Adds "codes.NAME" and "scale.NAME" for each quantised tensor NAME of `block` to `outputs`, both
// widened to fp32, read through a lease in a pass of its own. InvalidArgument: no such block, or
// nothing in it is quantised.
absl::Status AddFp8Weights(const ModelDescription& model, int block, offload::BlockSwapper* swapper,
                           std::map<std::string, at::Tensor>* outputs);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_COMMANDS_PROBE_WEIGHTS_H_
