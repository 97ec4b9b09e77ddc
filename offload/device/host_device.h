// SPDX-License-Identifier: Apache-2.0
// A device made of host memory: a budget, a real out-of-memory error, and copy lanes with a
// settable speed.
#ifndef BLOCKSWAP_OFFLOAD_DEVICE_HOST_DEVICE_H_
#define BLOCKSWAP_OFFLOAD_DEVICE_HOST_DEVICE_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "offload/device/device_runtime.h"
#include "offload/device/host_lane.h"

namespace blockswap::offload {

struct HostDeviceOptions {
  int64_t budget_bytes = 0;         // of "device" memory; 0: no limit
  double h2d_bytes_per_second = 0;  // 0: as fast as memcpy
  double d2h_bytes_per_second = 0;
  absl::Duration latency = absl::ZeroDuration();  // of every copy
  // Makes the swapper stage pageable masters as it must on CUDA; nothing here needs it.
  bool copies_need_pinned_memory = false;
  // What goes wrong, in tests. See MemoryLedger::SetBeforeCharge.
  std::function<void(MemoryLedger&)> before_charge = nullptr;
  // What a copy to the device reads instead of its source.
  std::function<const std::byte*(DeviceSpan destination, const std::byte* source)> h2d_source =
      nullptr;
};

// Owns: two lane threads ("bs-h2d", "bs-d2h"). Thread safety: safe. See Note [Streams of a device]:
// the caller's thread is the compute stream, so Wait(kCompute) blocks, and the time it blocks is
// the compute stall.
class HostDevice final : public DeviceRuntime {
 public:
  static absl::StatusOr<std::unique_ptr<HostDevice>> Create(const HostDeviceOptions& options);
  ~HostDevice() override;

  DeviceFacts facts() const override;
  MemoryLedger& ledger() override { return ledger_; }
  bool device_memory_is_host_visible() const override { return true; }
  bool copies_need_pinned_memory() const override { return options_.copies_need_pinned_memory; }

  absl::StatusOr<DeviceSpan> AllocateArena(int64_t bytes, MemoryTag tag) override;
  void FreeArena(DeviceSpan arena, MemoryTag tag) override;

  absl::StatusOr<EventId> CreateEvent() override { return events_.Create(); }
  void DestroyEvent(EventId event) override { events_.Destroy(event); }
  absl::Status Record(EventId event, Stream stream) override;
  absl::Status Wait(Stream stream, EventId event) override;
  bool IsComplete(EventId event) override { return events_.IsComplete(event); }
  absl::Status Synchronize(EventId event) override;
  absl::Status SynchronizeStream(Stream stream) override;

  absl::Status CopyToDevice(DeviceSpan destination, const std::byte* source) override;
  absl::Status CopyToHost(std::byte* destination, DeviceSpan source) override;

  absl::Status LockHostMemory(std::byte* data, int64_t bytes) override;
  void UnlockHostMemory(std::byte* data, int64_t bytes) override;

  CopyCounters copies(CopyDirection direction) const override;
  absl::Duration compute_stall() const override;

 private:
  explicit HostDevice(const HostDeviceOptions& options);

  const HostDeviceOptions options_;
  mutable MemoryLedger ledger_;
  HostEventTable events_;
  mutable base::Mutex stall_mutex_;
  absl::Duration compute_stall_ ABSL_GUARDED_BY(stall_mutex_);
  HostLane h2d_;
  HostLane d2h_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_DEVICE_HOST_DEVICE_H_
