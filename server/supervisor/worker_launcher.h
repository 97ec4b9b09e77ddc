// SPDX-License-Identifier: Apache-2.0
// The seam between the scheduler and worker processes: real ones are spawned, tests script theirs.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_WORKER_LAUNCHER_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_WORKER_LAUNCHER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/supervisor/worker_update.h"

namespace blockswap::server {

// Receives what happens to attempts. Called from any thread; must only queue.
class AttemptObserver {
 public:
  virtual ~AttemptObserver() = default;
  // The worker sends nothing more until `sequence` is acknowledged; 0: needs no acknowledgement.
  virtual void OnUpdate(const AttemptKey& key, int64_t sequence, WorkerUpdate update) = 0;
  // Once, after the last output was written to the log. Updates that are still on their way are
  // discarded by the receiver.
  virtual void OnExit(const AttemptKey& key, const ProcessExit& exit) = 0;
};

struct LaunchRequest {
  AttemptKey key;
  std::string job_uid, job_json;
  std::string output_directory;  // exists
  std::string device;            // as the worker calls it: "host", "cuda:0"
  std::string visible_gpu;       // uuid of the only GPU the worker may see; empty: none
  int64_t host_bytes = 0;        // host memory the worker will take, beyond what it shares
  // Names of the memory in which it may find weights of its base, see PlanNeeds.
  std::vector<std::string> base_keys;
};

// A worker that an earlier server started, as that server stored it.
struct AdoptRequest {
  AttemptKey key;
  std::string job_uid, output_directory;
  AttemptRecord record;
};

// One worker process. Thread safety: safe. The destructor forgets the process, which must have
// ended.
class WorkerHandle {
 public:
  virtual ~WorkerHandle() = default;
  // The process waits for this: called once its identity is on disk, so that none runs that a later
  // server cannot find.
  virtual absl::Status Release() = 0;
  virtual void Send(const WorkerCommand& command) = 0;
  virtual void Acknowledge(int64_t sequence) = 0;
  // To the whole process group.
  virtual void Signal(int signal) = 0;
  virtual int64_t pid() const = 0;
  virtual int64_t process_start_time() const = 0;
  // With pid and start time, what a later server needs to adopt the process.
  virtual std::string socket_path() const = 0;
  virtual std::string token_hash() const = 0;  // in hexadecimal digits
};

// Memory that workers share, or left behind for the next.
struct SharedMemoryUsage {
  int files = 0;
  int64_t used_bytes = 0, unused_bytes = 0;  // by files some worker uses, by the others
};

// One file of them.
struct SharedBase {
  std::string key;
  std::vector<bool> ready;  // by block: its bytes are there; empty: not laid out yet
  bool in_use = false;      // by a worker
};

class WorkerLauncher {
 public:
  virtual ~WorkerLauncher() = default;
  virtual std::vector<SharedBase> shared_bases() const { return {}; }
  // unused_bytes are given up when a launched worker needs them.
  virtual SharedMemoryUsage shared_memory() const { return {}; }
  // `observer` must outlive the launcher's threads. Internal, ResourceExhausted (no processes or
  // descriptors left).
  virtual absl::StatusOr<std::unique_ptr<WorkerHandle>> Launch(const LaunchRequest& request,
                                                               AttemptObserver& observer) = 0;
  // Supervises a running worker that an earlier server started. NotFound: it is gone;
  // FailedPrecondition: it runs, but cannot be supervised from here.
  virtual absl::StatusOr<std::unique_ptr<WorkerHandle>> Adopt(const AdoptRequest& request,
                                                              AttemptObserver& observer) = 0;
  // What earlier servers left on disk for attempts that nobody adopted goes.
  virtual void RemoveLeftovers() = 0;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_WORKER_LAUNCHER_H_
