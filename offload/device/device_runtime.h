// SPDX-License-Identifier: Apache-2.0
// The seam between block swapping and a device: arenas, three streams, events, asynchronous copies, pinned host memory.
//
// Note [Streams of a device]
// A device has three streams: compute, host-to-device and device-to-host. Work on one stream runs in the order it was
// queued; streams are ordered among each other by events only: Record(event, stream) marks "all work queued on stream so
// far", Wait(stream, event) makes later work of a stream wait for that mark. A wait binds to the latest record made
// before the call, so the rule is record-before-wait in host order. On the host device the compute stream is the calling
// thread itself: Wait(kCompute, e) blocks it until e has happened and Record(e, kCompute) completes at once.
#ifndef BLOCKSWAP_OFFLOAD_DEVICE_DEVICE_RUNTIME_H_
#define BLOCKSWAP_OFFLOAD_DEVICE_DEVICE_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "offload/device/memory_ledger.h"

namespace blockswap::offload {

enum class DeviceKind { kHost, kCuda, kSimulated };
enum class Stream { kCompute, kHostToDevice, kDeviceToHost };
enum class CopyDirection { kHostToDevice, kDeviceToHost };

// An event handle; valid until DestroyEvent. Handles are pooled by the device, so creating one in a step is cheap.
using EventId = int64_t;
inline constexpr EventId kNoEvent = -1;

// Memory of the device. `data` is an address the device's kernels understand; only on devices with
// device_memory_is_host_visible() may the host dereference it.
struct DeviceSpan {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

struct DeviceFacts {
  DeviceKind kind = DeviceKind::kHost;
  std::string name;            // "host", "cuda:0"
  std::string description;     // "NVIDIA GeForce RTX 3090", "host memory, 2 cores"
  int64_t total_bytes = 0;     // of the device, or of the budget on the host device
  int64_t free_bytes = 0;      // free now, other processes considered
  int numa_node = -1;          // memory node nearest to the device; -1: unknown
};

// Copies as the device saw them, since creation. Busy is the time copies were in flight on that lane.
struct CopyCounters {
  int64_t bytes = 0;
  int64_t transfers = 0;
  absl::Duration busy;
};

// Thread safety: all methods from one thread (the trainer's), but copies() and ledger() from any, and Wait, the copies, Record
// and Synchronize on the copy streams also from one staging thread.
// Errors: the first asynchronous failure is sticky and is returned by every later call.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual DeviceFacts facts() const = 0;
  virtual MemoryLedger& ledger() = 0;
  virtual bool device_memory_is_host_visible() const = 0;
  // True when an asynchronous copy needs page-locked host memory (CUDA); the swapper stages pageable masters then.
  virtual bool copies_need_pinned_memory() const = 0;

  // Takes `bytes` of device memory, charged to `tag`, aligned to 256. ResourceExhausted when it does not fit the budget.
  virtual absl::StatusOr<DeviceSpan> AllocateArena(int64_t bytes, MemoryTag tag) = 0;
  // REQUIRES: `arena` came from AllocateArena with `tag` and no queued work uses it.
  virtual void FreeArena(DeviceSpan arena, MemoryTag tag) = 0;

  virtual absl::StatusOr<EventId> CreateEvent() = 0;
  virtual void DestroyEvent(EventId event) = 0;
  virtual absl::Status Record(EventId event, Stream stream) = 0;
  virtual absl::Status Wait(Stream stream, EventId event) = 0;
  // True when the last record of the event has happened (or it was never recorded). Never blocks.
  virtual bool IsComplete(EventId event) = 0;
  // Blocks the host until the last record of the event has happened.
  virtual absl::Status Synchronize(EventId event) = 0;
  virtual absl::Status SynchronizeStream(Stream stream) = 0;

  // Queues a copy on the lane of its direction (kHostToDevice or kDeviceToHost stream). Both ranges must stay valid until
  // an event recorded after it has happened.
  virtual absl::Status CopyToDevice(DeviceSpan destination, const std::byte* source) = 0;
  virtual absl::Status CopyToHost(std::byte* destination, DeviceSpan source) = 0;

  // Page-locks [data, data + bytes), both page aligned. ResourceExhausted when the system's limit refuses, with the limit.
  virtual absl::Status LockHostMemory(std::byte* data, int64_t bytes) = 0;
  virtual void UnlockHostMemory(std::byte* data, int64_t bytes) = 0;

  virtual CopyCounters copies(CopyDirection direction) const = 0;
  // Seconds the compute stream is known to have waited in Wait(kCompute, ...), as far as the device can tell.
  virtual absl::Duration compute_stall() const = 0;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_DEVICE_DEVICE_RUNTIME_H_
