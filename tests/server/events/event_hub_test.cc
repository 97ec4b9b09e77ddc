// SPDX-License-Identifier: Apache-2.0
#include "server/events/event_hub.h"

#include <gtest/gtest.h>

#include <atomic>

#include "server/jobs/transitions.h"

namespace blockswap::server {
namespace {

class RecordingSink final : public EventSink {
 public:
  void OnEvents(const std::vector<SharedEvent>& events) override {
    base::MutexLock lock(mutex_);
    events_.insert(events_.end(), events.begin(), events.end());
    changed_.SignalAll();
  }
  void OnTick(SteadyTime) override {
    base::MutexLock lock(mutex_);
    ++ticks_;
    changed_.SignalAll();
  }
  void OnShutdown() override {
    base::MutexLock lock(mutex_);
    ++shutdowns_;
  }
  std::vector<SharedEvent> WaitForEvents(size_t count) {
    base::MutexLock lock(mutex_);
    while (events_.size() < count) changed_.Wait(mutex_);
    return events_;
  }
  void WaitForTicks(int count) {
    base::MutexLock lock(mutex_);
    const int goal = ticks_ + count;
    while (ticks_ < goal) changed_.Wait(mutex_);
  }
  int shutdowns() {
    base::MutexLock lock(mutex_);
    return shutdowns_;
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<SharedEvent> events_ ABSL_GUARDED_BY(mutex_);
  int ticks_ ABSL_GUARDED_BY(mutex_) = 0;
  int shutdowns_ ABSL_GUARDED_BY(mutex_) = 0;
};

EventRecord Stored(int64_t sequence, JobState state = JobState::kRunning) {
  EventRecord event = MakeEvent(EventType::kStateChanged, "X", "");
  event.sequence = sequence;
  event.job_id = "job";
  event.state = state;
  return event;
}

EventRecord ProgressAt(int64_t step) {
  EventRecord event = MakeEvent(EventType::kProgress, "", "");
  event.job_id = "job";
  event.progress.emplace();
  event.progress->step = step;
  return event;
}

EventHubOptions Quick() { return {std::chrono::milliseconds(20), std::chrono::milliseconds(5)}; }

TEST(EventHubTest, EveryStoredEventArrivesInOrder) {
  EventHub hub(Quick());
  auto sink = std::make_shared<RecordingSink>();
  EXPECT_EQ(hub.Subscribe(sink, 0), 0);
  for (int64_t sequence = 1; sequence <= 500; ++sequence) hub.Publish({Stored(sequence)});
  const auto events = sink->WaitForEvents(500);
  for (size_t i = 0; i < events.size(); ++i)
    EXPECT_EQ(events[i]->sequence, static_cast<int64_t>(i) + 1);
}

TEST(EventHubTest, SubscribeSaysWhereTheLiveEventsBegin) {
  EventHub hub(Quick());
  auto early = std::make_shared<RecordingSink>();
  hub.Subscribe(early, 10);
  hub.Publish({Stored(11), Stored(12)});
  early->WaitForEvents(2);
  auto late = std::make_shared<RecordingSink>();
  EXPECT_EQ(hub.Subscribe(late, 12), 12);
  hub.Publish({Stored(13)});
  EXPECT_EQ(late->WaitForEvents(1)[0]->sequence, 13);
}

TEST(EventHubTest, LatestProgressWins) {
  EventHub hub(Quick());
  auto sink = std::make_shared<RecordingSink>();
  hub.Subscribe(sink, 0);
  for (int64_t step = 1; step <= 1000; ++step) hub.PublishProgress(ProgressAt(step));
  sink->WaitForTicks(20);
  const auto events = sink->WaitForEvents(1);
  EXPECT_EQ(events.back()->progress->step, 1000);
  EXPECT_LT(events.size(), 100u);
}

TEST(EventHubTest, NoProgressFollowsTheEnd) {
  EventHub hub({std::chrono::hours(1), std::chrono::milliseconds(5)});
  auto sink = std::make_shared<RecordingSink>();
  hub.Subscribe(sink, 0);
  hub.PublishProgress(ProgressAt(1));
  sink->WaitForEvents(1);
  hub.PublishProgress(ProgressAt(2));
  hub.Publish({Stored(1, JobState::kSucceeded)});
  sink->WaitForTicks(5);
  EXPECT_EQ(sink->WaitForEvents(2).back()->state, JobState::kSucceeded);
}

// F118: progress of a worker that died would show the job running while it recovers.
TEST(EventHubTest, NoProgressFollowsAnotherStateOrAttempt) {
  EventHub hub({std::chrono::hours(1), std::chrono::milliseconds(5)});
  auto sink = std::make_shared<RecordingSink>();
  hub.Subscribe(sink, 0);
  const auto running = [](int64_t step, int attempt) {
    EventRecord event = ProgressAt(step);
    event.state = JobState::kRunning;
    event.attempt = attempt;
    return event;
  };
  hub.PublishProgress(running(1, 1));
  sink->WaitForEvents(1);
  hub.PublishProgress(running(2, 1));  // waits for its hour
  hub.Publish({Stored(1, JobState::kRecovering)});
  hub.PublishProgress(running(3, 1));  // taken before the state, published after it
  EventRecord again = Stored(2, JobState::kRunning);
  again.attempt = 2;
  hub.Publish({again});
  hub.PublishProgress(running(3, 1));
  hub.Shutdown();
  for (const SharedEvent& event : sink->WaitForEvents(3)) {
    EXPECT_TRUE(event->sequence != 0 || event->progress->step == 1);
  }
}

TEST(EventHubTest, SinkThatIsGoneIsForgotten) {
  EventHub hub(Quick());
  auto kept = std::make_shared<RecordingSink>();
  {
    auto gone = std::make_shared<RecordingSink>();
    hub.Subscribe(gone, 0);
  }
  hub.Subscribe(kept, 0);
  hub.Publish({Stored(1)});
  kept->WaitForEvents(1);
}

TEST(EventHubTest, ShutdownDeliversWhatWaitsAndSaysGoodbyeOnce) {
  auto sink = std::make_shared<RecordingSink>();
  EventHub hub(Quick());
  hub.Subscribe(sink, 0);
  hub.Publish({Stored(1)});
  hub.Shutdown();
  hub.Shutdown();
  EXPECT_EQ(sink->WaitForEvents(1).size(), 1u);
  EXPECT_EQ(sink->shutdowns(), 1);
}

}  // namespace
}  // namespace blockswap::server
