// SPDX-License-Identifier: Apache-2.0
// A CUDA card as a DeviceRuntime; no CUDA header is needed to include this.
#ifndef BLOCKSWAP_OFFLOAD_DEVICE_CUDA_DEVICE_H_
#define BLOCKSWAP_OFFLOAD_DEVICE_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "offload/device/device_runtime.h"

namespace blockswap::offload {

// Thread safety: the trainer's thread, and one staging thread for Wait, copies, Record and
// Synchronize on the copy streams. Errors: out of memory is an answer, everything else is sticky:
// the context is unusable and the process has to end.
class CudaDevice : public DeviceRuntime {
 public:
  // Unavailable when there is no such device or no driver; Unimplemented in a build without CUDA.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(int ordinal);

  // `stream` (a cudaStream_t) is where kernels are launched from now on, as a rule LibTorch's
  // current stream. Until the first call the device uses a stream of its own. REQUIRES: the stream
  // outlives its use here.
  virtual void SetComputeStream(void* stream) = 0;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_DEVICE_CUDA_DEVICE_H_
