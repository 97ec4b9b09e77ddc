// SPDX-License-Identifier: Apache-2.0
// Host memory where saved block inputs wait between forward and backward, and the copies that take
// them there and back beside compute.
#ifndef BLOCKSWAP_WORKER_TRAIN_BOUNDARY_STORE_H_
#define BLOCKSWAP_WORKER_TRAIN_BOUNDARY_STORE_H_

#include <cstdint>
#include <deque>
#include <vector>

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offload/device/device_runtime.h"
#include "offload/host/pinned_arena.h"
#include "worker/model/model.h"

namespace blockswap::worker {

struct BoundaryCounters {
  int64_t d2h_bytes = 0, h2d_bytes = 0;  // COUNT: bytes handed to the lanes
  int64_t d2h_transfers = 0, h2d_transfers = 0;
};

// Note [Boundaries away]
// An entry is one micro-batch's inputs of one block. Down: d2h waits for compute (the input is
// made), copies, records `down`; compute waits for `down` before the device memory goes back to
// LibTorch, whose allocator gives it to later kernels of the compute stream only. Up: memory that
// LibTorch has just given out may still be read by kernels queued before, so h2d waits for compute,
// then copies and records `up`; compute waits for `up` before it reads. A host buffer is written
// again only by a later step's Save, whose copy waits for compute, which has waited for `up`.
//
// Owns: the host buffers and the events. Thread safety: the trainer's thread. Errors: the device's;
// ResourceExhausted when the host has no more memory.
class BoundaryStore {
 public:
  // `runtime` outlives the store. `lock`: page-lock the buffers where the system allows it.
  BoundaryStore(offload::DeviceRuntime* runtime, bool lock) : runtime_(runtime), lock_(lock) {}
  ~BoundaryStore();
  BoundaryStore(const BoundaryStore&) = delete;
  BoundaryStore& operator=(const BoundaryStore&) = delete;

  // Host bytes that `streams` take, padding included.
  static int64_t EntryBytes(const Streams& streams);

  // Room for `entries` of `bytes` each; what is there already is kept when it is enough.
  // REQUIRES: nothing is saved.
  absl::Status Reserve(int64_t entries, int64_t bytes);

  // Takes `streams` over and starts their way down. Up to `in_flight` entries keep their device
  // memory until their copy is done; one more makes compute wait for the oldest.
  absl::Status Save(int64_t entry, Streams streams, int64_t in_flight);
  // Starts the way back. Nothing to do for an entry that is still on the device.
  absl::Status Fetch(int64_t entry);
  // The same bits in the same layout; compute waits for them. Fetches where nobody has.
  absl::StatusOr<Streams> Take(int64_t entry);
  // Forgets everything saved, after its copies: what a walk that ended early does.
  void Clear();

  const BoundaryCounters& counters() const { return counters_; }
  int64_t host_bytes() const { return arena_.bytes(); }
  int64_t locked_bytes() const { return arena_.locked_bytes(); }

 private:
  enum class State { kEmpty, kGoingDown, kAway, kComingUp };
  struct Part {
    std::vector<int64_t> sizes, strides;
    at::ScalarType type = at::ScalarType::Float;
    int64_t offset = 0;  // in the entry's host buffer
    int64_t bytes = 0;
  };
  struct Entry {
    State state = State::kEmpty;
    std::vector<Part> parts;
    Streams streams;  // on the device; empty while away
    offload::EventId down = offload::kNoEvent, up = offload::kNoEvent;
  };

  absl::Status CreateEvents();
  absl::Status StartDown(Entry* entry, std::byte* host);
  absl::Status Retire();  // the oldest entry on its way down
  std::byte* HostData(int64_t entry) const { return arena_.data() + entry * entry_bytes_; }

  offload::DeviceRuntime* const runtime_;
  const bool lock_;
  offload::PinnedArena arena_;
  int64_t entry_bytes_ = 0;
  std::vector<Entry> entries_;
  std::deque<int64_t> going_down_;
  offload::EventId compute_ = offload::kNoEvent;
  at::Device device_ = at::kCPU;  // of what was saved
  BoundaryCounters counters_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_BOUNDARY_STORE_H_
