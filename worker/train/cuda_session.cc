// SPDX-License-Identifier: Apache-2.0
#include "worker/train/cuda_session.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "offload/device/cuda_device.h"
#include "worker/kernels/torch_boundary.h"

namespace blockswap::worker {
namespace {

// LibTorch caps its own allocator by a fraction of the card. It reads the variable when its backend
// is loaded.
void CapFrameworkMemory(int64_t budget_bytes, int64_t total_bytes) {
  const double fraction =
      std::min(1.0, static_cast<double>(budget_bytes) / static_cast<double>(total_bytes));
  setenv("PYTORCH_ALLOC_CONF",
         absl::StrFormat("per_process_memory_fraction:%.6f", fraction).c_str(), /*overwrite=*/1);
}

// The backend lies beside the LibTorch that this process runs with, wherever that is installed.
std::string BackendPath() {
  Dl_info torch = {};
  if (dladdr(reinterpret_cast<void*>(&at::globalContext), &torch) == 0) return "libtorch_cuda.so";
  return (std::filesystem::path(torch.dli_fname).parent_path() / "libtorch_cuda.so").string();
}

absl::Status LoadBackend() {
  const std::string path = BackendPath();
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot load LibTorch's CUDA backend: ", dlerror()));
  }
  if (!at::hasCUDA())
    return absl::UnavailableError(
        "LibTorch's CUDA backend is loaded but finds no usable driver or device");
  return absl::OkStatus();
}

c10::CachingAllocator::Stat ReservedBytes(at::Device device) {
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

}  // namespace

bool CudaIsPresent() { return access("/dev/nvidiactl", R_OK | W_OK) == 0; }

absl::StatusOr<CudaSession> OpenCudaSession(int ordinal, std::optional<int64_t> budget_bytes) {
  BLOCKSWAP_ASSIGN_OR_RETURN(std::unique_ptr<offload::CudaDevice> runtime,
                             offload::CudaDevice::Create(ordinal));
  if (budget_bytes.has_value()) {
    runtime->ledger().SetBudget(*budget_bytes);
    CapFrameworkMemory(*budget_bytes, runtime->facts().total_bytes);
  }
  CudaSession session;
  session.device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(ordinal));
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    BLOCKSWAP_RETURN_IF_ERROR(LoadBackend());
    at::globalContext().lazyInitDevice(at::kCUDA);
    const c10::impl::VirtualGuardImpl guard(at::kCUDA);
    guard.setDevice(session.device);
    // Never the default stream: it synchronises with everything.
    const c10::Stream stream = guard.getStreamFromGlobalPool(session.device);
    guard.exchangeStream(stream);
    runtime->SetComputeStream(guard.getStreamNativeHandle(stream));
    return absl::OkStatus();
  }));
  session.runtime = std::move(runtime);
  return session;
}

int64_t CudaFrameworkBytesPeak(at::Device device) { return ReservedBytes(device).peak; }

int64_t CudaFrameworkBytes(at::Device device) { return ReservedBytes(device).current; }

AllocatorReport CudaAllocator(at::Device device) {
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  AllocatorReport report;
  report.allocated_bytes = stats.allocated_bytes[kAll].current;
  report.active_bytes = stats.active_bytes[kAll].current;
  report.reserved_bytes = stats.reserved_bytes[kAll].current;
  report.retries = stats.num_alloc_retries;
  report.out_of_memory = stats.num_ooms;
  report.segments_allocated = stats.num_device_alloc;
  report.segments_freed = stats.num_device_free;
  return report;
}

void CudaResetPeaks(at::Device device) {
  c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

void CudaReleaseCached(at::Device device) {
  c10::getDeviceAllocator(device.type())->emptyCache();
}

}  // namespace blockswap::worker
