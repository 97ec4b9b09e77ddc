// SPDX-License-Identifier: Apache-2.0
#include "offload/host/staging_pool.h"

#include <pthread.h>

#include <cstring>
#include <utility>

#include "offload/base/status_macros.h"

namespace blockswap::offload {

absl::StatusOr<std::unique_ptr<StagingPool>> StagingPool::Create(DeviceRuntime* device,
                                                                 int num_buffers,
                                                                 int64_t buffer_bytes,
                                                                 PinnedArena::Lock lock,
                                                                 BlockReader read) {
  BLOCKSWAP_ASSIGN_OR_RETURN(PinnedArena arena,
                             PinnedArena::Create(device, num_buffers * buffer_bytes, lock));
  std::unique_ptr<StagingPool> pool(new StagingPool(device, std::move(arena), std::move(read)));
  for (int i = 0; i < num_buffers; ++i) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const EventId drained, device->CreateEvent());
    pool->buffers_.push_back({pool->arena_.data() + i * buffer_bytes, drained});
  }
  pool->thread_ = std::thread([raw = pool.get()] { raw->Loop(); });
  return pool;
}

StagingPool::~StagingPool() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  for (const Buffer& buffer : buffers_) {
    // Copies that still read the buffer must end before it is unmapped.
    device_->Synchronize(buffer.drained).IgnoreError();  // sticky, reported by the swapper
    device_->DestroyEvent(buffer.drained);
  }
}

uint64_t StagingPool::Submit(const StagedLoad& load) {
  base::MutexLock lock(mutex_);
  queue_.push_back(load);
  changed_.SignalAll();
  return ++submitted_;
}

bool StagingPool::IsQueued(uint64_t ticket) const {
  base::MutexLock lock(mutex_);
  return queued_ >= ticket;
}

absl::Status StagingPool::Join(uint64_t ticket) {
  base::MutexLock lock(mutex_);
  while (queued_ < ticket) changed_.Wait(mutex_);
  return failure_;
}

absl::Status StagingPool::JoinAll() {
  uint64_t last = 0;
  {
    base::MutexLock lock(mutex_);
    last = submitted_;
  }
  return Join(last);
}

void StagingPool::Loop() {
  pthread_setname_np(pthread_self(), "bs-staging");
  while (true) {
    StagedLoad load;
    bool failed = false;
    {
      base::MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
      if (queue_.empty()) return;
      load = queue_.front();
      queue_.pop_front();
      failed = !failure_.ok();
    }
    const absl::Status status = failed ? absl::OkStatus() : Execute(load);
    base::MutexLock lock(mutex_);
    failure_.Update(status);
    ++queued_;
    changed_.SignalAll();
  }
}

StagingPool::Buffer& StagingPool::NextBuffer() {
  Buffer& buffer = buffers_[next_buffer_];
  next_buffer_ = (next_buffer_ + 1) % buffers_.size();
  return buffer;
}

absl::Status StagingPool::WriteBack(const StagedWriteBack& write_back, Buffer& buffer) {
  // d2h waits: h2d has filled the slot, compute is past it.
  if (write_back.loaded != kNoEvent) {
    BLOCKSWAP_RETURN_IF_ERROR(device_->Wait(Stream::kDeviceToHost, write_back.loaded));
  }
  if (write_back.released != kNoEvent) {
    BLOCKSWAP_RETURN_IF_ERROR(device_->Wait(Stream::kDeviceToHost, write_back.released));
  }
  BLOCKSWAP_RETURN_IF_ERROR(device_->Synchronize(buffer.drained));
  BLOCKSWAP_RETURN_IF_ERROR(device_->CopyToHost(buffer.data, write_back.source));
  BLOCKSWAP_RETURN_IF_ERROR(device_->Record(buffer.drained, Stream::kDeviceToHost));
  BLOCKSWAP_RETURN_IF_ERROR(device_->Synchronize(buffer.drained));
  std::memcpy(write_back.destination, buffer.data, static_cast<size_t>(write_back.source.bytes));
  return absl::OkStatus();
}

absl::Status StagingPool::Execute(const StagedLoad& load) {
  if (load.write_back.destination != nullptr) {
    BLOCKSWAP_RETURN_IF_ERROR(WriteBack(load.write_back, NextBuffer()));
  }
  Buffer& buffer = NextBuffer();
  BLOCKSWAP_RETURN_IF_ERROR(device_->Synchronize(buffer.drained));
  const auto bytes = static_cast<size_t>(load.destination.bytes);
  if (load.source != nullptr) {
    std::memcpy(buffer.data, load.source, bytes);
  } else {
    BLOCKSWAP_RETURN_IF_ERROR(read_(load.block, absl::MakeSpan(buffer.data, bytes)));
  }
  // h2d waits: compute is past the slot's last reader.
  if (load.released != kNoEvent) {
    BLOCKSWAP_RETURN_IF_ERROR(device_->Wait(Stream::kHostToDevice, load.released));
  }
  BLOCKSWAP_RETURN_IF_ERROR(device_->CopyToDevice(load.destination, buffer.data));
  BLOCKSWAP_RETURN_IF_ERROR(device_->Record(buffer.drained, Stream::kHostToDevice));
  return device_->Record(load.ready, Stream::kHostToDevice);
}

}  // namespace blockswap::offload
