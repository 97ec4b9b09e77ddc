// SPDX-License-Identifier: Apache-2.0
// Distributes committed events and coalesced progress to watchers without ever waiting for one of
// them.
#ifndef BLOCKSWAP_SERVER_EVENTS_EVENT_HUB_H_
#define BLOCKSWAP_SERVER_EVENTS_EVENT_HUB_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"
#include "server/base/wall_clock.h"
#include "server/jobs/job.h"

namespace blockswap::server {

using SharedEvent = std::shared_ptr<const EventRecord>;

// A watcher. Called from the hub's thread only: must queue and return.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // In the order of their sequence; progress events (sequence 0) in between.
  virtual void OnEvents(const std::vector<SharedEvent>& events) = 0;
  // A few times a second, for bookmarks, log polling and deadlines.
  virtual void OnTick(SteadyTime now) = 0;
  // The server goes down: say goodbye and end.
  virtual void OnShutdown() = 0;
};

struct EventHubOptions {
  std::chrono::milliseconds progress_interval{
      250};  // at most one progress event of a job within it
  std::chrono::milliseconds tick_interval{100};
};

// Thread safety: safe. Owns: one thread, "event-hub". Sinks are held weakly: one that is gone is
// forgotten.
class EventHub final {
 public:
  explicit EventHub(EventHubOptions options = {});
  ~EventHub();

  // REQUIRES: stored events come in the order of their sequence. Only queues.
  void Publish(const std::vector<EventRecord>& events);
  // The latest progress of a job wins until it is due. Of a state or attempt that is over by what
  // was published, it is dropped.
  void PublishProgress(EventRecord progress);

  // Adds the sink and returns the sequence of the last event that it will not see.
  int64_t Subscribe(std::weak_ptr<EventSink> sink, int64_t last_stored_sequence);

  // Delivers what is queued, tells every sink to end, joins the thread.
  void Shutdown();

 private:
  struct PendingProgress {
    SharedEvent event;  // empty: nothing new since `sent`
    SteadyTime sent{};
    // Of the job's last stored event, if there was one in this process.
    std::optional<JobState> told;
    int attempt = 0;

    bool Follows(const EventRecord& progress) const {
      return !told.has_value() || (progress.state == *told && progress.attempt == attempt);
    }
  };

  void Run();
  std::vector<SharedEvent> TakeDue(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<EventSink>> LiveSinks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const EventHubOptions options_;
  base::Mutex mutex_;
  base::CondVar wake_;
  std::deque<SharedEvent> queue_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, PendingProgress> progress_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<EventSink>> sinks_ ABSL_GUARDED_BY(mutex_);
  int64_t delivered_ ABSL_GUARDED_BY(mutex_) = 0;  // highest sequence handed to sinks
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_EVENTS_EVENT_HUB_H_
