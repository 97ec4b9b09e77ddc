// SPDX-License-Identifier: Apache-2.0
// The memory of each slot's worker as metrics: what it takes, what was planned, and at most.
#ifndef BLOCKSWAP_SERVER_METRICS_SLOT_MEMORY_H_
#define BLOCKSWAP_SERVER_METRICS_SLOT_MEMORY_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"
#include "server/supervisor/worker_update.h"

namespace blockswap::server {

// Host memory of a worker as the kernel counts it.
struct ProcessMemory {
  int64_t resident_bytes = 0, anonymous_bytes = 0, file_bytes = 0, shared_bytes = 0;
  int64_t locked_bytes = 0;
};

// Gauges of the moment are 0 without a worker; peaks stay until the slot's next attempt. A name the
// worker sends that is not on our list counts as "other": labels come from fixed sets.
// Thread safety: safe.
class SlotMemory final {
 public:
  explicit SlotMemory(prometheus::Registry& registry);

  void WorkerStarted(const std::string& slot);
  void WorkerEnded(const std::string& slot);
  // What the worker reports.
  void Report(const std::string& slot, const MemoryUpdate& memory);
  // The most that a step took.
  void Peak(const std::string& slot, int64_t bytes);
  // What the kernel and the driver say about its process, which it need not know.
  void Process(const std::string& slot, const ProcessMemory& memory);
  void DeviceTotal(const std::string& slot, int64_t process_bytes);

  // Of all slots, as last told: what workers say they have pinned or the kernel has locked for
  // them.
  int64_t PinnedBytes() const;

 private:
  struct Slot {
    AllocatorStats last;
    int64_t reserved_bytes = 0, pinned_bytes = 0, locked_bytes = 0;
    std::set<prometheus::Gauge*> now;    // of the moment
    std::set<prometheus::Gauge*> peaks;  // stay to be read until the next attempt
  };
  using Gauges = prometheus::Family<prometheus::Gauge>;
  using ByName = std::map<std::string, int64_t>;

  void ByPurpose(Gauges& family, const std::string& slot, const ByName& bytes,
                 std::set<prometheus::Gauge*>& gauges) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Plan(const std::string& slot, const MemoryUpdate& memory)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Device(const std::string& slot, const MemoryUpdate& memory)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Gauges &device_, &device_peak_, &purpose_, &purpose_peak_, &plan_, &budget_, &host_,
      &pin_fallback_;
  prometheus::Family<prometheus::Counter>& allocator_events_;

  mutable base::Mutex mutex_;
  std::map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_SLOT_MEMORY_H_
