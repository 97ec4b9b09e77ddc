// SPDX-License-Identifier: Apache-2.0
#include "offload/host/pinned_arena.h"

#include <utility>

#include "offload/base/status_macros.h"
#include "offload/device/host_memory.h"
#include "offload/device/numa.h"

namespace blockswap::offload {

namespace {

// Before the first touch: placement binds pages that are not there yet.
void PlaceNearDevice(DeviceRuntime* device, std::byte* data, int64_t bytes) {
  static const int num_nodes = CountMemoryNodes();
  if (num_nodes <= 1) return;
  // A wrong node costs speed only.
  PreferNode(data, bytes, device->facts().numa_node).IgnoreError();
}

}  // namespace

absl::StatusOr<PinnedArena> PinnedArena::Create(DeviceRuntime* device, int64_t bytes, Lock lock) {
  if (bytes == 0) return PinnedArena();
  BLOCKSWAP_ASSIGN_OR_RETURN(std::byte* const data, MapPages(bytes));
  PinnedArena arena = Own(device, data, bytes);
  if (lock == Lock::kYes) BLOCKSWAP_RETURN_IF_ERROR(arena.LockPages());
  return arena;
}

absl::StatusOr<PinnedArena> PinnedArena::MapFile(DeviceRuntime* device, int fd, int64_t offset,
                                                 int64_t bytes, Lock lock) {
  if (bytes == 0) return PinnedArena();
  BLOCKSWAP_ASSIGN_OR_RETURN(std::byte* const data, MapSharedPages(fd, offset, bytes));
  PinnedArena arena = Own(device, data, bytes);
  // Now, with an answer: a page that cannot be had at its first touch would end the process.
  absl::Status populated = PopulatePages(data, bytes);
  if (absl::IsUnimplemented(populated)) populated = AllocateFilePages(fd, offset, bytes);
  BLOCKSWAP_RETURN_IF_ERROR(populated);
  if (lock == Lock::kYes) BLOCKSWAP_RETURN_IF_ERROR(arena.LockPages());
  return arena;
}

PinnedArena PinnedArena::Own(DeviceRuntime* device, std::byte* data, int64_t bytes) {
  PinnedArena arena;
  arena.device_ = device;
  arena.data_ = data;
  arena.bytes_ = bytes;
  PlaceNearDevice(device, data, bytes);
  return arena;
}

absl::Status PinnedArena::LockPages() {
  BLOCKSWAP_RETURN_IF_ERROR(device_->LockHostMemory(data_, PageCeil(bytes_)));
  locked_bytes_ = PageCeil(bytes_);
  return absl::OkStatus();
}

absl::Status PinnedArena::MakeReadOnly() {
  return data_ == nullptr ? absl::OkStatus() : offload::MakeReadOnly(data_, bytes_);
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
