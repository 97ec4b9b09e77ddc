// SPDX-License-Identifier: Apache-2.0
// Turns a loaded batch into what the model takes: noised tokens, times, text, all drawn from
// counters and placed on the device.
#ifndef BLOCKSWAP_WORKER_TRAIN_MICRO_BATCH_H_
#define BLOCKSWAP_WORKER_TRAIN_MICRO_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/config/train_config.h"
#include "worker/model/model.h"
#include "worker/train/batch_loader.h"

namespace blockswap::worker {

struct MicroBatch {
  ModelInputs inputs;
  at::Tensor target_BSF;           // fp32
  std::vector<double> times;       // noise level of each sample, for messages and tests
  std::vector<std::string> names;  // of the items
};

// Where the random numbers of a micro-batch come from: they depend on nothing else.
struct DrawPosition {
  int64_t step = 1;          // optimizer step
  int64_t first_sample = 0;  // position of the micro-batch's first sample within the step
};

MicroBatch MakeMicroBatch(const LoadedBatch& batch, const TrainingConfig& training,
                          const ModelDescription& model, const DrawPosition& position,
                          at::Device device);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_MICRO_BATCH_H_
