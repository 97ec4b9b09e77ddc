// SPDX-License-Identifier: Apache-2.0
// Makes LibTorch's CPU tensors live in the host device's budget: counted by purpose, refused when
// the budget is spent.
#ifndef BLOCKSWAP_WORKER_KERNELS_DEVICE_MEMORY_H_
#define BLOCKSWAP_WORKER_KERNELS_DEVICE_MEMORY_H_

#include "offload/device/memory_ledger.h"

namespace blockswap::worker {

// While it lives, every CPU tensor allocated on any thread is charged to `ledger` under the
// thread's tag, and an allocation beyond the budget throws c10::OutOfMemoryError with the ledger's
// message (ResourceExhausted behind RunContained). Tensors that outlive it are no longer counted
// and may be freed at any time, on any thread. One at a time in a process.
class CountedHostMemory {
 public:
  explicit CountedHostMemory(offload::MemoryLedger* ledger);
  ~CountedHostMemory();
  CountedHostMemory(const CountedHostMemory&) = delete;
  CountedHostMemory& operator=(const CountedHostMemory&) = delete;
};

// What this thread's allocations are charged to while it lives; without one, kOther. Scopes nest.
class MemoryScope {
 public:
  explicit MemoryScope(offload::MemoryTag tag);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  int previous_;
};

// Exempts this thread's allocations while it lives: tensors of host-side work (files, checkpoints,
// images).
class HostMemoryScope {
 public:
  HostMemoryScope();
  ~HostMemoryScope();
  HostMemoryScope(const HostMemoryScope&) = delete;
  HostMemoryScope& operator=(const HostMemoryScope&) = delete;

 private:
  int previous_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_KERNELS_DEVICE_MEMORY_H_
