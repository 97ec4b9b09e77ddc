// SPDX-License-Identifier: Apache-2.0
// Stands in for cuda_device.cc in builds without CUDA.
#include "offload/device/cuda_device.h"

namespace blockswap::offload {

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(int /*ordinal*/) {
  return absl::UnimplementedError(
      "this build has no CUDA support; configure with BLOCKSWAP_WITH_CUDA=ON or choose device "
      "host");
}

}  // namespace blockswap::offload
