// SPDX-License-Identifier: Apache-2.0
// Training of an adapter: flat fp32 buffers on the device, updated there.
#ifndef BLOCKSWAP_WORKER_TRAIN_ADAPTER_TRAINING_H_
#define BLOCKSWAP_WORKER_TRAIN_ADAPTER_TRAINING_H_

#include <cstdint>
#include <string>

#include "worker/adapter/adapter.h"
#include "worker/config/job_inspection.h"
#include "worker/optimizer/adamw.h"
#include "worker/train/trainable.h"

namespace blockswap::worker {

// All arguments outlive the object.
class AdapterTraining final : public Trainable {
 public:
  AdapterTraining(const JobInspection* job, const Adapter* adapter, AdamW* optimizer)
      : job_(job), adapter_(adapter), optimizer_(optimizer) {}

  void ZeroGradients() override;
  absl::StatusOr<double> GradientNorm() override;
  absl::Status Update(double norm, double max_norm, double learning_rate) override;
  int64_t updates() const override { return optimizer_->updates(); }
  int64_t StateBytes() const override;
  absl::Status WriteState(const std::string& directory) override;
  absl::Status ReadState(const std::string& directory, int64_t updates) override;
  absl::Status WriteResult(const TrainingMoment& moment, const std::string& path) override;

 private:
  const JobInspection* job_;
  const Adapter* adapter_;
  AdamW* optimizer_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_ADAPTER_TRAINING_H_
