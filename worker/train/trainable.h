// SPDX-License-Identifier: Apache-2.0
// What a job trains, as its steps, checkpoints and files see it: an adapter on a frozen base, or
// the base itself.
#ifndef BLOCKSWAP_WORKER_TRAIN_TRAINABLE_H_
#define BLOCKSWAP_WORKER_TRAIN_TRAINABLE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace blockswap::worker {

// Where training was when a file was written.
struct TrainingMoment {
  int64_t step = 0;
  int64_t epoch = 1;
  absl::Time started, finished;
};

// Thread safety: the trainer's thread. LibTorch's exceptions pass through; callers are inside
// RunContained.
class Trainable {
 public:
  virtual ~Trainable() = default;

  // A step begins: it has no gradients yet.
  virtual void ZeroGradients() = 0;
  // The global norm of what the step's backward passes gave; not finite exactly when a gradient is
  // not.
  virtual absl::StatusOr<double> GradientNorm() = 0;
  // Clips to `max_norm` (0: never) and updates the parameters. `norm` is the last GradientNorm. Not
  // repeatable: gradients are spent.
  virtual absl::Status Update(double norm, double max_norm, double learning_rate) = 0;
  // Ends what an Update left running beside the next step; the walk asks for each block it needs,
  // everything else that looks at weights or moves blocks asks for all.
  virtual absl::Status FinishUpdate() { return absl::OkStatus(); }
  // Calls of Update since training began.
  virtual int64_t updates() const = 0;

  // Bytes of the state file, near enough for the free-space check.
  virtual int64_t StateBytes() const = 0;
  // Writes everything training continues from below `directory`. Refuses values that are not
  // finite: a checkpoint that holds one is worse than none.
  virtual absl::Status WriteState(const std::string& directory) = 0;
  // DataLoss when what is stored does not fit. `updates`: as of then.
  virtual absl::Status ReadState(const std::string& directory, int64_t updates) = 0;

  // The file that people take away.
  virtual absl::Status WriteResult(const TrainingMoment& moment, const std::string& path) = 0;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_TRAINABLE_H_
