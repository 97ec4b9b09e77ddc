// SPDX-License-Identifier: Apache-2.0
// Modulation linears evaluated on the host, for all blocks of a pass, while the first blocks run.
#ifndef BLOCKSWAP_WORKER_MODEL_HOST_MODULATION_H_
#define BLOCKSWAP_WORKER_MODEL_HOST_MODULATION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "worker/family/family.h"
#include "worker/io/checkpoint_source.h"
#include "worker/kernels/host_linear_threads.h"

namespace blockswap::worker {

// Note [Host modulation]
//
// A modulation linear sees one row per sample, the activated time embedding, and its weight is a
// third of a Qwen-Image block: next to no arithmetic, much to move. With
// ModelDescription::host_modulation these weights are left out of the packed block. Once per pass
// the host computes bias + weight * x for all blocks, in the order in which blocks run forward,
// reading each weight where it lies: in the mapped file when its type is the job's, else in one
// copy in host memory; fp8 codes are widened a few rows at a time. A block waits for its rows, adds
// its adapter's delta on the device, and keeps the sum for the recompute. The adapter's gradients
// are what they are without it.
//
// Rounding: fp32 sums in a fixed order, then once to the job's type. The device may sum in another
// order, so whether this is on belongs to the job's identity, not to its plan.

// Owns: copies of weights, the threads. Thread safety: the trainer's thread.
class HostModulation {
 public:
  // Takes every linear whose weight is marked on_host. REQUIRES: `source` outlives it. Errors:
  // those of reading; InternalError when none is marked.
  static absl::StatusOr<std::unique_ptr<HostModulation>> Create(const ModelDescription& model,
                                                                const CheckpointSource& source,
                                                                int threads);

  // The rows of one pass. Its end waits until no thread works for it.
  class Pass {
   public:
    // What linear `slot` of `block` gives for its input, without adapter: [rows, out] in the job's
    // type on the input's device. The caller may change it in place. REQUIRES: asked once.
    at::Tensor Take(int block, int slot);

   private:
    friend class HostModulation;
    Pass() = default;
    const HostModulation* owner_ = nullptr;
    at::Device device_ = at::kCPU;
    std::vector<at::Tensor> inputs_, outputs_;       // outputs_ by linear
    std::unique_ptr<HostLinearThreads::Pass> pass_;  // ends before the memory above
  };

  // Begins a pass. `inputs`: of every marked slot, its rows [rows, in] on the device. Throws
  // c10::Error when a mapped file was cut since: touching what is gone would end the process.
  std::unique_ptr<Pass> Start(const std::map<int, at::Tensor>& inputs);

  int64_t weight_bytes() const { return weight_bytes_; }  // read once per pass
  int64_t copied_bytes() const { return copied_bytes_; }  // of them in host memory of our own
  HostLinearStats stats() const { return threads_->stats(); }

 private:
  HostModulation() = default;
  absl::Status Add(const DescribedBlock& block, size_t slot, Dtype dtype,
                   const CheckpointSource& source);
  // Sets where `linear` finds its weight.
  absl::Status Place(const TensorSpec& weight, Dtype dtype, const CheckpointSource& source,
                     HostLinear* linear);

  at::ScalarType type_ = at::ScalarType::Float;    // the job's
  at::ScalarType number_ = at::ScalarType::Float;  // of weights and outputs
  std::map<std::pair<int, int>, int> index_;       // (block, slot) to its place in the list
  std::vector<int> slots_;                         // of each linear
  std::vector<HostLinear> linears_;
  std::vector<std::vector<float>> biases_;
  std::vector<std::vector<std::byte>> copies_;
  // Of each file that is read in place, the tensor furthest behind.
  std::map<const SafetensorsFile*, TensorEntry> last_in_place_;
  int64_t weight_bytes_ = 0, copied_bytes_ = 0;
  std::unique_ptr<HostLinearThreads> threads_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_HOST_MODULATION_H_
