// SPDX-License-Identifier: Apache-2.0
// The job's number type as LibTorch's.
#ifndef BLOCKSWAP_WORKER_MODEL_DTYPE_H_
#define BLOCKSWAP_WORKER_MODEL_DTYPE_H_

#include <ATen/core/Tensor.h>

#include "worker/config/train_config.h"

namespace blockswap::worker {

inline at::ScalarType ToScalarType(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return at::ScalarType::Float;
    case Dtype::kBFloat16:
      return at::ScalarType::BFloat16;
    case Dtype::kFloat16:
      return at::ScalarType::Half;
  }
  TORCH_CHECK(false, "unknown number type");
}

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_DTYPE_H_
