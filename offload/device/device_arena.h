// SPDX-License-Identifier: Apache-2.0
// A device arena that gives itself back, with its charge.
#ifndef BLOCKSWAP_OFFLOAD_DEVICE_DEVICE_ARENA_H_
#define BLOCKSWAP_OFFLOAD_DEVICE_DEVICE_ARENA_H_

#include <utility>

#include "absl/status/statusor.h"
#include "offload/device/device_runtime.h"

namespace blockswap::offload {

// Move-only; an empty arena holds nothing. REQUIRES: the device outlives it, no queued work uses it
// at destruction.
class DeviceArena {
 public:
  static absl::StatusOr<DeviceArena> Create(DeviceRuntime* device, int64_t bytes, MemoryTag tag) {
    if (bytes == 0) return DeviceArena();
    absl::StatusOr<DeviceSpan> span = device->AllocateArena(bytes, tag);
    if (!span.ok()) return span.status();
    return DeviceArena(device, *span, tag);
  }

  DeviceArena() = default;
  DeviceArena(DeviceArena&& other) noexcept { *this = std::move(other); }
  DeviceArena& operator=(DeviceArena&& other) noexcept {
    if (this != &other) {
      Reset();
      device_ = std::exchange(other.device_, nullptr);
      span_ = std::exchange(other.span_, DeviceSpan{});
      tag_ = other.tag_;
    }
    return *this;
  }
  ~DeviceArena() { Reset(); }

  int64_t bytes() const { return span_.bytes; }
  // REQUIRES: the range lies in the arena.
  DeviceSpan Sub(int64_t offset, int64_t bytes) const {
    return DeviceSpan{span_.data + offset, bytes};
  }

 private:
  DeviceArena(DeviceRuntime* device, DeviceSpan span, MemoryTag tag)
      : device_(device), span_(span), tag_(tag) {}

  void Reset() {
    if (device_ != nullptr) device_->FreeArena(span_, tag_);
    device_ = nullptr;
    span_ = DeviceSpan{};
  }

  DeviceRuntime* device_ = nullptr;
  DeviceSpan span_;
  MemoryTag tag_ = MemoryTag::kOther;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_DEVICE_DEVICE_ARENA_H_
