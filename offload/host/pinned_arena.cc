// SPDX-License-Identifier: Apache-2.0
#include "offload/host/pinned_arena.h"

#include <utility>

#include "offload/base/status_macros.h"
#include "offload/device/host_memory.h"

namespace blockswap::offload {

absl::StatusOr<PinnedArena> PinnedArena::Create(DeviceRuntime* device, int64_t bytes, Lock lock) {
  PinnedArena arena;
  if (bytes == 0) return arena;
  BLOCKSWAP_ASSIGN_OR_RETURN(arena.data_, MapPages(bytes));
  arena.device_ = device;
  arena.bytes_ = bytes;
  if (lock == Lock::kYes) {
    BLOCKSWAP_RETURN_IF_ERROR(device->LockHostMemory(arena.data_, PageCeil(bytes)));
    arena.locked_bytes_ = PageCeil(bytes);
  }
  return arena;
}

PinnedArena& PinnedArena::operator=(PinnedArena&& other) noexcept {
  if (this != &other) {
    Reset();
    device_ = std::exchange(other.device_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    locked_bytes_ = std::exchange(other.locked_bytes_, 0);
  }
  return *this;
}

void PinnedArena::Reset() {
  if (locked_bytes_ > 0) device_->UnlockHostMemory(data_, locked_bytes_);
  if (data_ != nullptr) UnmapPages(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
  locked_bytes_ = 0;
}

}  // namespace blockswap::offload
