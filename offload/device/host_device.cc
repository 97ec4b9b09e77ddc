// SPDX-License-Identifier: Apache-2.0
#include "offload/device/host_device.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/proc_file.h"
#include "offload/device/host_memory.h"
#include "offload/device/numa.h"

namespace blockswap::offload {

absl::StatusOr<std::unique_ptr<HostDevice>> HostDevice::Create(const HostDeviceOptions& options) {
  if (options.budget_bytes < 0 || options.h2d_bytes_per_second < 0 ||
      options.d2h_bytes_per_second < 0 || options.latency < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host device options must not be negative: budget ", options.budget_bytes, " bytes, h2d ",
        options.h2d_bytes_per_second, " B/s, d2h ", options.d2h_bytes_per_second, " B/s, latency ",
        absl::FormatDuration(options.latency)));
  }
  return std::unique_ptr<HostDevice>(new HostDevice(options));
}

HostDevice::HostDevice(const HostDeviceOptions& options)
    : options_(options),
      ledger_(options.budget_bytes),
      h2d_("bs-h2d", {options.h2d_bytes_per_second, options.latency}, &events_),
      d2h_("bs-d2h", {options.d2h_bytes_per_second, options.latency}, &events_) {
  ledger_.SetBeforeCharge(options.before_charge);
}

HostDevice::~HostDevice() {
  // Both before either is joined: one may wait for an event of the other.
  h2d_.Stop();
  d2h_.Stop();
}

DeviceFacts HostDevice::facts() const {
  DeviceFacts facts;
  facts.kind = DeviceKind::kHost;
  facts.name = "host";
  facts.numa_node = NodeOfThisThread();  // the trainer's, which starts the compute threads
  facts.description = absl::StrCat("host memory, ", std::thread::hardware_concurrency(), " cores");
  const int64_t available = base::ReadProcBytes("/proc/meminfo", "MemAvailable").value_or(0);
  const MemorySnapshot snapshot = ledger_.Snapshot();
  if (snapshot.budget_bytes == 0) {
    facts.total_bytes = base::ReadProcBytes("/proc/meminfo", "MemTotal").value_or(0);
    facts.free_bytes = available;
  } else {
    facts.total_bytes = snapshot.budget_bytes;
    facts.free_bytes = std::max<int64_t>(0, snapshot.budget_bytes - snapshot.total_bytes);
  }
  return facts;
}

absl::StatusOr<DeviceSpan> HostDevice::AllocateArena(int64_t bytes, MemoryTag tag) {
  if (bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("arena of ", bytes, " bytes"));
  }
  const absl::Status charged = ledger_.Charge(tag, bytes);
  if (!charged.ok()) return charged;
  absl::StatusOr<std::byte*> data = MapPages(bytes);
  if (!data.ok()) {
    ledger_.Release(tag, bytes);
    return data.status();
  }
  return DeviceSpan{*data, bytes};
}

void HostDevice::FreeArena(DeviceSpan arena, MemoryTag tag) {
  UnmapPages(arena.data, arena.bytes);
  ledger_.Release(tag, arena.bytes);
}

absl::Status HostDevice::Record(EventId event, Stream stream) {
  const EventMark mark = events_.BeginRecord(event);
  switch (stream) {
    case Stream::kCompute:
      events_.Complete(mark, std::chrono::steady_clock::now());
      break;
    case Stream::kHostToDevice:
      h2d_.QueueRecord(mark);
      break;
    case Stream::kDeviceToHost:
      d2h_.QueueRecord(mark);
      break;
  }
  return absl::OkStatus();
}

absl::Status HostDevice::Wait(Stream stream, EventId event) {
  const EventMark mark = events_.Latest(event);
  // What has happened already needs no queue item: the copies stay back to back.
  if (events_.HasHappened(mark)) return absl::OkStatus();
  switch (stream) {
    case Stream::kCompute: {
      const SteadyTime start = std::chrono::steady_clock::now();
      events_.Await(mark);
      const absl::Duration stalled = absl::FromChrono(std::chrono::steady_clock::now() - start);
      base::MutexLock lock(stall_mutex_);
      compute_stall_ += stalled;
      break;
    }
    case Stream::kHostToDevice:
      h2d_.QueueWait(mark);
      break;
    case Stream::kDeviceToHost:
      d2h_.QueueWait(mark);
      break;
  }
  return absl::OkStatus();
}

absl::Status HostDevice::Synchronize(EventId event) {
  events_.Await(events_.Latest(event));
  return absl::OkStatus();
}

absl::Status HostDevice::SynchronizeStream(Stream stream) {
  if (stream == Stream::kHostToDevice) h2d_.Synchronize();
  if (stream == Stream::kDeviceToHost) d2h_.Synchronize();
  return absl::OkStatus();
}

absl::Status HostDevice::CopyToDevice(DeviceSpan destination, const std::byte* source) {
  if (options_.h2d_source) source = options_.h2d_source(destination, source);
  h2d_.QueueCopy(destination.data, source, destination.bytes);
  return absl::OkStatus();
}

absl::Status HostDevice::CopyToHost(std::byte* destination, DeviceSpan source) {
  d2h_.QueueCopy(destination, source.data, source.bytes);
  return absl::OkStatus();
}

absl::Status HostDevice::LockHostMemory(std::byte* data, int64_t bytes) {
  return LockPages(data, bytes);
}

void HostDevice::UnlockHostMemory(std::byte* data, int64_t bytes) { UnlockPages(data, bytes); }

CopyCounters HostDevice::copies(CopyDirection direction) const {
  return direction == CopyDirection::kHostToDevice ? h2d_.counters() : d2h_.counters();
}

absl::Duration HostDevice::compute_stall() const {
  base::MutexLock lock(stall_mutex_);
  return compute_stall_;
}

}  // namespace blockswap::offload
