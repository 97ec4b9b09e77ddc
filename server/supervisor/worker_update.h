// SPDX-License-Identifier: Apache-2.0
// What a worker tells the server and what the server asks of it, as plain values.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_WORKER_UPDATE_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_WORKER_UPDATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/jobs/job.h"

namespace blockswap::server {

// Since the attempt began; only grow.
struct SwapCounters {
  int64_t h2d_bytes = 0, d2h_bytes = 0, h2d_transfers = 0, d2h_transfers = 0;
  // All that the link carried in the busy seconds, not blocks alone.
  int64_t h2d_link_bytes = 0, d2h_link_bytes = 0;
  double h2d_busy_seconds = 0, d2h_busy_seconds = 0;
  double forward_stall_seconds = 0, backward_stall_seconds = 0;
  int64_t hits = 0, late = 0, misses = 0;
  int blocks_on_device = 0, blocks_on_host = 0, blocks_in_flight = 0;
};

struct WorkerStep {
  int64_t step = 0, epoch = 0;
  double loss = 0, learning_rate = 0, grad_norm = 0, seconds = 0;
  int64_t samples = 0;
  std::map<std::string, double> phase_seconds;
  SwapCounters swap;
  int64_t device_bytes_peak = 0;
  int64_t tokens = 0;  // 0: the worker does not count them
};

// LibTorch's caching allocator, beside what the worker's ledger counts. Counts only grow.
struct AllocatorStats {
  int64_t allocated_bytes = 0, active_bytes = 0, reserved_bytes = 0;
  int64_t retries = 0, out_of_memory = 0, segments_allocated = 0, segments_freed = 0;
};

struct AttachedUpdate {
  std::string build;
  int64_t pid = 0;
};
struct DetachedUpdate {
  std::string fault;  // empty: the stream broke and may come back
};
struct HeartbeatUpdate {};
struct ReadyUpdate {
  std::string plan_json, plan_text, device, resumed_from;
  int64_t start_step = 0, total_steps = 0;
  std::vector<std::string> skipped_checkpoints;
};
struct StepsUpdate {
  std::vector<WorkerStep> steps;
};
struct CheckpointUpdate {
  CheckpointRecord checkpoint;
  double seconds = 0;
};
struct SampleUpdate {
  int64_t step = 0;
  std::string file;
};
struct MemoryUpdate {
  std::map<std::string, int64_t> planned_bytes, allocated_bytes, peak_bytes;
  int64_t device_budget_bytes = 0, host_rss_bytes = 0, host_pinned_bytes = 0, host_master_bytes = 0;
  int64_t host_locked_bytes = 0, host_shared_bytes = 0, host_file_bytes = 0;
  bool pinning_fell_back = false;
  std::map<std::string, int64_t> host_planned_bytes;  // pinned, pageable, file, activations
  std::optional<AllocatorStats> allocator;            // nothing where there is none
};
struct ReplanUpdate {
  std::string plan_json, plan_text, reason;
  int64_t step = 0;
};
struct WarningUpdate {
  std::string reason, message;
};
struct PhaseUpdate {
  std::string phase;
  int64_t bytes_done = 0, bytes_total = 0;  // of a phase that counts bytes
};
struct ExitingUpdate {
  int exit_code = 0;
  Failure failure;
  std::string adapter_file;
  int64_t step = 0;
};

using WorkerUpdate = std::variant<AttachedUpdate, DetachedUpdate, HeartbeatUpdate, ReadyUpdate,
                                  StepsUpdate, CheckpointUpdate, SampleUpdate, MemoryUpdate,
                                  WarningUpdate, PhaseUpdate, ExitingUpdate, ReplanUpdate>;

enum class CommandKind { kCheckpoint, kSample, kStop, kUpdateMemory };
struct WorkerCommand {
  CommandKind kind = CommandKind::kCheckpoint;
  StopMode stop_mode = StopMode::kNone;  // of kStop
  double grace_seconds = 0;
  std::string memory_json;  // of kUpdateMemory: the job's memory settings as they are now
};

struct AttemptKey {
  std::string job_id;
  int attempt = 0;
  auto operator<=>(const AttemptKey&) const = default;
};

// How the process ended, from the kernel.
struct ProcessExit {
  int exit_code = 0;
  int signal = 0;     // not 0: killed by it, exit_code means nothing
  bool known = true;  // false: an adopted worker, whose status went to another parent
  // Not empty: the kernel ended it for want of memory; one sentence with the numbers.
  std::string out_of_memory;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_WORKER_UPDATE_H_
