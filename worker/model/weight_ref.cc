// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <string>

#include "absl/status/statusor.h"
#include "worker/model/dtype.h"
#include "worker/model/model.h"

namespace blockswap::worker {

at::Tensor WeightRef::Get() const {
  if (resident_ != nullptr) return *resident_;
  TORCH_CHECK(lease_ != nullptr && lease_->valid(),
              "a block's weight was asked for after its lease had ended");
  const absl::StatusOr<offload::DeviceSpan> span = lease_->Get(index_);
  TORCH_CHECK(span.ok(), std::string(span.status().message()));
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type_));
  for (int64_t size : shape_) bytes *= size;
  TORCH_CHECK(span->bytes == bytes, "tensor ", index_, " of a leased block has ", span->bytes,
              " bytes, its shape needs ", bytes);
  return at::from_blob(span->data, shape_, at::TensorOptions().dtype(type_).device(device_));
}

BlockWeights WeightsOfLease(const offload::BlockLease& lease, const DescribedBlock& block,
                            Dtype dtype, at::Device device) {
  BlockWeights weights;
  weights.tensors.reserve(block.tensors.size());
  const at::ScalarType type = ToScalarType(dtype);
  for (size_t i = 0; i < block.tensors.size(); ++i) {
    weights.tensors.emplace_back(&lease, static_cast<int>(i), block.tensors[i].shape, type, device);
  }
  return weights;
}

}  // namespace blockswap::worker
