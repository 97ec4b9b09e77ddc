// SPDX-License-Identifier: Apache-2.0
// The device a job trains on: opened by name, its memory counted against the budget, its speed
// measured.
#ifndef BLOCKSWAP_WORKER_TRAIN_DEVICE_SESSION_H_
#define BLOCKSWAP_WORKER_TRAIN_DEVICE_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "offload/device/device_runtime.h"
#include "offload/device/host_device.h"
#include "offload/swap/swap_stats.h"
#include "worker/channel/reporter.h"
#include "worker/config/job_inspection.h"
#include "worker/kernels/device_memory.h"

namespace blockswap::worker {

struct DeviceOptions {
  std::string device = "auto";  // "auto" (cuda:0 where there is one, else host), "host", "cuda:N"
  std::optional<int64_t> vram_budget_bytes;  // hard limit; absent: none but the device's own
  offload::HostDeviceOptions host;  // link speeds of the host device, for tests and benchmarks
};

// Owns: the device runtime and, on the host device, the counting of LibTorch's allocations. Thread
// safety: the trainer's thread.
class DeviceSession {
 public:
  // InvalidArgument for a name that is no device; Unavailable when it is none here, and why.
  static absl::StatusOr<std::unique_ptr<DeviceSession>> Open(const DeviceOptions& options);

  offload::DeviceRuntime* runtime() { return runtime_.get(); }
  at::Device device() const { return device_; }
  std::string description() const;  // "host (host memory, 2 cores)"

  // Facts for the planner: free memory, host limits, link and compute speed by short trials.
  absl::StatusOr<Machine> Measure();

  // Device bytes this job may use: what is free now and what it holds already, within its budget.
  int64_t AvailableBytes();
  // The same for everything a new plan is made from; speeds stay as measured.
  void Refresh(const offload::SwapStats& held, Machine* machine);
  // The hard limit of later allocations; absent: none but the device's own.
  void SetBudget(std::optional<int64_t> budget_bytes);
  std::optional<int64_t> budget_bytes();

  // Bytes LibTorch's own device allocator holds beyond the ledger; 0 on the host device, where the
  // ledger has them.
  int64_t framework_bytes() const;
  int64_t framework_bytes_peak() const;
  // The same in detail; nothing on the host device.
  std::optional<AllocatorReport> allocator() const;
  // The most that ledger and framework held since ResetPeaks.
  int64_t peak_bytes();
  void ResetPeaks();
  // Gives memory that the framework keeps for later back to the device.
  void ReleaseCached();

 private:
  DeviceSession(std::unique_ptr<offload::DeviceRuntime> runtime, at::Device device)
      : runtime_(std::move(runtime)), device_(device) {}

  std::unique_ptr<offload::DeviceRuntime> runtime_;
  at::Device device_;
  std::unique_ptr<CountedHostMemory> counted_;  // ends before the runtime whose ledger it charges
  offload::LinkProfile given_link_;             // of the options, where set
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_DEVICE_SESSION_H_
