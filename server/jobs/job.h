// SPDX-License-Identifier: Apache-2.0
// A job, its attempts, checkpoints, metric points and events as the server keeps them: plain values
// without protobuf.
#ifndef BLOCKSWAP_SERVER_JOBS_JOB_H_
#define BLOCKSWAP_SERVER_JOBS_JOB_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace blockswap::server {

// Numbers equal those of event.proto; the conversion checks it at compile time.
enum class JobState {
  kQueued = 1,
  kStarting = 2,
  kRunning = 3,
  kSuspending = 4,
  kSuspended = 5,
  kRecovering = 6,
  kCancelling = 7,
  kSucceeded = 8,
  kFailed = 9,
  kCancelled = 10,
};
inline constexpr int kNumJobStates = 10;

enum class FailureCategory {
  kNone = 0,
  kInvalidInput = 1,
  kOutOfMemoryDevice = 2,
  kOutOfMemoryHost = 3,
  kDeviceFault = 4,
  kStorage = 5,
  kNumerics = 6,
  kTimeout = 7,
  kStalled = 8,
  kPreempted = 9,
  kWorkerCrash = 10,
  kServerInternal = 11,
};
inline constexpr int kNumFailureCategories = 12;

enum class EventType {
  kSnapshot = 1,
  kSnapshotEnd = 2,
  kCreated = 3,
  kStateChanged = 4,
  kProgress = 5,
  kPlanReady = 6,
  kCheckpointCommitted = 7,
  kSampleReady = 8,
  kWarning = 9,
  kDeleted = 10,
  kBookmark = 11,
  kEnd = 12,
  kUpdated = 13,
  kCheckpointDeleted = 14,
};

enum class StopMode { kNone = 0, kGraceful = 1, kNow = 2, kSuspend = 3 };

struct Failure {
  FailureCategory category = FailureCategory::kNone;
  std::string reason;   // UPPER_SNAKE
  std::string message;  // one sentence
  int exit_code = 0;
  int signal = 0;
  bool retryable = false;
  int64_t step = 0;
  bool operator==(const Failure&) const = default;
};

struct Progress {
  int64_t step = 0, total_steps = 0, epoch = 0;
  double loss = 0, learning_rate = 0, grad_norm = 0, seconds_per_step = 0, eta_seconds = 0;
  int64_t last_progress_micros = 0;
  int64_t device_bytes = 0;
  double stall_ratio = 0;
  std::string phase;
  int64_t phase_bytes_done = 0, phase_bytes_total = 0;  // of a phase that counts bytes
};

// What a plan needs, for admission; the plan itself is an opaque message to the store.
struct PlanNeeds {
  int64_t device_bytes = 0, host_bytes = 0, disk_bytes = 0;
  int64_t locked_bytes = 0;  // of host_bytes, where the job insists on page-locked memory
  double step_seconds = 0;   // predicted; 0: not known
  int64_t total_steps = 0;
  std::string base_key;  // of the base weights that jobs share in memory; empty: none
  // The same should the worker settle otherwise what the job leaves open (host_modulation: auto);
  // empty: nothing is open.
  std::string other_base_key;
  std::vector<int64_t> master_bytes;  // by block: what of host_bytes may be in such memory
  int blocks_to_swap = 0, max_blocks_to_swap = 0;
  std::string architecture;  // canonical family name, found from the weights
};

struct JobRecord {
  std::string id, uid, name;
  std::string spec;       // serialised v1.JobSpec
  std::string spec_json;  // its JSON mapping, what the worker reads
  JobState state = JobState::kQueued;
  std::string state_reason, state_message;
  Failure failure;
  Progress progress;
  std::string plan;  // serialised v1.MemoryPlan
  std::string plan_json,
      plan_text;  // as measured by the worker, once it is ready; before: the server's
  PlanNeeds needs;
  int attempt = 0;
  std::string requested_device = "auto";
  std::string device;
  int64_t create_micros = 0, start_micros = 0, end_micros = 0, update_micros = 0;
  int64_t version = 1;           // grows with every change
  int64_t created_sequence = 0;  // of the CREATED event: age, and the order of lists
  std::string output_directory, retry_of;
  std::string tenant = "default";  // whose it is; others do not see it
  std::vector<std::string> warnings;
  std::map<std::string, std::string> labels;
  int priority = 0;
  int max_restarts = 3;
  StopMode stop_mode = StopMode::kNone;
  int64_t ready_micros = 0;  // not started before (backoff)
  bool out_of_memory_retried = false;
  int swap_override =
      -1;  // blocks to swap that a retry after out-of-memory asks for; -1: as in the spec
  bool held = false;            // not started until a client lets it go
  int64_t deadline_micros = 0;  // by when it must be over; 0: no limit
  std::string template_name;    // templates/<this>, or empty
  std::string from_checkpoint;  // jobs/<job>/checkpoints/<step> that the first attempt goes on from
};

// What the scheduler looks at in a job that waits: read from an index alone, without the job's row.
struct WaitingJob {
  std::string id;
  JobState state = JobState::kQueued;
  std::string state_reason;
  std::string requested_device;
  PlanNeeds needs;
  int priority = 0;
  bool held = false;
  int64_t created_sequence = 0, create_micros = 0;
  int64_t ready_micros = 0, deadline_micros = 0;
};

// Set while an operator keeps waiting jobs from starting.
struct QueuePause {
  std::string reason;  // one line; may be empty
  int64_t since_micros = 0;
};

struct AttemptRecord {
  int number = 0;
  std::string device;
  int64_t start_micros = 0, end_micros = 0;
  int64_t start_step = 0, end_step = 0;
  Failure failure;
  bool counts_as_retry = false;  // ended by a failure that used up one restart
  // The process, so that a later server can find it.
  int64_t pid = 0;
  int64_t process_start_time = 0;
  std::string boot_id;
  // What proves that a stream is that process's, and what the server knew about it.
  std::string socket, token_hash;  // the hash in hexadecimal digits
  int64_t last_sequence = 0;       // the worker's last message that is stored
  int64_t granted_bytes = 0;       // of device memory, to a job whose budget is auto
  double checkpoint_seconds = 0;   // the longest it took to write one
};

struct CheckpointRecord {
  int64_t step = 0, bytes = 0, create_micros = 0;
  std::string directory, manifest_sha256;
};

struct MetricPoint {
  int64_t step = 0;
  double loss = 0, learning_rate = 0, grad_norm = 0, seconds = 0;
  int64_t h2d_bytes = 0;
  double stall_seconds = 0;
  int64_t device_bytes_peak = 0;
};

struct EventRecord {
  int64_t sequence = 0;  // 0 until stored; progress events have none
  EventType type = EventType::kStateChanged;
  std::string job_id;
  std::string tenant;  // not stored: empty in events that were read back
  int64_t time_micros = 0;
  JobState state = JobState::kQueued;
  std::string reason, message;
  std::optional<Failure> failure;
  std::optional<Progress> progress;
  int attempt = 0;
};

inline EventRecord MakeEvent(EventType type, std::string reason, std::string message) {
  EventRecord event;
  event.type = type;
  event.reason = std::move(reason);
  event.message = std::move(message);
  return event;
}

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_JOBS_JOB_H_
