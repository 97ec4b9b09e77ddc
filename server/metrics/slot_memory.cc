// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/slot_memory.h"

#include <algorithm>

#include "server/metrics/metric_parts.h"

namespace blockswap::server {
namespace {

// The worker's ledger knows these.
constexpr const char* kPurposes[] = {"ring",      "resident_blocks", "edge_weights", "adapter",
                                     "optimizer", "activations",     "other"};

std::string KnownPurpose(const std::string& name) {
  const bool known = std::any_of(std::begin(kPurposes), std::end(kPurposes),
                                 [&name](const char* purpose) { return name == purpose; });
  return known ? name : "other";
}

int64_t Sum(const std::map<std::string, int64_t>& bytes) {
  int64_t sum = 0;
  for (const auto& [name, value] : bytes) sum += value;
  return sum;
}

double Grown(int64_t now, int64_t before) {
  return now > before ? static_cast<double>(now - before) : 0;
}

// A kind that was never other than 0 has no series: sixteen slots of them are hundreds.
void SetGauge(prometheus::Family<prometheus::Gauge>& family, const MetricLabels& labels,
              int64_t bytes, std::set<prometheus::Gauge*>& gauges) {
  if (bytes == 0 && !family.Has(labels)) return;
  prometheus::Gauge& gauge = family.Add(labels);
  gauge.Set(static_cast<double>(bytes));
  gauges.insert(&gauge);
}

}  // namespace

SlotMemory::SlotMemory(prometheus::Registry& registry)
    : device_(RegisterGauge(registry, "blockswap_worker_device_memory_bytes",
                            "Device memory of the worker as its allocators see it.")),
      device_peak_(RegisterGauge(registry, "blockswap_worker_device_memory_peak_bytes",
                                 "Peak device memory of the slot's last attempt.")),
      purpose_(RegisterGauge(registry, "blockswap_worker_device_memory_use_bytes",
                             "Device memory the worker has allocated, by purpose.")),
      purpose_peak_(RegisterGauge(registry, "blockswap_worker_device_memory_use_peak_bytes",
                                  "Peak of each purpose by itself in the slot's last attempt.")),
      plan_(RegisterGauge(registry, "blockswap_worker_memory_plan_bytes",
                          "Memory the plan predicts, by place and purpose.")),
      budget_(RegisterGauge(registry, "blockswap_worker_device_memory_budget_bytes",
                            "Device memory the worker may use.")),
      host_(RegisterGauge(registry, "blockswap_worker_host_memory_bytes",
                          "Host memory of the worker, by kind; kinds overlap.")),
      pin_fallback_(RegisterGauge(registry, "blockswap_worker_pin_fallback",
                                  "1 when host memory could not be locked and copies are staged.")),
      allocator_events_(RegisterCounter(registry, "blockswap_worker_allocator_events_total",
                                        "Events of LibTorch's caching allocator.")) {}

void SlotMemory::WorkerStarted(const std::string& slot_name) {
  base::MutexLock lock(mutex_);
  Slot& slot = slots_[slot_name];
  slot.last = AllocatorStats{};
  slot.reserved_bytes = slot.pinned_bytes = slot.locked_bytes = 0;
  for (prometheus::Gauge* peak : slot.peaks) peak->Set(0);
}

void SlotMemory::WorkerEnded(const std::string& slot_name) {
  base::MutexLock lock(mutex_);
  Slot& slot = slots_[slot_name];
  slot.reserved_bytes = slot.pinned_bytes = slot.locked_bytes = 0;
  for (prometheus::Gauge* gauge : slot.now) gauge->Set(0);
}

void SlotMemory::ByPurpose(Gauges& family, const std::string& slot, const ByName& bytes,
                           std::set<prometheus::Gauge*>& gauges) {
  ByName known;
  for (const auto& [purpose, value] : bytes) known[KnownPurpose(purpose)] += value;
  for (const auto& [purpose, value] : known) {
    SetGauge(family, {{"slot", slot}, {"purpose", purpose}}, value, gauges);
  }
}

void SlotMemory::Plan(const std::string& slot, const MemoryUpdate& memory) {
  std::set<prometheus::Gauge*>& now = slots_[slot].now;
  const auto set = [&](const std::string& where, const std::string& what, int64_t bytes) {
    SetGauge(plan_, {{"slot", slot}, {"where", where}, {"what", what}}, bytes, now);
  };
  ByName device;
  for (const auto& [purpose, bytes] : memory.planned_bytes) device[KnownPurpose(purpose)] += bytes;
  for (const auto& [purpose, bytes] : device) set("device", purpose, bytes);
  for (const auto& [place, bytes] : memory.host_planned_bytes) {
    if (place == "pinned" || place == "pageable") set(place, "weights", bytes);
    if (place == "file") set("disk", "weights", bytes);
    if (place == "activations") set("pinned", "activations", bytes);
  }
}

void SlotMemory::Device(const std::string& slot_name, const MemoryUpdate& memory) {
  Slot& slot = slots_[slot_name];
  const auto set = [&](Gauges& family, const char* kind, int64_t bytes, auto& gauges) {
    SetGauge(family, {{"slot", slot_name}, {"kind", kind}}, bytes, gauges);
  };
  const AllocatorStats& allocator = memory.allocator.value_or(AllocatorStats{});
  const int64_t ledger = Sum(memory.allocated_bytes);
  set(device_, "allocated", ledger + allocator.allocated_bytes, slot.now);
  // The ledger counts what was taken from the device itself, to the byte.
  slot.reserved_bytes = ledger + allocator.reserved_bytes;
  if (memory.allocator.has_value()) {
    set(device_, "active", ledger + allocator.active_bytes, slot.now);
    set(device_, "reserved", slot.reserved_bytes, slot.now);
    const auto count = [&](const char* event, int64_t grown_to, int64_t before) {
      allocator_events_.Add({{"slot", slot_name}, {"event", event}})
          .Increment(Grown(grown_to, before));
    };
    count("retry", allocator.retries, slot.last.retries);
    count("oom", allocator.out_of_memory, slot.last.out_of_memory);
    count("segment_alloc", allocator.segments_allocated, slot.last.segments_allocated);
    count("segment_free", allocator.segments_freed, slot.last.segments_freed);
    slot.last = allocator;
  }
}

void SlotMemory::Report(const std::string& slot_name, const MemoryUpdate& memory) {
  base::MutexLock lock(mutex_);
  Slot& slot = slots_[slot_name];
  ByPurpose(purpose_, slot_name, memory.allocated_bytes, slot.now);
  ByPurpose(purpose_peak_, slot_name, memory.peak_bytes, slot.peaks);
  Plan(slot_name, memory);
  Device(slot_name, memory);
  SetGauge(budget_, {{"slot", slot_name}}, memory.device_budget_bytes, slot.now);
  const auto set_host = [&](const char* kind, int64_t bytes) {
    SetGauge(host_, {{"slot", slot_name}, {"kind", kind}}, bytes, slot.now);
  };
  set_host("rss", memory.host_rss_bytes);
  set_host("pinned", memory.host_pinned_bytes);
  set_host("masters", memory.host_master_bytes);
  set_host("locked", memory.host_locked_bytes);
  set_host("shared", memory.host_shared_bytes);
  slot.pinned_bytes = memory.host_pinned_bytes;
  slot.locked_bytes = memory.host_locked_bytes;
  pin_fallback_.Add({{"slot", slot_name}}).Set(memory.pinning_fell_back ? 1 : 0);
}

void SlotMemory::Peak(const std::string& slot_name, int64_t bytes) {
  base::MutexLock lock(mutex_);
  Slot& slot = slots_[slot_name];
  prometheus::Gauge& gauge = device_peak_.Add({{"slot", slot_name}, {"kind", "reserved"}});
  gauge.Set(std::max(static_cast<double>(bytes), gauge.Value()));
  slot.peaks.insert(&gauge);
}

void SlotMemory::Process(const std::string& slot_name, const ProcessMemory& memory) {
  base::MutexLock lock(mutex_);
  Slot& slot = slots_[slot_name];
  const auto set = [&](const char* kind, int64_t bytes) {
    SetGauge(host_, {{"slot", slot_name}, {"kind", kind}}, bytes, slot.now);
  };
  set("rss", memory.resident_bytes);
  set("anon", memory.anonymous_bytes);
  set("file", memory.file_bytes);
  set("shmem", memory.shared_bytes);
  set("locked", memory.locked_bytes);
  slot.locked_bytes = memory.locked_bytes;
}

void SlotMemory::DeviceTotal(const std::string& slot_name, int64_t process_bytes) {
  base::MutexLock lock(mutex_);
  Slot& slot = slots_[slot_name];
  if (slot.reserved_bytes == 0) return;  // the worker has not reported yet
  SetGauge(device_, {{"slot", slot_name}, {"kind", "non_allocator"}},
           std::max<int64_t>(0, process_bytes - slot.reserved_bytes), slot.now);
}

int64_t SlotMemory::PinnedBytes() const {
  base::MutexLock lock(mutex_);
  int64_t sum = 0;
  for (const auto& [name, slot] : slots_) sum += std::max(slot.pinned_bytes, slot.locked_bytes);
  return sum;
}

}  // namespace blockswap::server
