// SPDX-License-Identifier: Apache-2.0
// What leaves the store, and what stays of it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "server/base/random_text.h"
#include "server/base/reason.h"
#include "server/base/wall_clock.h"
#include "server/store/job_store.h"
#include "tests/server/testing/store_fixture.h"

namespace blockswap::server {
namespace {

absl::Status Yes(const JobRecord&) { return absl::OkStatus(); }
EventRecord Deleted() { return MakeEvent(EventType::kDeleted, "DELETED_BY_CLIENT", ""); }

class JobStoreRemovalTest : public StoreFixture {
 protected:
  JobRecord Create(const std::string& id, const std::string& request_id = "") {
    JobRecord job;
    job.id = job.name = id;
    job.uid = RandomUuid();
    job.spec_json = "{}";
    job.labels["k"] = "v";
    auto created = store_->CreateJob(job, request_id, "hash", 1000000);
    EXPECT_TRUE(created.ok()) << created.status();
    return created.ok() ? created->job : job;
  }
  void Finish(const std::string& id, int64_t end_micros) {
    ASSERT_TRUE(store_
                    ->UpdateJob(id,
                                [end_micros](JobRecord& job, JobChange& change) {
                                  job.state = JobState::kCancelled;
                                  job.end_micros = end_micros;
                                  change.points.push_back(MetricPoint{});
                                  change.checkpoint.emplace();
                                  change.attempt.emplace();
                                  return absl::OkStatus();
                                })
                    .ok());
  }
};

TEST_F(JobStoreRemovalTest, DeletedJobIsGoneWithEverythingButItsLastEvent) {
  const JobRecord job = Create("one");
  Create("two");
  EXPECT_EQ(ReasonOf(store_->DeleteJob("one", Deleted(), Yes).status()), "INVALID_STATE");
  Finish("one", 5);
  const auto refused = store_->DeleteJob(
      "one", Deleted(), [](const JobRecord&) { return absl::AbortedError("not now"); });
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAborted);
  const int64_t sequence = store_->last_sequence();
  ASSERT_TRUE(store_->DeleteJob("one", Deleted(), Yes).ok());
  EXPECT_EQ(store_->last_sequence(), sequence + 1);
  EXPECT_EQ(store_->GetJob("one").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->DeleteJob("one", Deleted(), Yes).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_->ListAttempts(job.uid)->empty());
  EXPECT_TRUE(store_->ListCheckpoints(job.uid)->empty());
  EXPECT_EQ(store_->ListMetricPoints(job.uid, {0, 0, 10})->total, 0);
  EXPECT_EQ(store_->ListJobsAsOf(*ParseJobFilter("label.k=v"), 0, 10)->jobs.size(), 1u);
  const auto events = store_->EventsAfter(0, "one", 10);
  ASSERT_EQ(events->size(), 1u);
  EXPECT_EQ(events->at(0).type, EventType::kDeleted);
  EXPECT_EQ(events->at(0).sequence, sequence + 1);
  EXPECT_EQ(store_->CountJobs()->at(JobState::kCancelled), 0);
  EXPECT_TRUE(store_->Check()->problems.empty());
}

TEST_F(JobStoreRemovalTest, SequenceGoesOnAfterTheLastJobWasDeleted) {
  Create("one");
  Finish("one", 5);
  ASSERT_TRUE(store_->DeleteJob("one", Deleted(), Yes).ok());
  const int64_t sequence = store_->last_sequence();
  ASSERT_TRUE(store_->PruneDeletedEvents(WallMicros() + 1000000).ok());
  Reopen();
  EXPECT_EQ(store_->last_sequence(), sequence);
  EXPECT_GT(Create("two").created_sequence, sequence);
}

TEST_F(JobStoreRemovalTest, RequestOfADeletedJobFindsNoOtherJobOfThatId) {
  Create("one", "request");
  Finish("one", 5);
  ASSERT_TRUE(store_->DeleteJob("one", Deleted(), Yes).ok());
  Create("one");
  const auto again = store_->FindRequest("request", "hash");
  EXPECT_EQ(again.status().code(), absl::StatusCode::kNotFound) << again.status();
  EXPECT_EQ(ReasonOf(again.status()), "JOB_NOT_FOUND");
}

TEST_F(JobStoreRemovalTest, WatchersOlderThanThePrunedEventsAreToldSo) {
  Create("one");
  Finish("one", 5);
  ASSERT_TRUE(store_->DeleteJob("one", Deleted(), Yes).ok());
  const int64_t deleted = store_->last_sequence();
  Create("two");
  EXPECT_EQ(store_->oldest_resumable(), 0);
  ASSERT_TRUE(store_->PruneDeletedEvents(WallMicros() - 1000000).ok());
  EXPECT_EQ(store_->oldest_resumable(), 0) << "it is younger than that";
  ASSERT_TRUE(store_->PruneDeletedEvents(WallMicros() + 1000000).ok());
  EXPECT_EQ(store_->oldest_resumable(), deleted);
  Reopen();
  EXPECT_EQ(store_->oldest_resumable(), deleted);
  EXPECT_TRUE(store_->EventsAfter(0, "one", 10)->empty());
  EXPECT_EQ(store_->EventsAfter(0, "two", 10)->size(), 1u);
}

TEST_F(JobStoreRemovalTest, OldAndTooManyFinishedJobsExpireOldestFirst) {
  const int64_t later = WallMicros() + 1000000;  // no job ends before it began
  for (int i = 0; i < 6; ++i) {
    Create(absl::StrCat("job", i));
    if (i < 5) Finish(absl::StrCat("job", i), later + i);
  }
  EXPECT_TRUE(store_->ExpiredJobs(0, 100, 10)->empty());
  EXPECT_EQ(*store_->ExpiredJobs(later + 2, 100, 10), (std::vector<std::string>{"job0", "job1"}));
  EXPECT_EQ(*store_->ExpiredJobs(0, 2, 10), (std::vector<std::string>{"job0", "job1", "job2"}));
  EXPECT_EQ(*store_->ExpiredJobs(later + 4, 4, 2), (std::vector<std::string>{"job0", "job1"}));
}

TEST_F(JobStoreRemovalTest, QueuePauseSurvivesReopening) {
  EXPECT_FALSE(store_->queue_pause().has_value());
  ASSERT_TRUE(store_->SetQueuePause(QueuePause{"maintenance \"today\"", 42}).ok());
  Reopen();
  ASSERT_TRUE(store_->queue_pause().has_value());
  EXPECT_EQ(store_->queue_pause()->reason, "maintenance \"today\"");
  EXPECT_EQ(store_->queue_pause()->since_micros, 42);
  ASSERT_TRUE(store_->SetQueuePause(std::nullopt).ok());
  Reopen();
  EXPECT_FALSE(store_->queue_pause().has_value());
}

TEST_F(JobStoreRemovalTest, OverdueJobsAreThoseUnfinishedOnes) {
  for (const auto& [id, deadline] : std::vector<std::pair<std::string, int64_t>>{
           {"none", 0}, {"late", 50}, {"later", 60}, {"over", 10}, {"future", 1000}}) {
    Create(id);
    ASSERT_TRUE(store_
                    ->UpdateJob(id,
                                [micros = deadline](JobRecord& job, JobChange&) {
                                  job.deadline_micros = micros;
                                  return absl::OkStatus();
                                })
                    .ok());
  }
  Finish("over", 9);
  EXPECT_EQ(*store_->OverdueJobs(60), (std::vector<std::string>{"late", "later"}));
}

TEST_F(JobStoreRemovalTest, BackupIsAWholeStoreOfItsOwn) {
  Create("one");
  const std::string copy = directory_.path() + "/copy.db";
  ASSERT_TRUE(store_->BackUp(copy).ok());
  Create("two");
  EXPECT_EQ(store_->BackUp(copy).code(), absl::StatusCode::kAlreadyExists);
  const auto opened = JobStore::Open(copy);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_TRUE((*opened)->GetJob("one").ok());
  EXPECT_FALSE((*opened)->GetJob("two").ok());
  EXPECT_EQ((*opened)->CountJobs()->at(JobState::kQueued), 1);
}

TEST_F(JobStoreRemovalTest, CheckFindsADamagedPage) {
  for (int i = 0; i < 200; ++i) Create(absl::StrCat("job", i));
  const auto sound = store_->Check();
  ASSERT_TRUE(sound.ok()) << sound.status();
  EXPECT_TRUE(sound->problems.empty());
  EXPECT_GT(sound->bytes, 0);
  const std::string copy = directory_.path() + "/copy.db";
  ASSERT_TRUE(store_->BackUp(copy).ok());
  const auto opened = JobStore::Open(copy);
  ASSERT_TRUE(opened.ok());
  {
    std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(copy) / 2));
    file << std::string(8192, '\x5a');
  }
  EXPECT_FALSE((*opened)->Check()->problems.empty());
}

}  // namespace
}  // namespace blockswap::server
