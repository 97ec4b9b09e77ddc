// SPDX-License-Identifier: Apache-2.0
// Starts jobs on devices, follows their workers, and decides what becomes of them when a worker
// ends.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_SCHEDULER_H_
#define BLOCKSWAP_SERVER_SCHEDULER_SCHEDULER_H_

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offload/base/host_facts.h"
#include "offload/base/mutex.h"
#include "server/device/device_table.h"
#include "server/events/event_hub.h"
#include "server/metrics/server_metrics.h"
#include "server/scheduler/attempt.h"
#include "server/scheduler/queue_board.h"
#include "server/scheduler/queue_index.h"
#include "server/scheduler/queue_policy.h"
#include "server/scheduler/retry_policy.h"
#include "server/store/job_store.h"
#include "server/supervisor/worker_launcher.h"

namespace blockswap::server {

struct SchedulerOptions {
  RetryOptions retry;
  QueueOptions queue;
  ClockOptions clocks;
  KillLadderOptions ladder;
  std::chrono::milliseconds tick{1000};
  std::chrono::milliseconds orphan_patience{10000};
  std::chrono::seconds info_series_linger{45};  // three scrapes
  std::string state_directory, outputs_root;    // whose disks are watched
  base::HostFactsPaths host_files;
  // Tries a device out after a fault of it and reports, from any thread. Null: it goes on as it is.
  using Verdict = std::function<void(const absl::Status&)>;
  std::function<void(const DeviceState&, Verdict)> probe_device = nullptr;
  // Called once a tick by the scheduler's own thread: whoever hears nothing knows that it is stuck.
  std::function<void()> on_tick = nullptr;
};

// Owns: one thread, "scheduler", on which everything about running attempts happens; the running
// attempts. Thread safety: public methods from any thread. Errors: of the store. Invariant: a job
// with a worker is in a state with a worker, and the other way round, except while the server
// starts.
class Scheduler final : public AttemptObserver {
 public:
  Scheduler(JobStore& store, EventHub& hub, DeviceTable& devices, WorkerLauncher& launcher,
            ServerMetrics& metrics, SchedulerOptions options);
  ~Scheduler() override;

  // Adopts the workers that an earlier server left behind, or ends them and puts their jobs back in
  // line. REQUIRES: no worker can attach yet, for it would not be known.
  absl::Status Recover();
  void Start();
  // Suspends all workers, waits `grace`, or longer for one whose checkpoints are known to take it,
  // kills the rest, joins the thread. Their jobs go on at the next start. REQUIRES: no more
  // requests come.
  void Shutdown(std::chrono::milliseconds grace);
  // Makes a running Shutdown impatient.
  void HurryShutdown();

  // A job was created or changed: look again.
  void Wake();
  absl::StatusOr<JobRecord> CancelJob(const std::string& id, StopMode mode,
                                      const std::string& reason);
  absl::StatusOr<JobRecord> SuspendJob(const std::string& id);
  absl::StatusOr<JobRecord> ResumeJob(const std::string& id);
  // Sends the job's memory settings to its worker, which plans anew between two steps.
  void UpdateWorkerMemory(const JobRecord& job);
  absl::Status AskWorker(const std::string& id, CommandKind command);  // checkpoint or sample
  // Writes why a waiting job waits, with the numbers of now, into its state reason and message and
  // answers its place in the queue (0: held); nothing where it does not wait or was not seen yet.
  std::optional<int64_t> ShowPlace(JobRecord* job) const;

  // The thread has gone round within the last few seconds.
  bool IsAlive() const;

  void OnUpdate(const AttemptKey& key, int64_t sequence, WorkerUpdate update) override;
  void OnExit(const AttemptKey& key, const ProcessExit& exit) override;

 private:
  struct UpdateMessage {
    AttemptKey key;
    int64_t sequence = 0;
    WorkerUpdate update;
  };
  struct ExitMessage {
    AttemptKey key;
    ProcessExit exit;
  };
  struct CommandMessage {
    std::string job_id;
    WorkerCommand command;
  };
  struct ProbeMessage {
    std::string device, job_id;
    absl::Status verdict;
  };
  using Message = std::variant<UpdateMessage, ExitMessage, CommandMessage, ProbeMessage>;
  // Which store fields and events an update leads to.
  struct UpdateEffects;

  void Post(Message message);
  void Run();
  SteadyTime NextDeadline(SteadyTime now) const;
  void ExtendShutdown(SteadyTime deadline);
  void HandleMessages(std::deque<Message> messages);
  // Unavailable: the store refuses writes; the message is kept and handled again later.
  absl::Status Handle(const Message& message);
  absl::Status HandleUpdate(const UpdateMessage& message);
  absl::Status HandleExit(const ExitMessage& message);
  Outcome OutcomeOf(RunningAttempt& attempt, const ProcessExit& exit) const;
  // Settles the job of a worker that has ended.
  absl::Status SettleExit(RunningAttempt& attempt, const ProcessExit& exit);
  void HandleProbe(const ProbeMessage& message);
  void HandleCommand(const CommandMessage& message);

  absl::Status Apply(RunningAttempt& attempt, const WorkerUpdate& update);
  absl::Status ApplyReady(RunningAttempt& attempt, const ReadyUpdate& ready);
  absl::Status ApplyReplan(RunningAttempt& attempt, const ReplanUpdate& replan);
  absl::Status ApplySteps(RunningAttempt& attempt, const StepsUpdate& steps);
  absl::Status ApplyCheckpoint(RunningAttempt& attempt, const CheckpointUpdate& update);
  absl::Status ApplyWarning(RunningAttempt& attempt, const WarningUpdate& warning);
  absl::Status ApplyPhase(RunningAttempt& attempt, const PhaseUpdate& phase);
  // A change of the job that a message of its worker leads to: the same transaction notes how far
  // the worker's messages are stored, so that none counts twice, whichever server it reaches.
  absl::StatusOr<JobRecord> UpdateAttempt(RunningAttempt& attempt, JobStore::Mutation mutate);
  absl::Status AddEvent(RunningAttempt& attempt, EventRecord event);

  // What the end of an attempt makes of its job; called inside the store's transaction.
  void SettleJob(const RunningAttempt& attempt, const Outcome& outcome, const RetryDecision& retry,
                 JobRecord& job, JobChange& change) const;
  void SettleFailure(const RunningAttempt& attempt, const Failure& failure,
                     const RetryDecision& retry, JobRecord& job) const;
  void ReportEnd(const RunningAttempt& attempt, const Outcome& outcome, const RetryDecision& retry,
                 const JobRecord& job);

  // Queues what a commit made of a job; the store calls it.
  void NoteJob(const JobRecord& job);
  absl::Status LoadQueue();
  void TakeQueueChanges();
  void Pass();
  QueueState ReadMachine(SteadyTime now) const;
  int64_t FreeDisk(const QueuedJob& job) const;
  void NoteWaiting(const QueuedJob& job, const WaitReason& reason);
  void ExpireWaiting(const QueuedJob& job);
  void StopTheLate(SteadyTime now);
  // Ends what runs on a device that the driver reported a fault of: it goes on elsewhere.
  void LeaveFaultyDevices(const std::vector<DeviceState>& devices, SteadyTime now);
  // The metrics' slot: the device, or device.N beside other jobs.
  std::string FreeSlot(const std::string& device) const;
  std::unique_ptr<RunningAttempt> MakeAttempt(const JobRecord& job, const QueuedJob& waiting,
                                              const DeviceState& device,
                                              const HostRoom& host) const;
  // `host`: by which it was decided.
  absl::Status StartAttempt(const QueuedJob& waiting, const DeviceState& device,
                            const HostRoom& host);
  void FailToStart(const QueuedJob& job, const std::string& device, const absl::Status& why);
  // Keeps the device from the next job until it has answered a fresh process.
  void ProbeDevice(const RunningAttempt& attempt);
  // What the job was admitted with, for the passes that follow.
  void NoteNeeds(const JobRecord& job, RunningAttempt& attempt) const;
  void CheckAttempts(SteadyTime now);
  void Perform(RunningAttempt& attempt, LadderAction action);
  void GiveUp(RunningAttempt& attempt);
  void Tick(SteadyTime now);
  // One warning event for each attempt on a device whose bus is slower than it should be.
  void WarnOfLinks(const std::vector<DeviceState>& devices);
  void WatchLink(RunningAttempt& attempt, const SwapCounters& swap);
  absl::Status RecoverJob(const JobRecord& job);
  // An error says why the worker cannot be adopted.
  absl::Status AdoptWorker(const JobRecord& job, const AttemptRecord& record);
  std::unique_ptr<RunningAttempt> RecoveredAttempt(const JobRecord& job,
                                                   const AttemptRecord& record) const;
  absl::Status RequeueInterrupted(const JobRecord& job, const std::vector<AttemptRecord>& attempts,
                                  const std::string& how);
  RunningAttempt* Find(const AttemptKey& key);

  JobStore& store_;
  EventHub& hub_;
  DeviceTable& devices_;
  WorkerLauncher& launcher_;
  ServerMetrics& metrics_;
  const SchedulerOptions options_;

  // The thread's own.
  std::map<std::string, std::unique_ptr<RunningAttempt>> running_;  // by job id
  std::deque<Message> deferred_;                    // not stored yet because the disk was full
  std::map<std::string, SteadyTime> info_removal_;  // by slot
  std::map<std::string, std::string> device_base_;  // of each device's last job
  QueueIndex queue_;
  SteadyTime next_tick_{};
  SteadyTime next_ready_ = SteadyTime::max();  // when the first backoff is over
  bool suspending_all_ = false;

  QueueBoard board_;
  std::atomic<int64_t> last_round_micros_{0};  // relaxed: for the health probe
  base::Mutex mutex_;
  base::CondVar wake_;
  std::deque<Message> messages_ ABSL_GUARDED_BY(mutex_);
  std::vector<QueueChange> queue_changes_ ABSL_GUARDED_BY(mutex_);
  bool look_again_ ABSL_GUARDED_BY(mutex_) = true;
  bool shutting_down_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime shutdown_deadline_ ABSL_GUARDED_BY(mutex_){};
  std::thread thread_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_SCHEDULER_H_
