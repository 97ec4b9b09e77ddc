// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/watch_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using EventReader = std::unique_ptr<grpc::ClientReader<v1::JobEvent>>;

class WatchStreamTest : public ::testing::Test {
 protected:
  void Start(double bookmark_seconds = 15) {
    server_ = std::make_unique<TestServer>(
        directory_.path(),
        [bookmark_seconds](ServerConfig& config) { config.bookmark_seconds = bookmark_seconds; });
  }
  EventReader Watch(grpc::ClientContext& context, const v1::WatchJobsRequest& request) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return server_->training().WatchJobs(&context, request);
  }
  // Creates jobs that are cancelled at once: two events each, no worker.
  void MakeEvents(int jobs) {
    for (int i = 0; i < jobs; ++i) {
      JobRecord job;
      job.id = absl::StrCat("made-", made_);
      job.uid = absl::StrCat("uid-", made_++);
      ASSERT_TRUE(server_->daemon().store().CreateJob(job, "", "", 1000000).ok());
      ASSERT_TRUE(server_->daemon()
                      .store()
                      .UpdateJob(job.id,
                                 [](JobRecord& current, JobChange&) {
                                   current.state = JobState::kCancelled;
                                   return absl::OkStatus();
                                 })
                      .ok());
    }
  }

  TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
  int made_ = 0;
};

TEST_F(WatchStreamTest, SnapshotThenEndThenChanges) {
  Start();
  MakeEvents(3);
  grpc::ClientContext context;
  v1::WatchJobsRequest request;
  request.set_include_snapshot(true);
  const EventReader stream = Watch(context, request);
  v1::JobEvent event;
  std::set<std::string> snapshot;
  while (stream->Read(&event) && event.type() == v1::JobEvent::TYPE_SNAPSHOT)
    snapshot.insert(event.job());
  EXPECT_EQ(snapshot.size(), 3u);
  EXPECT_EQ(event.type(), v1::JobEvent::TYPE_SNAPSHOT_END);
  EXPECT_FALSE(event.resume_token().empty());
  MakeEvents(1);
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.type(), v1::JobEvent::TYPE_CREATED);
  EXPECT_EQ(event.job(), "jobs/made-3");
  context.TryCancel();
}

// The job "busy" is suspended and queued again as fast as the store can, for as long as this lives.
class BusyJob {
 public:
  explicit BusyJob(JobStore& store) : store_(store) {
    EXPECT_TRUE(store_.SetQueuePause(QueuePause{}).ok());
    JobRecord job;
    job.id = job.uid = "busy";
    EXPECT_TRUE(store_.CreateJob(job, "", "", 1000000).ok());
    changes_ = std::thread([this] {
      while (!done_) EXPECT_TRUE(store_.UpdateJob("busy", Turn).ok());
    });
  }
  ~BusyJob() {
    done_ = true;
    changes_.join();
  }
  // Reads until the job was shown or turned `states` times, and expects each to differ from the one
  // before, beginning with `last`. Returns the last.
  static v1::JobState ExpectTurns(const EventReader& stream, int states, v1::JobState last) {
    v1::JobEvent event;
    while (states > 0 && stream->Read(&event)) {
      // The scheduler says meanwhile why a job waits, which changes no state.
      const bool is_snapshot = event.type() == v1::JobEvent::TYPE_SNAPSHOT;
      if (!is_snapshot && event.reason() != "TURNED") continue;
      EXPECT_NE(event.state(), last) << event.ShortDebugString();
      last = event.state();
      --states;
    }
    EXPECT_EQ(states, 0);
    return last;
  }

 private:
  static absl::Status Turn(JobRecord& current, JobChange&) {
    current.state = current.state == JobState::kQueued ? JobState::kSuspended : JobState::kQueued;
    current.state_reason = "TURNED";
    return absl::OkStatus();
  }
  JobStore& store_;
  std::atomic<bool> done_{false};
  std::thread changes_;
};

// F118: a watch that begins while a job changes shows it once, and from there each change once.
TEST_F(WatchStreamTest, ChangesFollowTheSnapshotWithoutGapOrRepetition) {
  Start();
  const BusyJob busy(server_->daemon().store());
  for (int watch = 0; watch < 100; ++watch) {
    SCOPED_TRACE(absl::StrCat("watch ", watch));
    grpc::ClientContext context;
    v1::WatchJobsRequest request;
    request.set_include_snapshot(true);
    if (watch % 2 == 0) request.set_job("jobs/busy");
    BusyJob::ExpectTurns(Watch(context, request), 4, v1::JOB_STATE_UNSPECIFIED);
    context.TryCancel();
  }
}

TEST_F(WatchStreamTest, TokenOfTheSnapshotGoesOnBehindWhatItShowed) {
  Start();
  const BusyJob busy(server_->daemon().store());
  for (int watch = 0; watch < 100; ++watch) {
    SCOPED_TRACE(absl::StrCat("watch ", watch));
    v1::WatchJobsRequest request;
    if (watch % 2 == 0) request.set_job("jobs/busy");
    v1::JobState shown = v1::JOB_STATE_UNSPECIFIED;
    {
      grpc::ClientContext context;
      v1::WatchJobsRequest with_snapshot = request;
      with_snapshot.set_include_snapshot(true);
      const EventReader stream = Watch(context, with_snapshot);
      v1::JobEvent event;
      while (stream->Read(&event) && event.type() != v1::JobEvent::TYPE_SNAPSHOT_END) {
        shown = event.state();
      }
      request.set_resume_token(event.resume_token());
      context.TryCancel();
    }
    ASSERT_NE(shown, v1::JOB_STATE_UNSPECIFIED);
    grpc::ClientContext context;
    BusyJob::ExpectTurns(Watch(context, request), 3, shown);
    context.TryCancel();
  }
}

TEST_F(WatchStreamTest, ResumedStreamMissesNothingAndRepeatsNothing) {
  Start();
  MakeEvents(2);
  std::string token;
  std::vector<int64_t> seen;
  {
    grpc::ClientContext context;
    v1::WatchJobsRequest request;
    request.set_include_snapshot(true);
    const EventReader stream = Watch(context, request);
    v1::JobEvent event;
    while (stream->Read(&event) && event.type() != v1::JobEvent::TYPE_SNAPSHOT_END) {
    }
    MakeEvents(2);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(stream->Read(&event));
      seen.push_back(event.sequence());
      token = event.resume_token();
    }
    context.TryCancel();
  }
  MakeEvents(300);
  server_.reset();
  Start();
  MakeEvents(1);
  grpc::ClientContext context;
  v1::WatchJobsRequest request;
  request.set_resume_token(token);
  const EventReader stream = Watch(context, request);
  v1::JobEvent event;
  while (seen.size() < 606 && stream->Read(&event)) {
    if (event.sequence() != 0) seen.push_back(event.sequence());
  }
  ASSERT_EQ(seen.size(), 606u);
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i) + 5) << i;
  context.TryCancel();
}

TEST_F(WatchStreamTest, TokenOfAnotherStoreOrFilterIsRefused) {
  Start();
  MakeEvents(1);
  std::string token;
  {
    grpc::ClientContext context;
    v1::WatchJobsRequest request;
    request.set_include_snapshot(true);
    const EventReader stream = Watch(context, request);
    v1::JobEvent event;
    while (stream->Read(&event) && event.resume_token().empty()) {
    }
    token = event.resume_token();
    context.TryCancel();
  }
  const auto refused = [&](const std::string& with, const std::string& filter) {
    grpc::ClientContext context;
    v1::WatchJobsRequest request;
    request.set_resume_token(with);
    request.set_filter(filter);
    const EventReader stream = Watch(context, request);
    v1::JobEvent event;
    EXPECT_FALSE(stream->Read(&event));
    return stream->Finish();
  };
  EXPECT_EQ(refused(token, "active").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused("nonsense", "").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  server_.reset();
  std::filesystem::remove_all(directory_.path() + "/state");
  Start();
  const grpc::Status expired = refused(token, "");
  EXPECT_EQ(expired.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(ErrorReason(expired), "RESUME_TOKEN_EXPIRED");
}

TEST_F(WatchStreamTest, SilentStreamGetsBookmarks) {
  Start(/*bookmark_seconds=*/0.05);
  grpc::ClientContext context;
  const EventReader stream = Watch(context, v1::WatchJobsRequest());
  v1::JobEvent event;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(stream->Read(&event));
    EXPECT_EQ(event.type(), v1::JobEvent::TYPE_BOOKMARK);
    EXPECT_FALSE(event.resume_token().empty());
  }
  context.TryCancel();
}

TEST_F(WatchStreamTest, SlowConsumerIsCutAndCanResume) {
  Start();
  grpc::ClientContext context;
  v1::WatchJobsRequest request;
  request.set_include_snapshot(true);
  const EventReader stream = Watch(context, request);
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));
  ASSERT_EQ(event.type(), v1::JobEvent::TYPE_SNAPSHOT_END);
  std::string token = event.resume_token();
  // Nobody reads now. Messages of 16 KiB fill the connection's windows, then the ring.
  JobRecord job;
  job.id = job.uid = "flood";
  job.state = JobState::kSuspended;
  ASSERT_TRUE(server_->daemon().store().CreateJob(job, "", "", 1000000).ok());
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(server_->daemon()
                    .store()
                    .UpdateJob("flood",
                               [](JobRecord&, JobChange& change) {
                                 for (int k = 0; k < 200; ++k) {
                                   change.events.push_back(MakeEvent(EventType::kWarning, "FLOOD",
                                                                     std::string(16 << 10, 'x')));
                                 }
                                 return absl::OkStatus();
                               })
                    .ok());
  }
  const int64_t last = server_->daemon().store().last_sequence();
  int64_t cursor = 0;
  bool ended = false;
  while (stream->Read(&event)) {
    if (event.sequence() != 0) cursor = event.sequence();
    token = event.resume_token();
    ended = event.type() == v1::JobEvent::TYPE_END;
    if (ended) {
      EXPECT_EQ(event.end_reason(), v1::JobEvent::END_REASON_SLOW_CONSUMER);
    }
  }
  EXPECT_TRUE(ended);
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ErrorReason(status), "SLOW_CONSUMER");
  EXPECT_LT(cursor, last);

  grpc::ClientContext again;
  request.set_include_snapshot(false);
  request.set_resume_token(token);
  const EventReader resumed = Watch(again, request);
  while (cursor < last && resumed->Read(&event)) {
    if (event.sequence() == 0) continue;
    EXPECT_EQ(event.sequence(), cursor + 1);
    cursor = event.sequence();
  }
  EXPECT_EQ(cursor, last);
  again.TryCancel();
}

TEST_F(WatchStreamTest, JobWatchEndsWithItsJob) {
  Start();
  const v1::Job job = server_->MustCreate("digits", "steps=3");
  const auto events = server_->WatchToEnd(job.name());
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back().end_reason(), v1::JobEvent::END_REASON_JOB_TERMINAL);
  EXPECT_EQ(events[events.size() - 2].state(), v1::JOB_STATE_SUCCEEDED);
  // Watched when all is over, it says the same at once.
  const auto late = server_->WatchToEnd(job.name());
  ASSERT_EQ(late.size(), 3u);
  EXPECT_EQ(late[0].state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(late[2].end_reason(), v1::JobEvent::END_REASON_JOB_TERMINAL);
}

TEST_F(WatchStreamTest, StoppingServerSaysGoodbye) {
  Start();
  grpc::ClientContext context;
  v1::WatchJobsRequest request;
  request.set_include_snapshot(true);
  const EventReader stream = Watch(context, request);
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));
  std::thread stopper([this] { server_->daemon().Stop(); });
  v1::JobEvent last;
  while (stream->Read(&event)) last = event;
  EXPECT_EQ(last.type(), v1::JobEvent::TYPE_END);
  EXPECT_EQ(last.end_reason(), v1::JobEvent::END_REASON_SERVER_SHUTDOWN);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  stopper.join();
}

TEST_F(WatchStreamTest, FilterByStateSeesOnlyThatState) {
  Start();
  grpc::ClientContext context;
  v1::WatchJobsRequest request;
  request.set_filter("state=CANCELLED");
  request.set_include_snapshot(true);
  const EventReader stream = Watch(context, request);
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));
  MakeEvents(2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(stream->Read(&event));
    EXPECT_EQ(event.state(), v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(event.type(), v1::JobEvent::TYPE_STATE_CHANGED);
  }
  context.TryCancel();
}

}  // namespace
}  // namespace blockswap::server
