// SPDX-License-Identifier: Apache-2.0
// Full fine-tuning: fp32 masters, both moments and gradient sums live on the host; what the device
// reads is a rounded copy that never comes back.
#ifndef BLOCKSWAP_WORKER_TRAIN_BASE_TRAINING_H_
#define BLOCKSWAP_WORKER_TRAIN_BASE_TRAINING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "offload/swap/block_swapper.h"
#include "worker/config/job_inspection.h"
#include "worker/family/base_layout.h"
#include "worker/model/model.h"
#include "worker/optimizer/adamw.h"
#include "worker/train/base_gradients.h"
#include "worker/train/trainable.h"
#include "worker/train/update_thread.h"

namespace blockswap::worker {

// Note [Training the base]
// One arithmetic for every plan: a block's gradient comes down after its backward, the host adds it
// up in fp32, and after the exact global norm is known `_fused_adamw_` updates the fp32 masters
// unit by unit in forward order. Each unit's working copy (in the job's type, round to nearest
// even) is then written to the swapper's master, from where the next visit of the block loads it;
// weights never come down. Nothing changes before loss and norm are known to be finite, so a step
// ends whole or not at all. Blocks are updated on a thread of their own while the next step runs
// forward: the walk waits for the block it is about to lease, the swapper holds back the copies of
// those that are not done. The gradient sums are read until the last block has run forward, and
// written again only when it runs back.
//
// Owns: masters, moments, gradients, the thread. Thread safety: the trainer's thread.
class BaseTraining final : public Trainable {
 public:
  // Reads the masters from the job's checkpoint. All arguments outlive the object. REQUIRES: the
  // swapper's plan has base_trains.
  static absl::StatusOr<std::unique_ptr<BaseTraining>> Create(const JobInspection* job,
                                                              Model* model,
                                                              offload::BlockSwapper* swapper,
                                                              offload::DeviceRuntime* runtime,
                                                              at::Device device);

  BaseGradients* gradients() { return gradients_.get(); }
  // Blocks until block `block` and those before it are updated, and lets their new bytes go up.
  absl::Status AwaitWeights(int block);

  void ZeroGradients() override { gradients_->Zero(); }
  absl::StatusOr<double> GradientNorm() override;
  absl::Status Update(double norm, double max_norm, double learning_rate) override;
  absl::Status FinishUpdate() override;
  int64_t updates() const override { return optimizers_.front().updates(); }
  int64_t StateBytes() const override;
  absl::Status WriteState(const std::string& directory) override;
  absl::Status ReadState(const std::string& directory, int64_t updates) override;
  // The whole model in one file: names of the checkpoint it began as, types of
  // output.save_precision; its config.json beside it.
  absl::Status WriteResult(const TrainingMoment& moment, const std::string& path) override;

 private:
  struct NamedBuffer {
    std::string name;
    at::Tensor values;
  };

  BaseTraining(const JobInspection* job, Model* model, offload::BlockSwapper* swapper)
      : job_(job),
        model_(model),
        swapper_(swapper),
        units_(BaseUnitsOf(job->model)),
        copies_(units_.size() - 1),
        first_unpublished_(num_blocks()) {}
  absl::Status ReadMasters();
  int num_blocks() const { return static_cast<int>(units_.size()) - 1; }
  // Clips and steps one unit.
  void StepUnit(int unit);
  // Round masters into what the device reads.
  void PublishEdges();
  void RoundBlock(int block, absl::Span<std::byte> copy) const;
  absl::Status PublishBlock(int block);
  std::vector<NamedBuffer> StateBuffers() const;

  const JobInspection* job_;
  Model* model_;
  offload::BlockSwapper* swapper_;
  const std::vector<BaseUnit> units_;
  std::vector<at::Tensor> masters_;  // by unit, flat, fp32
  std::vector<AdamW> optimizers_;    // by unit
  std::unique_ptr<BaseGradients> gradients_;

  // Of the update under way; written before the thread starts on it.
  double norm_ = 0, max_norm_ = 0, learning_rate_ = 0;
  std::vector<absl::Span<std::byte>> copies_;  // by block: the swapper's masters
  int first_unpublished_;                      // block; those before it are the swapper's again
  std::unique_ptr<UpdateThread> thread_;       // last: ends first
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_BASE_TRAINING_H_
