// SPDX-License-Identifier: Apache-2.0
// Everything training continues from: adapter, both moments and the counters, as one file of a
// checkpoint directory.
#ifndef BLOCKSWAP_WORKER_TRAIN_TRAINING_STATE_H_
#define BLOCKSWAP_WORKER_TRAIN_TRAINING_STATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/adapter/adapter.h"
#include "worker/optimizer/adamw.h"
#include "worker/train/job_identity.h"

namespace blockswap::worker {

// Cumulative over all attempts. Data order and random numbers are pure functions of seed and step,
// so the step says it all.
struct TrainingCounters {
  int64_t step = 0;            // last step done
  int64_t epoch = 1;           // of that step
  int64_t updates = 0;         // optimizer updates: step minus steps left out
  int64_t steps_left_out = 0;  // not finite, policy "skip"
  int64_t left_out_in_a_row = 0;
  int64_t zero_gradients_in_a_row = 0;
};

struct CheckpointProperties {
  TrainingCounters counters;
  int64_t total_steps = 0;
  int threads = 0;     // bits may depend on it, so a resumed run keeps it
  std::string device;  // "host", "cuda:0 NVIDIA ...": bits are promised on one kind only
  JobIdentity identity;
};

std::map<std::string, std::string> ToProperties(const CheckpointProperties& properties);
// DataLoss when a counter is missing or no number.
absl::StatusOr<CheckpointProperties> FromProperties(
    const std::map<std::string, std::string>& properties);

inline constexpr char kStateFile[] = "state.safetensors";

// Bytes of the state file, near enough for the free-space check.
int64_t StateBytes(const Adapter& adapter);

// Writes `directory`/state.safetensors. Refuses (Internal) non-finite values: a checkpoint that
// holds one is worse than none.
absl::Status WriteTrainingState(const std::string& directory, const Adapter& adapter,
                                const AdamW& optimizer);

// Fills adapter and optimizer. DataLoss when sizes or names do not fit this adapter.
absl::Status ReadTrainingState(const std::string& directory, const Adapter& adapter,
                               AdamW* optimizer);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_TRAINING_STATE_H_
