// SPDX-License-Identifier: Apache-2.0
// Brings a job's block weights from their files to where the plan wants them: shared with other
// jobs, with progress, and again at each use where they stay in the file.
#ifndef BLOCKSWAP_WORKER_TRAIN_WEIGHTS_LOADER_H_
#define BLOCKSWAP_WORKER_TRAIN_WEIGHTS_LOADER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "offload/base/mutex.h"
#include "offload/host/block_reader.h"
#include "offload/host/shared_masters.h"
#include "offload/plan/swap_plan.h"
#include "worker/config/job_inspection.h"

namespace blockswap::worker {

struct LoadOptions {
  // Memory of the server to share weights in, see base::MasterFile: one for each way the job may
  // have settled what its blocks hold. Empty: none.
  std::vector<int> masters_fds;
  // Called with bytes of blocks that are in place, out of all, as they come; on the caller's
  // thread.
  std::function<void(int64_t done, int64_t total)> progress = nullptr;
};

// Measures how fast the job's weight files are read, once, where some blocks may have to stay
// there: their masters are more than the host has for them.
void MeasureFileTier(const JobInspection& job, Machine* machine);

// Bytes of the blocks that `plan` leaves in the file.
int64_t FileTierBytes(const offload::SwapPlan& plan,
                      const std::vector<offload::BlockProfile>& blocks);

// Thread safety: Prepare and Finish on the trainer's thread; the reader also on the staging thread.
class WeightsLoader {
 public:
  // `job` outlives the loader, the loader whoever uses its reader.
  WeightsLoader(const JobInspection* job, LoadOptions options);

  // Opens the shared masters and chooses how files are read for `plan`. What cannot be had is a
  // note: the job then uses memory of its own.
  void Prepare(const offload::SwapPlan& plan);
  // Null: masters are this job's own.
  offload::SharedMasters* shared() { return shared_.get(); }
  int64_t shared_bytes() const;
  offload::BlockReader reader() {
    return [this](int block, absl::Span<std::byte> bytes) { return Read(block, bytes); };
  }
  // All blocks are in place; `booked_bytes` of host memory were locked for them.
  void Finish(int64_t booked_bytes);

  void Note(std::string sentence) { notes_.push_back(std::move(sentence)); }
  // What people should know, one sentence each, since the last call.
  std::vector<std::string> TakeNotes();
  // Locked bytes that the kernel counts (VmLck, VmPin) beyond those at Prepare, at Finish.
  int64_t kernel_locked_bytes() const { return kernel_locked_bytes_; }

 private:
  absl::Status Read(int block, absl::Span<std::byte> destination);
  void OpenShared();
  void NoteProgress(int64_t bytes);
  // Starts reading the next block that loading will ask for, from `block` on.
  void ExpectFrom(int block);
  void WillNeed(int block);
  // The next block of the file tier in the direction the pass goes.
  void ReadAhead(int block);

  const JobInspection* const job_;
  const LoadOptions options_;
  std::unique_ptr<offload::SharedMasters> shared_;
  std::vector<std::string> notes_;
  std::vector<bool> to_load_;  // by block: not in the file tier
  int64_t total_bytes_ = 0;
  int64_t locked_before_ = 0, kernel_locked_bytes_ = 0;
  std::atomic<bool> finished_{false};  // relaxed: the staging thread may see it late

  std::thread::id trainer_;
  int64_t done_bytes_ = 0;  // the trainer's

  base::Mutex mutex_;
  std::vector<bool> stays_in_file_ ABSL_GUARDED_BY(mutex_);  // by block: was read after Finish
  int last_block_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_WEIGHTS_LOADER_H_
