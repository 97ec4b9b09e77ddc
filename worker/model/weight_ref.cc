// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "worker/model/dtype.h"
#include "worker/model/fp8_weight.h"
#include "worker/model/model.h"

namespace blockswap::worker {

at::Tensor WeightRef::Get() const {
  if (resident_ != nullptr) return *resident_;
  TORCH_CHECK(lease_ != nullptr && lease_->valid(),
              "a block's weight was asked for after its lease had ended");
  absl::StatusOr<offload::TensorLease> held = lease_->Hold(index_);
  TORCH_CHECK(held.ok(), std::string(held.status().message()));
  const offload::DeviceSpan span = held->span();
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type_));
  for (int64_t size : shape_) bytes *= size;
  if (fp8_.has_value()) bytes = Fp8ScaleOffset(*fp8_) + fp8_->scale_bytes();
  TORCH_CHECK(span.bytes == bytes, "tensor ", index_, " of a leased block has ", span.bytes,
              " bytes, its shape needs ", bytes);
  if (fp8_.has_value()) return WidenFp8Weight(span.data, *fp8_, shape_, type_, device_);
  const at::TensorOptions options = at::TensorOptions().dtype(type_).device(device_);
  if (!held->transient()) return at::from_blob(span.data, shape_, options);
  // The view owns the hold: the layer stays in the window until the operation that reads it is
  // queued and its last view is gone.
  auto owner = std::make_shared<offload::TensorLease>(*std::move(held));
  return at::from_blob(
      span.data, shape_, [owner](void*) { owner->Release(); }, options);
}

BlockWeights WeightsOfLease(const offload::BlockLease& lease, const DescribedBlock& block,
                            Dtype dtype, at::Device device) {
  BlockWeights weights;
  weights.tensors.reserve(block.tensors.size());
  const at::ScalarType type = ToScalarType(dtype);
  for (size_t i = 0; i < block.tensors.size(); ++i) {
    weights.tensors.emplace_back(&lease, static_cast<int>(i), block.tensors[i].shape, type, device);
    if (block.tensors[i].fp8.has_value()) weights.tensors.back().set_fp8(*block.tensors[i].fp8);
  }
  return weights;
}

}  // namespace blockswap::worker
