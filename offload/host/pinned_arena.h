// SPDX-License-Identifier: Apache-2.0
// Host memory of exactly the asked size in whole pages, page-locked or not; no rounding allocator
// in between.
#ifndef BLOCKSWAP_OFFLOAD_HOST_PINNED_ARENA_H_
#define BLOCKSWAP_OFFLOAD_HOST_PINNED_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "offload/device/device_runtime.h"

namespace blockswap::offload {

// Move-only. Owns: the mapping and its page lock. REQUIRES: the device outlives it, no queued copy
// uses it at destruction.
class PinnedArena {
 public:
  enum class Lock { kYes, kNo };

  // ResourceExhausted when the memory or the lock is refused; nothing is left behind then. Zero
  // bytes: an empty arena.
  static absl::StatusOr<PinnedArena> Create(DeviceRuntime* device, int64_t bytes, Lock lock);

  // The same over pages of a file that other processes map too (offset page aligned). All of them
  // are there afterwards.
  static absl::StatusOr<PinnedArena> MapFile(DeviceRuntime* device, int fd, int64_t offset,
                                             int64_t bytes, Lock lock);

  // No write through this arena from now on; its page lock stays.
  absl::Status MakeReadOnly();

  PinnedArena() = default;
  PinnedArena(PinnedArena&& other) noexcept { *this = static_cast<PinnedArena&&>(other); }
  PinnedArena& operator=(PinnedArena&& other) noexcept;
  ~PinnedArena() { Reset(); }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }                // as asked
  int64_t locked_bytes() const { return locked_bytes_; }  // whole pages; 0 when pageable

 private:
  // Placed on the device's node, not touched yet.
  static PinnedArena Own(DeviceRuntime* device, std::byte* data, int64_t bytes);
  absl::Status LockPages();
  void Reset();

  DeviceRuntime* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t locked_bytes_ = 0;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_HOST_PINNED_ARENA_H_
