// SPDX-License-Identifier: Apache-2.0
#include "offload/device/simulated_device.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "offload/device/host_memory.h"

namespace blockswap::offload {
namespace {

constexpr int kRubbish = 0xA5;  // no weight of the tests is made of it

const char* StreamName(Stream stream) {
  switch (stream) {
    case Stream::kCompute:
      return "compute";
    case Stream::kHostToDevice:
      return "h2d";
    case Stream::kDeviceToHost:
      return "d2h";
  }
  return "unknown";
}

const char* KindName(AccessKind kind) { return kind == AccessKind::kRead ? "read" : "write"; }

template <typename Clock>
void Join(Clock& into, const Clock& from) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

bool Overlap(const SimulatedAccess& a, const SimulatedAccess& b) {
  return a.begin < b.end && b.begin < a.end;
}

bool Covers(const SimulatedAccess& outer, const SimulatedAccess& inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

}  // namespace

SimulatedDevice::SimulatedDevice(const SimulatedDeviceOptions& options)
    : options_(options), ledger_(options.budget_bytes), random_(options.seed) {}

SimulatedDevice::~SimulatedDevice() = default;

bool SimulatedDevice::Passes(int& calls, int failing) { return ++calls != failing; }

absl::Status SimulatedDevice::Fail(const std::string& what) {
  const absl::Status failure = absl::InternalError(absl::StrCat("simulated device: ", what));
  failure_.Update(failure);
  pending_.clear();  // lost, and nobody may wait for them: their memory can go at any time now
  return options_.failures.asynchronous ? absl::OkStatus() : failure;
}

absl::Status SimulatedDevice::Enter() {
  host_.time += options_.host_call;
  return failure_;
}

SimulatedDevice::Operation SimulatedDevice::Queue(Stream stream, absl::Duration duration) {
  StreamState& queue = state(stream);
  Join(queue.clock, host_.clock);
  const size_t index = static_cast<size_t>(stream);
  Operation operation{.stream = stream, .number = ++queue.clock[index]};
  operation.start = std::max(queue.time, host_.time);
  operation.finish = operation.start + duration;
  queue.time = operation.finish;
  return operation;
}

absl::Status SimulatedDevice::Track(const Operation& operation, AccessKind kind,
                                    const std::byte* data, int64_t bytes) {
  const SimulatedAccess access{operation.stream, kind, data, data + bytes, operation.start,
                               operation.finish};
  const Clock& clock = state(operation.stream).clock;
  absl::Status status;
  for (const TrackedAccess& earlier : tracked_) {
    if (!Overlap(earlier.access, access)) continue;
    if (kind == AccessKind::kRead && earlier.access.kind == AccessKind::kRead) continue;
    if (clock[static_cast<size_t>(earlier.access.stream)] >= earlier.operation) continue;
    violations_.push_back(absl::StrCat(
        StreamName(operation.stream), " ", KindName(kind), " ", operation.number, " of ", bytes,
        " bytes is not ordered behind ", StreamName(earlier.access.stream), " ",
        KindName(earlier.access.kind), " ", earlier.operation));
    status.Update(absl::InternalError(violations_.back()));
  }
  // An access that this one covers and is ordered behind cannot conflict with anything this one
  // does not.
  tracked_.erase(std::remove_if(tracked_.begin(), tracked_.end(),
                                [&](const TrackedAccess& earlier) {
                                  const bool same_reader =
                                      earlier.access.stream == operation.stream &&
                                      earlier.access.kind == AccessKind::kRead;
                                  return Covers(access, earlier.access) &&
                                         (kind == AccessKind::kWrite || same_reader);
                                }),
                 tracked_.end());
  tracked_.push_back({access, operation.number});
  accesses_.push_back(access);
  return status;
}

void SimulatedDevice::ApplyCopiesBefore(const Clock& clock) {
  std::deque<PendingCopy> later;
  for (const PendingCopy& copy : pending_) {
    if (clock[static_cast<size_t>(copy.stream)] >= copy.operation) {
      std::memcpy(copy.destination, copy.source, static_cast<size_t>(copy.bytes));
    } else {
      later.push_back(copy);
    }
  }
  pending_.swap(later);
}

void SimulatedDevice::HostCatchesUp(const Clock& clock, absl::Duration time) {
  Join(host_.clock, clock);
  host_.time = std::max(host_.time, time);
  ApplyCopiesBefore(host_.clock);
}

absl::Status SimulatedDevice::NoteComputeUse(DeviceSpan span, absl::Duration duration,
                                             AccessKind kind) {
  base::MutexLock lock(mutex_);
  const Operation operation = Queue(Stream::kCompute, duration);
  const StreamState& compute = state(Stream::kCompute);
  ApplyCopiesBefore(compute.clock);
  const absl::Status status = Track(operation, kind, span.data, span.bytes);
  if (options_.host_follows_compute) HostCatchesUp(compute.clock, compute.time);
  return status;
}

absl::Status SimulatedDevice::Copy(Stream stream, std::byte* destination, const std::byte* source,
                                   int64_t bytes) {
  base::MutexLock lock(mutex_);
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  if (!Passes(calls_.copy, options_.failures.copy)) {
    return Fail(absl::StrCat("copy ", calls_.copy, " failed"));
  }
  const bool to_device = stream == Stream::kHostToDevice;
  const double rate = to_device ? options_.h2d_bytes_per_second : options_.d2h_bytes_per_second;
  const double slower = std::uniform_real_distribution<double>(1.0, 1.0 + options_.jitter)(random_);
  const absl::Duration duration =
      slower * (options_.latency + absl::Seconds(static_cast<double>(bytes) / rate));
  const Operation operation = Queue(stream, duration);
  CopyCounters& counters = copies_[to_device ? 0 : 1];
  counters.bytes += bytes;
  ++counters.transfers;
  counters.busy += duration;
  // Violations are kept in the list; a real device would not notice either.
  Track(operation, AccessKind::kRead, source, bytes).IgnoreError();
  Track(operation, AccessKind::kWrite, destination, bytes).IgnoreError();
  Clock before = state(stream).clock;
  --before[static_cast<size_t>(stream)];
  ApplyCopiesBefore(before);
  if (options_.late_copies && random_() % 2 == 0) {
    std::memset(destination, kRubbish, static_cast<size_t>(bytes));
    pending_.push_back({stream, operation.number, destination, source, bytes});
  } else {
    std::memcpy(destination, source, static_cast<size_t>(bytes));
  }
  return absl::OkStatus();
}

absl::Status SimulatedDevice::CopyToDevice(DeviceSpan destination, const std::byte* source) {
  return Copy(Stream::kHostToDevice, destination.data, source, destination.bytes);
}

absl::Status SimulatedDevice::CopyToHost(std::byte* destination, DeviceSpan source) {
  return Copy(Stream::kDeviceToHost, destination, source.data, source.bytes);
}

absl::StatusOr<EventId> SimulatedDevice::CreateEvent() {
  base::MutexLock lock(mutex_);
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  if (!Passes(calls_.event, options_.failures.event)) {
    return absl::ResourceExhaustedError("simulated device: no more events");
  }
  if (!free_events_.empty()) {
    const EventId event = free_events_.back();
    free_events_.pop_back();
    events_[static_cast<size_t>(event)] = EventState{};
    return event;
  }
  events_.emplace_back();
  return static_cast<EventId>(events_.size()) - 1;
}

void SimulatedDevice::DestroyEvent(EventId event) {
  base::MutexLock lock(mutex_);
  free_events_.push_back(event);
}

absl::Status SimulatedDevice::Record(EventId event, Stream stream) {
  base::MutexLock lock(mutex_);
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  if (!Passes(calls_.record, options_.failures.record)) {
    return Fail(absl::StrCat("record ", calls_.record, " failed"));
  }
  StreamState& queue = state(stream);
  Join(queue.clock, host_.clock);
  events_[static_cast<size_t>(event)] = {queue.clock, std::max(queue.time, host_.time)};
  return absl::OkStatus();
}

absl::Status SimulatedDevice::Wait(Stream stream, EventId event) {
  base::MutexLock lock(mutex_);
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  if (!Passes(calls_.wait, options_.failures.wait)) {
    return Fail(absl::StrCat("wait ", calls_.wait, " failed"));
  }
  StreamState& queue = state(stream);
  const EventState& awaited = events_[static_cast<size_t>(event)];
  Join(queue.clock, awaited.clock);
  const absl::Duration idle_from = std::max(queue.time, host_.time);
  if (stream == Stream::kCompute && awaited.time > idle_from) {
    compute_stall_ += awaited.time - idle_from;
  }
  queue.time = std::max(queue.time, awaited.time);
  if (stream == Stream::kCompute && options_.host_follows_compute) {
    HostCatchesUp(queue.clock, queue.time);
  }
  return absl::OkStatus();
}

bool SimulatedDevice::IsComplete(EventId event) {
  base::MutexLock lock(mutex_);
  host_.time += options_.host_call;
  const EventState state = events_[static_cast<size_t>(event)];
  if (state.time > host_.time) return false;
  HostCatchesUp(state.clock, state.time);
  return true;
}

absl::Status SimulatedDevice::Synchronize(EventId event) {
  base::MutexLock lock(mutex_);
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  const EventState state = events_[static_cast<size_t>(event)];
  HostCatchesUp(state.clock, state.time);
  return absl::OkStatus();
}

absl::Status SimulatedDevice::SynchronizeStream(Stream stream) {
  base::MutexLock lock(mutex_);
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  const StreamState queue = state(stream);
  HostCatchesUp(queue.clock, queue.time);
  return absl::OkStatus();
}

absl::StatusOr<DeviceSpan> SimulatedDevice::AllocateArena(int64_t bytes, MemoryTag tag) {
  base::MutexLock lock(mutex_);
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  if (!Passes(calls_.arena, options_.failures.arena)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("simulated device: arena ", calls_.arena, " of ", bytes, " bytes refused"));
  }
  BLOCKSWAP_RETURN_IF_ERROR(ledger_.Charge(tag, bytes));
  absl::StatusOr<std::byte*> data = MapPages(bytes);
  if (!data.ok()) {
    ledger_.Release(tag, bytes);
    return data.status();
  }
  std::memset(*data, kRubbish, static_cast<size_t>(bytes));
  return DeviceSpan{*data, bytes};
}

void SimulatedDevice::FreeArena(DeviceSpan arena, MemoryTag tag) {
  base::MutexLock lock(mutex_);
  const auto inside = [&](const TrackedAccess& tracked) {
    return tracked.access.begin < arena.data + arena.bytes && arena.data < tracked.access.end;
  };
  tracked_.erase(std::remove_if(tracked_.begin(), tracked_.end(), inside), tracked_.end());
  UnmapPages(arena.data, arena.bytes);
  ledger_.Release(tag, arena.bytes);
}

absl::Status SimulatedDevice::LockHostMemory(std::byte* /*data*/, int64_t bytes) {
  base::MutexLock lock(mutex_);
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  if (!Passes(calls_.lock, options_.failures.lock) ||
      bytes > options_.lockable_bytes - locked_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("page-locked host memory refused: asked ", bytes, " bytes, locked ",
                     locked_bytes_, ", limit ", options_.lockable_bytes, "; lower blocks_to_swap"));
  }
  locked_bytes_ += bytes;
  return absl::OkStatus();
}

void SimulatedDevice::UnlockHostMemory(std::byte* data, int64_t bytes) {
  base::MutexLock lock(mutex_);
  locked_bytes_ -= bytes;
  // The memory goes back to the system: an access tracked there says nothing about who gets it
  // next.
  const auto inside = [&](const TrackedAccess& tracked) {
    return tracked.access.begin < data + bytes && data < tracked.access.end;
  };
  tracked_.erase(std::remove_if(tracked_.begin(), tracked_.end(), inside), tracked_.end());
}

DeviceFacts SimulatedDevice::facts() const {
  const MemorySnapshot snapshot = ledger_.Snapshot();
  DeviceFacts facts;
  facts.kind = DeviceKind::kSimulated;
  facts.name = "simulated";
  facts.description = absl::StrCat("simulated device, seed ", options_.seed);
  facts.total_bytes = snapshot.budget_bytes;
  facts.free_bytes = std::max<int64_t>(0, snapshot.budget_bytes - snapshot.total_bytes);
  return facts;
}

CopyCounters SimulatedDevice::copies(CopyDirection direction) const {
  base::MutexLock lock(mutex_);
  return copies_[direction == CopyDirection::kHostToDevice ? 0 : 1];
}

absl::Duration SimulatedDevice::compute_stall() const {
  base::MutexLock lock(mutex_);
  return compute_stall_;
}

std::vector<std::string> SimulatedDevice::violations() const {
  base::MutexLock lock(mutex_);
  return violations_;
}

std::vector<SimulatedAccess> SimulatedDevice::accesses() const {
  base::MutexLock lock(mutex_);
  return accesses_;
}

absl::Duration SimulatedDevice::compute_time() const {
  base::MutexLock lock(mutex_);
  return streams_[static_cast<size_t>(Stream::kCompute)].time;
}

bool SimulatedDevice::failed() const {
  base::MutexLock lock(mutex_);
  return !failure_.ok();
}

SimulatedFailures SimulatedDevice::calls() const {
  base::MutexLock lock(mutex_);
  return calls_;
}

}  // namespace blockswap::offload
