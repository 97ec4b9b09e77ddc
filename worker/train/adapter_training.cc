// SPDX-License-Identifier: Apache-2.0
#include "worker/train/adapter_training.h"

#include <ATen/ATen.h>

#include "offload/base/status_macros.h"
#include "worker/optimizer/gradient_norm.h"
#include "worker/train/adapter_metadata.h"
#include "worker/train/training_state.h"

namespace blockswap::worker {

void AdapterTraining::ZeroGradients() { adapter_->gradients().zero_(); }

absl::StatusOr<double> AdapterTraining::GradientNorm() { return GlobalNorm(adapter_->gradients()); }

absl::Status AdapterTraining::Update(double norm, double max_norm, double learning_rate) {
  ClipByNorm(adapter_->gradients(), norm, max_norm);
  optimizer_->Step(adapter_->gradients(), learning_rate);
  return absl::OkStatus();
}

int64_t AdapterTraining::StateBytes() const { return worker::StateBytes(*adapter_); }

absl::Status AdapterTraining::WriteState(const std::string& directory) {
  return WriteTrainingState(directory, *adapter_, *optimizer_);
}

absl::Status AdapterTraining::ReadState(const std::string& directory, int64_t updates) {
  BLOCKSWAP_RETURN_IF_ERROR(ReadTrainingState(directory, *adapter_, optimizer_));
  optimizer_->set_updates(updates);
  return absl::OkStatus();
}

absl::Status AdapterTraining::WriteResult(const TrainingMoment& moment, const std::string& path) {
  return SaveAdapter(*adapter_, *job_, moment, path);
}

}  // namespace blockswap::worker
