// SPDX-License-Identifier: Apache-2.0
#include "offload/device/cuda_device.h"

#include <cuda_runtime.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "offload/device/host_memory.h"
#include "offload/device/numa.h"

namespace blockswap::offload {
namespace {

std::string Describe(cudaError_t error, absl::string_view what) {
  return absl::StrCat("cuda: ", what, " failed: ", cudaGetErrorName(error), ": ",
                      cudaGetErrorString(error));
}

// Adds up the time between pairs of events on one stream without ever waiting for them.
class TimedSpans {
 public:
  TimedSpans() = default;
  TimedSpans(const TimedSpans&) = delete;
  TimedSpans& operator=(const TimedSpans&) = delete;
  ~TimedSpans() {
    // After a sticky error the driver refuses; there is nobody to tell.
    for (const Pair& pair : free_) Destroy(pair);
    for (const Pair& pair : running_) Destroy(pair);
  }

  cudaError_t Begin(cudaStream_t stream) {
    if (free_.empty()) {
      Pair fresh{};
      cudaError_t error = cudaEventCreate(&fresh.begin);
      if (error == cudaSuccess) error = cudaEventCreate(&fresh.end);
      if (error != cudaSuccess) return error;
      free_.push_back(fresh);
    }
    return cudaEventRecord(free_.back().begin, stream);
  }

  cudaError_t End(cudaStream_t stream) {
    const Pair pair = free_.back();
    free_.pop_back();
    running_.push_back(pair);
    return cudaEventRecord(pair.end, stream);
  }

  absl::Duration Total() {
    while (!running_.empty()) {
      const Pair pair = running_.front();
      float milliseconds = 0;
      if (cudaEventQuery(pair.end) != cudaSuccess ||
          cudaEventElapsedTime(&milliseconds, pair.begin, pair.end) != cudaSuccess) {
        cudaGetLastError();  // "not ready" must not be taken for a failure of the next call
        break;
      }
      total_ += absl::Milliseconds(static_cast<double>(milliseconds));
      running_.pop_front();
      free_.push_back(pair);
    }
    return total_;
  }

 private:
  struct Pair {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
  };
  static void Destroy(const Pair& pair) {
    cudaEventDestroy(pair.begin);
    cudaEventDestroy(pair.end);
  }

  std::vector<Pair> free_;
  std::deque<Pair> running_;
  absl::Duration total_;
};

struct Lane {
  cudaStream_t stream = nullptr;
  mutable base::Mutex mutex;  // trainer and staging thread share the host-to-device lane
  mutable TimedSpans spans ABSL_GUARDED_BY(mutex);
  CopyCounters counters ABSL_GUARDED_BY(mutex);
};

class CudaDeviceRuntime final : public CudaDevice {
 public:
  explicit CudaDeviceRuntime(int ordinal) : ordinal_(ordinal), ledger_(/*budget_bytes=*/0) {}
  ~CudaDeviceRuntime() override;
  absl::Status Start();

  void SetComputeStream(void* stream) override { compute_ = static_cast<cudaStream_t>(stream); }

  DeviceFacts facts() const override;
  MemoryLedger& ledger() override { return ledger_; }
  bool device_memory_is_host_visible() const override { return false; }
  bool copies_need_pinned_memory() const override { return true; }

  absl::StatusOr<DeviceSpan> AllocateArena(int64_t bytes, MemoryTag tag) override;
  void FreeArena(DeviceSpan arena, MemoryTag tag) override;

  absl::StatusOr<EventId> CreateEvent() override;
  void DestroyEvent(EventId event) override;
  absl::Status Record(EventId event, Stream stream) override;
  absl::Status Wait(Stream stream, EventId event) override;
  bool IsComplete(EventId event) override;
  absl::Status Synchronize(EventId event) override;
  absl::Status SynchronizeStream(Stream stream) override;

  absl::Status CopyToDevice(DeviceSpan destination, const std::byte* source) override {
    return Copy(h2d_, destination.data, source, destination.bytes, cudaMemcpyHostToDevice);
  }
  absl::Status CopyToHost(std::byte* destination, DeviceSpan source) override {
    return Copy(d2h_, destination, source.data, source.bytes, cudaMemcpyDeviceToHost);
  }

  absl::Status LockHostMemory(std::byte* data, int64_t bytes) override;
  void UnlockHostMemory(std::byte* data, int64_t bytes) override;

  CopyCounters copies(CopyDirection direction) const override;
  absl::Duration compute_stall() const override;

 private:
  // Makes this thread's calls go to the device and returns the first failure, if there was one.
  absl::Status Enter() const;
  // Keeps the first failure for all later calls.
  absl::Status Check(cudaError_t error, absl::string_view what) const;
  absl::Status Copy(Lane& lane, void* destination, const void* source, int64_t bytes,
                    cudaMemcpyKind kind);
  cudaStream_t Get(Stream stream) const;
  cudaEvent_t Get(EventId event) const;

  const int ordinal_;
  MemoryLedger ledger_;
  cudaStream_t own_compute_ = nullptr;
  cudaStream_t compute_ = nullptr;
  Lane h2d_;
  Lane d2h_;

  mutable base::Mutex mutex_;
  mutable absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<cudaEvent_t> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<EventId> free_events_ ABSL_GUARDED_BY(mutex_);

  mutable base::Mutex stall_mutex_;
  mutable TimedSpans stalls_ ABSL_GUARDED_BY(stall_mutex_);
};

absl::Status CudaDeviceRuntime::Check(cudaError_t error, absl::string_view what) const {
  if (error == cudaSuccess) return absl::OkStatus();
  const absl::Status status = absl::InternalError(Describe(error, what));
  base::MutexLock lock(mutex_);
  failure_.Update(status);
  return failure_;
}

absl::Status CudaDeviceRuntime::Enter() const {
  {
    base::MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
  }
  return Check(cudaSetDevice(ordinal_), "selecting the device");
}

absl::Status CudaDeviceRuntime::Start() {
  const cudaError_t selected = cudaSetDevice(ordinal_);
  if (selected != cudaSuccess) {
    cudaGetLastError();
    return absl::UnavailableError(absl::StrCat("device cuda:", ordinal_,
                                               " cannot be used: ", cudaGetErrorString(selected),
                                               "; check the driver, or choose device host"));
  }
  for (cudaStream_t* stream : {&own_compute_, &h2d_.stream, &d2h_.stream}) {
    BLOCKSWAP_RETURN_IF_ERROR(
        Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "creating a stream"));
  }
  compute_ = own_compute_;
  return absl::OkStatus();
}

CudaDeviceRuntime::~CudaDeviceRuntime() {
  cudaSetDevice(ordinal_);
  {
    base::MutexLock lock(mutex_);
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  for (cudaStream_t stream : {own_compute_, h2d_.stream, d2h_.stream}) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

DeviceFacts CudaDeviceRuntime::facts() const {
  DeviceFacts facts;
  facts.kind = DeviceKind::kCuda;
  facts.name = absl::StrCat("cuda:", ordinal_);
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, ordinal_) == cudaSuccess) {
    facts.description = properties.name;
    facts.numa_node = NodeOfPciDevice(
        absl::StrFormat("%04x:%02x:%02x.0", properties.pciDomainID, properties.pciBusID,
                        properties.pciDeviceID));
  }
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (Enter().ok() && cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) {
    facts.total_bytes = static_cast<int64_t>(total_bytes);
    facts.free_bytes = static_cast<int64_t>(free_bytes);
  }
  return facts;
}

absl::StatusOr<DeviceSpan> CudaDeviceRuntime::AllocateArena(int64_t bytes, MemoryTag tag) {
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("arena of ", bytes, " bytes"));
  BLOCKSWAP_RETURN_IF_ERROR(ledger_.Charge(tag, bytes));
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (error == cudaSuccess) return DeviceSpan{static_cast<std::byte*>(data), bytes};
  ledger_.Release(tag, bytes);
  if (error != cudaErrorMemoryAllocation) return Check(error, "allocating device memory");
  cudaGetLastError();  // out of memory is an answer, not a broken context
  return absl::ResourceExhaustedError(
      absl::StrCat("device memory exhausted by ", MemoryTagName(tag), ": asked ", bytes, " bytes (",
                   base::FormatByteSize(bytes), "), free ",
                   base::FormatByteSize(facts().free_bytes), " on cuda:", ordinal_,
                   "; lower vram_budget or stream more blocks, or free the device for this job"));
}

void CudaDeviceRuntime::FreeArena(DeviceSpan arena, MemoryTag tag) {
  if (Enter().ok()) Check(cudaFree(arena.data), "freeing device memory").IgnoreError();  // kept
  ledger_.Release(tag, arena.bytes);
}

absl::StatusOr<EventId> CudaDeviceRuntime::CreateEvent() {
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  {
    base::MutexLock lock(mutex_);
    if (!free_events_.empty()) {
      const EventId event = free_events_.back();
      free_events_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  BLOCKSWAP_RETURN_IF_ERROR(
      Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event"));
  base::MutexLock lock(mutex_);
  events_.push_back(event);
  return static_cast<EventId>(events_.size()) - 1;
}

void CudaDeviceRuntime::DestroyEvent(EventId event) {
  base::MutexLock lock(mutex_);
  free_events_.push_back(event);
}

cudaEvent_t CudaDeviceRuntime::Get(EventId event) const {
  base::MutexLock lock(mutex_);
  return events_[static_cast<size_t>(event)];
}

cudaStream_t CudaDeviceRuntime::Get(Stream stream) const {
  if (stream == Stream::kCompute) return compute_;
  return stream == Stream::kHostToDevice ? h2d_.stream : d2h_.stream;
}

absl::Status CudaDeviceRuntime::Record(EventId event, Stream stream) {
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  return Check(cudaEventRecord(Get(event), Get(stream)), "recording an event");
}

absl::Status CudaDeviceRuntime::Wait(Stream stream, EventId event) {
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  const cudaEvent_t awaited = Get(event);
  if (stream != Stream::kCompute) {
    return Check(cudaStreamWaitEvent(Get(stream), awaited, 0), "waiting for an event");
  }
  if (IsComplete(event)) return absl::OkStatus();
  cudaError_t error = cudaSuccess;
  {
    base::MutexLock lock(stall_mutex_);
    error = stalls_.Begin(compute_);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(compute_, awaited, 0);
    if (error == cudaSuccess) error = stalls_.End(compute_);
  }
  return Check(error, "waiting for a copy");
}

bool CudaDeviceRuntime::IsComplete(EventId event) {
  const cudaError_t error = cudaEventQuery(Get(event));
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  return Check(error, "an earlier operation").ok();
}

absl::Status CudaDeviceRuntime::Synchronize(EventId event) {
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  return Check(cudaEventSynchronize(Get(event)), "an earlier operation");
}

absl::Status CudaDeviceRuntime::SynchronizeStream(Stream stream) {
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  return Check(cudaStreamSynchronize(Get(stream)), "an earlier operation");
}

absl::Status CudaDeviceRuntime::Copy(Lane& lane, void* destination, const void* source,
                                     int64_t bytes, cudaMemcpyKind kind) {
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  cudaError_t error = cudaSuccess;
  {
    // The two timing events must enclose this copy only, whichever thread queues the next.
    base::MutexLock lock(lane.mutex);
    error = lane.spans.Begin(lane.stream);
    if (error == cudaSuccess) {
      error = cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes), kind, lane.stream);
    }
    if (error == cudaSuccess) error = lane.spans.End(lane.stream);
    lane.counters.bytes += bytes;
    ++lane.counters.transfers;
  }
  return Check(error, "copying a block");
}

absl::Status CudaDeviceRuntime::LockHostMemory(std::byte* data, int64_t bytes) {
  BLOCKSWAP_RETURN_IF_ERROR(Enter());
  const cudaError_t error =
      cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable);
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // a refused lock must not poison later calls
  return absl::ResourceExhaustedError(absl::StrCat(
      "page-locked host memory refused: asked ", bytes, " bytes (", base::FormatByteSize(bytes),
      "), RLIMIT_MEMLOCK ", LockLimitText(), ", the driver answered '", cudaGetErrorString(error),
      "'; raise the limit, lower blocks_to_swap, or set pinned_memory to auto or never"));
}

void CudaDeviceRuntime::UnlockHostMemory(std::byte* data, int64_t /*bytes*/) {
  if (Enter().ok()) Check(cudaHostUnregister(data), "unlocking host memory").IgnoreError();  // kept
}

CopyCounters CudaDeviceRuntime::copies(CopyDirection direction) const {
  const Lane& lane = direction == CopyDirection::kHostToDevice ? h2d_ : d2h_;
  base::MutexLock lock(lane.mutex);
  CopyCounters counters = lane.counters;
  counters.busy = lane.spans.Total();
  return counters;
}

absl::Duration CudaDeviceRuntime::compute_stall() const {
  base::MutexLock lock(stall_mutex_);
  return stalls_.Total();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(int ordinal) {
  auto device = std::make_unique<CudaDeviceRuntime>(ordinal);
  BLOCKSWAP_RETURN_IF_ERROR(device->Start());
  return std::unique_ptr<CudaDevice>(std::move(device));
}

}  // namespace blockswap::offload
