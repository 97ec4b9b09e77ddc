// SPDX-License-Identifier: Apache-2.0
// Brings LibTorch's CUDA backend into a process that is linked without it, and ties its stream to
// the CUDA device.
#ifndef BLOCKSWAP_WORKER_TRAIN_CUDA_SESSION_H_
#define BLOCKSWAP_WORKER_TRAIN_CUDA_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "offload/device/device_runtime.h"
#include "worker/channel/reporter.h"

namespace blockswap::worker {

struct CudaSession {
  std::unique_ptr<offload::DeviceRuntime> runtime;
  at::Device device = at::kCPU;
};

// True when the driver's device files say that a GPU is there; loads nothing.
bool CudaIsPresent();

// Loads the CUDA backend, takes a stream of LibTorch's pool as the compute stream. Unavailable: no
// driver, no such device, or a LibTorch without CUDA, and which.
absl::StatusOr<CudaSession> OpenCudaSession(int ordinal, std::optional<int64_t> budget_bytes);

// Peak of what LibTorch's caching allocator took from the device.
int64_t CudaFrameworkBytesPeak(at::Device device);
// What it holds now, cached blocks included.
int64_t CudaFrameworkBytes(at::Device device);
// Of LibTorch's caching allocator, for reports.
AllocatorReport CudaAllocator(at::Device device);
void CudaResetPeaks(at::Device device);
// Gives cached blocks back to the device.
void CudaReleaseCached(at::Device device);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_CUDA_SESSION_H_
