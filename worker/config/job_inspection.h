// SPDX-License-Identifier: Apache-2.0
// Opens a job's file headers and dataset index, without torch, and derives everything a plan needs.
#ifndef BLOCKSWAP_WORKER_CONFIG_JOB_INSPECTION_H_
#define BLOCKSWAP_WORKER_CONFIG_JOB_INSPECTION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/plan/block_profile.h"
#include "offload/plan/planner.h"
#include "worker/config/train_config.h"
#include "worker/data/dataset.h"
#include "worker/family/family.h"
#include "worker/io/checkpoint_source.h"

namespace blockswap::worker {

// What device and host offer; the server and the worker fill it from their own measurements.
struct Machine {
  int64_t device_free_bytes = 0;
  int64_t host_available_bytes = 0;
  int64_t lockable_bytes = 0;
  bool copies_need_pinned_memory = false;
  offload::LinkProfile link;
  double compute_flops_per_second = 0;
};

struct JobInspection {
  TrainConfig config;                         // architecture filled in
  std::shared_ptr<CheckpointSource> weights;  // headers parsed, data mapped
  ModelDescription model;
  std::shared_ptr<Dataset> dataset;
  AdapterLayout adapter;
  offload::ModelProfile profile;
  int64_t total_steps = 0;
  std::vector<std::string> warnings;
};

// Everything that can be known to be wrong before training is found here: unknown or missing
// tensors, foreign or missing caches, patterns that match no module, blocks_to_swap out of range.
// Field-level faults are returned in `violations` (and the result is an InvalidArgument status);
// other faults carry their own code (DataLoss for a corrupt file).
absl::StatusOr<JobInspection> InspectJob(const TrainConfig& config,
                                         std::vector<FieldViolation>* violations);

// Puts the modulation linears on the host or back on the device, and profiles the job anew: what
// memory.host_modulation: auto leaves open until the device is known. False when the family has none, or
// when it trains.
bool UseHostModulation(bool on, JobInspection* job);

// The bucket whose batches take the most memory, in one sentence for people: what the plan's
// activations are for.
std::string LargestBatchText(const JobInspection& job);

// The planner's request for an inspected job on a machine.
offload::PlanRequest MakePlanRequest(const JobInspection& job, const Machine& machine);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CONFIG_JOB_INSPECTION_H_
