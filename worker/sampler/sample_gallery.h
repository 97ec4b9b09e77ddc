// SPDX-License-Identifier: Apache-2.0
// A job's samples on disk: the latents of every round, a picture row of each, and the sheet that
// shows before and after.
#ifndef BLOCKSWAP_WORKER_SAMPLER_SAMPLE_GALLERY_H_
#define BLOCKSWAP_WORKER_SAMPLER_SAMPLE_GALLERY_H_

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/family/family.h"

namespace blockswap::worker {

// Thread safety: the trainer's thread. Round 0 is the base model without the adapter.
class SampleGallery {
 public:
  SampleGallery(std::string directory, const ModelDescription* model)
      : directory_(std::move(directory)), model_(model) {}

  bool can_draw() const;
  // Writes step-NNNNNNNN.safetensors and, where the latents can be drawn, step-NNNNNNNN.png;
  // returns the file to show. DataLoss, and nothing is written: values that are not finite.
  absl::StatusOr<std::string> AddRound(int64_t step, const std::vector<at::Tensor>& latents_CHW);
  bool HasRound(int64_t step) const;
  // sheet.png: a row of round 0 above a row of round `step`. REQUIRES: can_draw(), both rounds are
  // there.
  absl::StatusOr<std::string> WriteSheet(int64_t step) const;

 private:
  std::string RoundFile(int64_t step, const char* extension) const;
  absl::StatusOr<std::vector<at::Tensor>> ReadRound(int64_t step) const;

  const std::string directory_;
  const ModelDescription* model_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_SAMPLER_SAMPLE_GALLERY_H_
