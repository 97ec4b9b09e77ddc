// SPDX-License-Identifier: Apache-2.0
// How training tells the outside world what it does and hears what is asked of it, without knowing who listens.
#ifndef BLOCKSWAP_WORKER_CHANNEL_REPORTER_H_
#define BLOCKSWAP_WORKER_CHANNEL_REPORTER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "offload/device/memory_ledger.h"
#include "offload/swap/swap_stats.h"
#include "worker/config/train_config.h"

namespace blockswap::worker {

// Process exit codes (facts/service.md 2.7).
enum class ExitCode {
  kOk = 0, kCancelled = 3, kSuspended = 4, kInvalidInput = 10, kDeviceOutOfMemory = 11, kDeviceFault = 12,
  kStorage = 13, kNumerics = 14, kHostOutOfMemory = 15, kInternal = 20,
};

struct StepReport {
  int64_t step = 0;   // from 1
  int64_t epoch = 0;  // from 1
  double loss = 0, learning_rate = 0, grad_norm = 0, seconds = 0;
  int64_t samples = 0;
  std::map<std::string, double> phase_seconds;  // data, forward, backward, optimizer, other
  offload::SwapStats swap;                      // since the attempt began
  int64_t device_bytes_peak = 0;
  int64_t tokens = 0;  // that went through the blocks, of all samples together
};

struct ReadyReport {
  std::string plan_json, plan_text, device, resumed_from;
  int64_t start_step = 0, total_steps = 0;
  std::vector<std::string> skipped_checkpoints;  // "step-00000015: manifest is missing"
};

// LibTorch's caching allocator on the device, beside what the ledger counts; counts since the attempt began.
struct AllocatorReport {
  int64_t allocated_bytes = 0, active_bytes = 0, reserved_bytes = 0;
  int64_t retries = 0, out_of_memory = 0, segments_allocated = 0, segments_freed = 0;
};

struct MemoryReport {
  std::map<std::string, int64_t> planned_bytes;  // by purpose
  offload::MemorySnapshot measured;
  int64_t host_rss_bytes = 0, host_pinned_bytes = 0, host_master_bytes = 0;
  int64_t host_locked_bytes = 0;  // as the kernel counts (VmLck, VmPin)
  int64_t host_shared_bytes = 0;  // of the masters: in memory that other jobs use too
  int64_t host_file_bytes = 0;    // block weights that stay in the file
  bool pinning_fell_back = false;
  std::map<std::string, int64_t> host_planned_bytes;  // pinned, pageable, file, activations
  std::optional<AllocatorReport> allocator;           // nothing where the ledger has it all
};

// A running job goes on under another plan.
struct PlanReport {
  std::string plan_json, plan_text;
  std::string reason;   // UPPER_SNAKE: MEMORY_UPDATED, MEASURED_MEMORY, OUT_OF_MEMORY, ...
  int64_t step = 0;     // the last completed one
  int64_t replans = 0;  // of this attempt, this one included
};

struct ExitReport {
  ExitCode code = ExitCode::kOk;
  std::string category;  // FailureCategory without prefix: "NUMERICS"; empty when ok
  std::string reason;    // UPPER_SNAKE
  std::string message;
  int64_t step = 0;
  std::string adapter_file;
};

enum class StopRequest { kNone, kCancel, kSuspend, kNow };

// Thread safety: all methods from the trainer's thread; implementations queue and return at once.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void Phase(absl::string_view phase) = 0;  // loading, training, sampling, checkpoint, finishing
  // Bytes of block weights in place, out of all. In phase loading.
  virtual void LoadProgress(int64_t /*bytes_done*/, int64_t /*bytes_total*/) {}
  virtual void Ready(const ReadyReport& ready) = 0;
  virtual void Step(const StepReport& step) = 0;
  virtual void Memory(const MemoryReport& memory) = 0;
  virtual void CheckpointCommitted(int64_t step, const std::string& directory, const std::string& manifest_sha256,
                                   int64_t bytes, double seconds) = 0;
  virtual void Replanned(const PlanReport& /*plan*/) {}
  virtual void SampleReady(int64_t step, const std::string& file) = 0;
  virtual void Warning(absl::string_view reason, const std::string& message) = 0;
  // Sends what is queued and waits for it to be acknowledged, within a bound.
  virtual void Exiting(const ExitReport& report) = 0;

  // What has been asked for since the last call; checkpoint and sample requests are cleared by reading them.
  virtual StopRequest stop_requested() = 0;
  virtual bool TakeCheckpointRequest() = 0;
  virtual bool TakeSampleRequest() = 0;
  // New memory settings for the running job, once each; the newest wins.
  virtual std::optional<MemoryConfig> TakeMemoryUpdate() { return std::nullopt; }
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CHANNEL_REPORTER_H_
