// SPDX-License-Identifier: Apache-2.0
// `blockswap-worker probe`: one forward, and one backward, of a checkpoint, to hold against the
// reference implementation.
#ifndef BLOCKSWAP_WORKER_COMMANDS_PROBE_H_
#define BLOCKSWAP_WORKER_COMMANDS_PROBE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "offload/plan/swap_plan.h"
#include "worker/config/train_config.h"

namespace blockswap::worker {

struct ProbeOptions {
  std::string weights, config, inputs, outputs, adapter;  // config and adapter may be empty
  std::string architecture;                               // empty: detect
  Dtype dtype = Dtype::kFloat32;
  Quantization quantization = Quantization::kNone;
  int blocks_to_swap = 0;
  int ring_size = 2;
  offload::TransferMode mode = offload::TransferMode::kH2dOnly;
  offload::Granularity granularity = offload::Granularity::kBlock;
  offload::PinPolicy pin_policy = offload::PinPolicy::kAuto;
  bool host_modulation = false;  // Note [Host modulation]
  bool gradients = false;
  std::optional<int> fp8_weights;  // also write the codes and scales of this block
  bool weight_gradients = false;  // of every base weight; needs `gradients`
};

// Writes options.outputs and returns the report, one JSON object. On failure there is no file at
// options.outputs: one from an earlier run is removed first.
absl::StatusOr<std::string> Probe(const ProbeOptions& options);

// The command line: argv[0] is "probe". Returns the exit status.
int RunProbe(int argc, char** argv);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_COMMANDS_PROBE_H_
