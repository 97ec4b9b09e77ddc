// SPDX-License-Identifier: Apache-2.0
// Moves pageable masters and blocks of the file tier through a few buffers on a thread of its own,
// so that the trainer never copies or reads bytes.
#ifndef BLOCKSWAP_OFFLOAD_HOST_STAGING_POOL_H_
#define BLOCKSWAP_OFFLOAD_HOST_STAGING_POOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/base/mutex.h"
#include "offload/host/block_reader.h"
#include "offload/host/pinned_arena.h"

namespace blockswap::offload {

// A block leaving the device before its slot is overwritten (exchange mode). kNoEvent: nothing to
// wait for.
struct StagedWriteBack {
  std::byte* destination = nullptr;  // pageable; nullptr: no write-back
  DeviceSpan source;
  EventId loaded = kNoEvent;    // the leaving block's own copy has arrived
  EventId released = kNoEvent;  // compute is past its last reader
};

struct StagedLoad {
  StagedWriteBack write_back;
  const std::byte* source = nullptr;  // pageable; nullptr: the block is read from the file
  int block = -1;                     // to read then
  DeviceSpan destination;
  EventId released = kNoEvent;  // compute is past the last reader of `destination`
  EventId ready = kNoEvent;     // recorded on the host-to-device stream after the copy
};

// Owns: the buffers and one worker thread ("bs-staging"), the second thread that may call the
// device (Wait, copies, Record and Synchronize on the copy streams). Thread safety: the trainer's
// thread submits and joins. Errors: the first failure is kept; Join of that load and of all later
// ones returns it.
class StagingPool {
 public:
  // `lock`: kYes where copies need it; a refused lock is an error then, since staging through
  // pageable memory is none. `read` (may be null where every load has a source) is called on the
  // pool's thread.
  static absl::StatusOr<std::unique_ptr<StagingPool>> Create(
      DeviceRuntime* device, int num_buffers, int64_t buffer_bytes,
      PinnedArena::Lock lock = PinnedArena::Lock::kYes, BlockReader read = nullptr);
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // Returns a ticket for Join. Loads are executed in the order they are submitted.
  // REQUIRES: events named in `load` were recorded before; bytes <= buffer_bytes.
  uint64_t Submit(const StagedLoad& load);
  // True when the load's copy and record are queued on the device.
  bool IsQueued(uint64_t ticket) const;
  // Blocks until they are. A wait for `ready` is right only after that.
  absl::Status Join(uint64_t ticket);
  absl::Status JoinAll();

  int64_t bytes() const { return arena_.bytes(); }
  int64_t locked_bytes() const { return arena_.locked_bytes(); }

 private:
  struct Buffer {
    std::byte* data = nullptr;
    EventId drained = kNoEvent;  // recorded after the copy that reads or fills the buffer
  };

  StagingPool(DeviceRuntime* device, PinnedArena arena, BlockReader read)
      : device_(device), read_(std::move(read)), arena_(std::move(arena)) {}

  void Loop();
  absl::Status Execute(const StagedLoad& load);
  absl::Status WriteBack(const StagedWriteBack& write_back, Buffer& buffer);
  Buffer& NextBuffer();

  DeviceRuntime* const device_;
  const BlockReader read_;
  PinnedArena arena_;
  std::vector<Buffer> buffers_;
  size_t next_buffer_ = 0;  // the worker's

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<StagedLoad> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t submitted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t queued_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_HOST_STAGING_POOL_H_
