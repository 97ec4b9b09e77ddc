// SPDX-License-Identifier: Apache-2.0
#include "server/store/job_store.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/random_text.h"
#include "server/base/reason.h"
#include "server/store/schema.h"
#include "tests/server/testing/store_fixture.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

constexpr int64_t kNoLimit = 1000000;

JobRecord NewJob(const std::string& id) {
  JobRecord job;
  job.id = id;
  job.uid = RandomUuid();
  job.name = id;
  job.spec = std::string("\0\x01spec", 6);
  job.spec_json = "{}";
  job.labels["k"] = "v";
  job.warnings = {"a warning"};
  return job;
}

class JobStoreTest : public StoreFixture {
 protected:
  JobRecord Create(const std::string& id) {
    auto created = store_->CreateJob(NewJob(id), "", "", kNoLimit);
    EXPECT_TRUE(created.ok()) << created.status();
    return created->job;
  }
  absl::StatusOr<JobRecord> Move(const std::string& id, JobState state) {
    return store_->UpdateJob(id, [state](JobRecord& job, JobChange&) {
      job.state = state;
      return absl::OkStatus();
    });
  }
};

TEST_F(JobStoreTest, JobSurvivesReopening) {
  JobRecord job = Create("one");
  ASSERT_TRUE(Move("one", JobState::kStarting).ok());
  const auto update = store_->UpdateJob("one", [](JobRecord& current, JobChange& change) {
    current.state = JobState::kRunning;
    current.progress.step = 7;
    current.progress.loss = std::numeric_limits<double>::quiet_NaN();
    current.plan_text = "plan";
    current.needs.device_bytes = 123;
    current.failure.reason = "EARLIER";
    current.failure.category = FailureCategory::kNumerics;
    change.attempt.emplace();
    change.attempt->number = 1;
    change.attempt->pid = 42;
    change.points.push_back(
        {7, 0.5, 1e-3, std::numeric_limits<double>::infinity(), 0.1, 10, 0.01, 99});
    change.checkpoint.emplace();
    change.checkpoint->step = 7;
    return absl::OkStatus();
  });
  ASSERT_TRUE(update.ok()) << update.status();
  const std::string epoch = store_->epoch();
  const int64_t sequence = store_->last_sequence();
  Reopen();
  EXPECT_EQ(store_->epoch(), epoch);
  EXPECT_EQ(store_->last_sequence(), sequence);
  const auto loaded = store_->GetJob("one");
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->uid, job.uid);
  EXPECT_EQ(loaded->spec, job.spec);
  EXPECT_EQ(loaded->state, JobState::kRunning);
  EXPECT_EQ(loaded->progress.step, 7);
  EXPECT_TRUE(std::isnan(loaded->progress.loss));
  EXPECT_EQ(loaded->needs.device_bytes, 123);
  EXPECT_EQ(loaded->failure.category, FailureCategory::kNumerics);
  EXPECT_EQ(loaded->labels.at("k"), "v");
  EXPECT_EQ(loaded->warnings, job.warnings);
  const auto attempts = store_->ListAttempts(job.uid);
  ASSERT_TRUE(attempts.ok() && attempts->size() == 1);
  EXPECT_EQ(attempts->at(0).pid, 42);
  const auto points = store_->ListMetricPoints(job.uid, {0, 0, 100});
  ASSERT_TRUE(points.ok() && points->points.size() == 1);
  EXPECT_TRUE(std::isinf(points->points.at(0).grad_norm));
  EXPECT_EQ(store_->ListCheckpoints(job.uid)->size(), 1u);
}

TEST_F(JobStoreTest, EventSequenceHasNoGapsWhateverFails) {
  Create("one");
  Create("two");
  EXPECT_FALSE(Move("one", JobState::kSucceeded).ok());
  ASSERT_TRUE(Move("one", JobState::kStarting).ok());
  EXPECT_FALSE(store_
                   ->UpdateJob("two",
                               [](JobRecord&, JobChange& change) {
                                 change.events.push_back(MakeEvent(EventType::kWarning, "X", ""));
                                 return absl::CancelledError("changed my mind");
                               })
                   .ok());
  EXPECT_FALSE(store_->CreateJob(NewJob("one"), "", "", kNoLimit).ok());
  ASSERT_TRUE(Move("two", JobState::kCancelled).ok());
  Reopen();
  Create("three");
  const auto events = store_->EventsAfter(0, "", 100);
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 5u);
  for (size_t i = 0; i < events->size(); ++i)
    EXPECT_EQ(events->at(i).sequence, static_cast<int64_t>(i) + 1);
  EXPECT_EQ(events->at(2).state, JobState::kStarting);
}

TEST_F(JobStoreTest, TerminalStateNeverChanges) {
  Create("one");
  ASSERT_TRUE(Move("one", JobState::kCancelled).ok());
  for (int state = 1; state <= kNumJobStates; ++state) {
    if (static_cast<JobState>(state) == JobState::kCancelled) continue;
    const auto moved = Move("one", static_cast<JobState>(state));
    EXPECT_EQ(moved.status().code(), absl::StatusCode::kFailedPrecondition) << state;
    EXPECT_EQ(ReasonOf(moved.status()), "INVALID_STATE");
  }
  EXPECT_EQ(store_->GetJob("one")->state, JobState::kCancelled);
}

TEST_F(JobStoreTest, ListenerHearsCommittedEventsInOrder) {
  std::vector<int64_t> heard;
  store_->SetListeners(
      [&heard](const std::vector<EventRecord>& events) {
        for (const EventRecord& event : events) heard.push_back(event.sequence);
      },
      nullptr);
  Create("one");
  EXPECT_FALSE(Move("one", JobState::kSucceeded).ok());
  ASSERT_TRUE(Move("one", JobState::kStarting).ok());
  EXPECT_EQ(heard, (std::vector<int64_t>{1, 2}));
}

TEST_F(JobStoreTest, SameRequestIdAnswersTheSameJob) {
  const auto first = store_->CreateJob(NewJob("one"), "request", "hash", kNoLimit);
  ASSERT_TRUE(first.ok() && first->is_new);
  Reopen();
  const auto again = store_->CreateJob(NewJob("other"), "request", "hash", kNoLimit);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->is_new);
  EXPECT_EQ(again->job.uid, first->job.uid);
  EXPECT_EQ(store_->GetJob("other").status().code(), absl::StatusCode::kNotFound);
  const auto other = store_->CreateJob(NewJob("third"), "request", "another hash", kNoLimit);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(other.status()), "REQUEST_ID_REUSED");
}

TEST_F(JobStoreTest, FullQueueIsRefused) {
  Create("one");
  const auto second = store_->CreateJob(NewJob("two"), "", "", 1);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(second.status()), "QUEUE_FULL");
  ASSERT_TRUE(Move("one", JobState::kCancelled).ok());
  EXPECT_TRUE(store_->CreateJob(NewJob("two"), "", "", 1).ok());
}

TEST_F(JobStoreTest, WaitingJobsComeByPriorityThenAge) {
  for (const auto& [id, priority] :
       std::vector<std::pair<std::string, int>>{{"a", 0}, {"b", 5}, {"c", 5}, {"d", -1}}) {
    JobRecord job = NewJob(id);
    job.priority = priority;
    ASSERT_TRUE(store_->CreateJob(job, "", "", kNoLimit).ok());
  }
  const auto waiting = store_->WaitingJobs();
  ASSERT_TRUE(waiting.ok());
  std::string order;
  for (const JobRecord& job : *waiting) order += job.id;
  EXPECT_EQ(order, "bcad");
  EXPECT_EQ(*store_->QueuePosition(waiting->at(2)), 3);
}

TEST_F(JobStoreTest, MetricPointsAreThinnedEvenlyAndKeepTheLast) {
  const JobRecord job = Create("one");
  ASSERT_TRUE(store_
                  ->UpdateJob("one",
                              [](JobRecord&, JobChange& change) {
                                for (int64_t step = 1; step <= 1000; ++step) {
                                  MetricPoint point;
                                  point.step = step;
                                  change.points.push_back(point);
                                }
                                return absl::OkStatus();
                              })
                  .ok());
  const auto points = store_->ListMetricPoints(job.uid, {0, 0, 100});
  ASSERT_TRUE(points.ok());
  EXPECT_LE(points->points.size(), 100u);
  EXPECT_GE(points->points.size(), 90u);
  EXPECT_EQ(points->total, 1000);
  EXPECT_EQ(points->points.front().step, 1);
  EXPECT_EQ(points->points.back().step, 1000);
  ASSERT_TRUE(store_
                  ->UpdateJob("one",
                              [](JobRecord&, JobChange& change) {
                                change.drop_points_after = 10;
                                return absl::OkStatus();
                              })
                  .ok());
  EXPECT_EQ(store_->ListMetricPoints(job.uid, {0, 0, 100})->points.size(), 10u);
}

TEST_F(JobStoreTest, NewerSchemaIsRefusedWithInstructions) {
  store_.reset();
  {
    auto database = Database::Open(path(), false);
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE((*database)
                    ->Execute(absl::StrCat("PRAGMA user_version=", CurrentSchemaVersion() + 1))
                    .ok());
  }
  const auto store = JobStore::Open(path());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(store.status().message(), "newer blockswapd"));
}

TEST_F(JobStoreTest, CorruptFileIsRefusedAndKept) {
  store_.reset();
  const std::string garbage(8192, 'x');
  std::ofstream(path(), std::ios::trunc) << garbage;
  const auto store = JobStore::Open(path());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
  EXPECT_EQ(std::filesystem::file_size(path()), garbage.size());
}

TEST_F(JobStoreTest, ReadersAndWritersGoTogether) {
  Create("one");
  std::thread writer([this] {
    for (int i = 0; i < 200; ++i) Create(absl::StrCat("w", i));
  });
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(store_->ListJobsAsOf(JobFilter(), 0, 10).ok());
  writer.join();
  EXPECT_EQ(store_->CountJobs()->at(JobState::kQueued), 201);
}

// A disk of one MiB of its own; only root may make one.
class FullDiskTest : public StoreFixture {
 protected:
  void SetUp() override {
    if (::mount("blockswap-test", directory_.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
      GTEST_SKIP() << "mounting a small tmpfs needs root";
    }
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) ::umount2(directory_.path().c_str(), MNT_DETACH);
  }
  TemporaryDirectory directory_;
  bool mounted_ = false;
};

TEST_F(FullDiskTest, StoreTurnsReadOnlyAndRecoversByItself) {
  auto opened = JobStore::Open(directory_.path() + "/jobs.db");
  ASSERT_TRUE(opened.ok()) << opened.status();
  JobStore& store = **opened;
  ASSERT_TRUE(store.CreateJob(NewJob("first"), "", "", kNoLimit).ok());
  const std::string filler = directory_.path() + "/filler";
  {
    std::ofstream file(filler);
    const std::string block(4096, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())) && file.flush()) {
    }
  }
  absl::Status refused;
  for (int i = 0; i < 2000 && refused.ok(); ++i) {
    refused = store.CreateJob(NewJob(absl::StrCat("more", i)), "", "", kNoLimit).status();
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_EQ(ReasonOf(refused), "STORE_READ_ONLY");
  EXPECT_FALSE(store.writable());
  EXPECT_FALSE(store.ProbeWritable());
  EXPECT_TRUE(store.GetJob("first").ok());
  EXPECT_TRUE(store.ListJobsAsOf(JobFilter(), 0, 10).ok());
  std::filesystem::remove(filler);
  EXPECT_TRUE(store.ProbeWritable());
  EXPECT_TRUE(store.writable());
  EXPECT_TRUE(store.CreateJob(NewJob("after"), "", "", kNoLimit).ok());
  const auto events = store.EventsAfter(0, "", 10000);
  ASSERT_TRUE(events.ok());
  for (size_t i = 0; i < events->size(); ++i)
    EXPECT_EQ(events->at(i).sequence, static_cast<int64_t>(i) + 1);
}

}  // namespace
}  // namespace blockswap::server
