// SPDX-License-Identifier: Apache-2.0
// Waits for worker processes and copies their output into log files.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_MONITOR_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_MONITOR_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "offload/base/mutex.h"
#include "server/base/log_lines.h"
#include "server/base/unique_fd.h"
#include "server/base/wall_clock.h"
#include "server/supervisor/attempt_log.h"
#include "server/supervisor/worker_containment.h"
#include "server/supervisor/worker_launcher.h"

namespace blockswap::server {

// A worker process from spawn or adoption to its end. Thread safety: safe.
class ChildProcess final {
 public:
  // An adopted process is no child of this one: how it ended is not known.
  enum class Origin { kSpawned, kAdopted };
  ChildProcess(AttemptKey key, pid_t pid, UniqueFd pidfd, UniqueFd output, AttemptLogWriter log,
               AttemptObserver& observer, std::unique_ptr<WorkerContainment> containment,
               Origin origin = Origin::kSpawned);

  // To the process group; nothing once it has ended, when the pid may belong to someone else.
  void Signal(int signal);
  pid_t pid() const { return pid_; }

 private:
  friend class ProcessMonitor;
  // Returns false at the end of the output.
  bool CopyOutput();
  void Reap();

  const AttemptKey key_;
  const pid_t pid_;
  const UniqueFd pidfd_;
  UniqueFd output_;       // the monitor's thread only
  AttemptLogWriter log_;  // the monitor's thread only
  WorkerLineCounter lines_;  // the monitor's thread only
  AttemptObserver& observer_;
  const std::unique_ptr<WorkerContainment> containment_;  // the monitor's thread only
  const Origin origin_;
  bool exited_ = false;  // the monitor's thread only, as the two below
  SteadyTime give_up_on_output_{};
  ProcessExit exit_;

  base::Mutex mutex_;
  bool killed_by_us_ ABSL_GUARDED_BY(mutex_) = false;
  bool reaped_ ABSL_GUARDED_BY(mutex_) = false;
};

// Owns: one thread, "supervisor". Thread safety: safe.
class ProcessMonitor final {
 public:
  static absl::StatusOr<std::unique_ptr<ProcessMonitor>> Create();
  // Stops watching; children that still run are left alone.
  ~ProcessMonitor();

  void Watch(std::shared_ptr<ChildProcess> child);

 private:
  ProcessMonitor(UniqueFd epoll, UniqueFd wake);
  void Run();
  void AddNew();
  void OnReadable(int fd);
  void FinishDrained(SteadyTime now);

  const UniqueFd epoll_, wake_;
  std::map<int, std::shared_ptr<ChildProcess>> by_fd_;  // thread only: pidfd and output
  std::vector<std::shared_ptr<ChildProcess>>
      draining_;  // thread only: exited, output not at its end
  base::Mutex mutex_;
  std::vector<std::shared_ptr<ChildProcess>> new_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_MONITOR_H_
