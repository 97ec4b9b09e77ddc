// SPDX-License-Identifier: Apache-2.0
// A state store of the first version is read by this one, and nothing of it is lost.
#include "server/store/schema.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "server/store/database.h"
#include "server/store/job_store.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

class SchemaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const fixture = ::getenv("BLOCKSWAP_SCHEMA_V1");
    ASSERT_NE(fixture, nullptr);
    std::ifstream file(fixture);
    ASSERT_TRUE(file.good()) << fixture;
    std::stringstream sql;
    sql << file.rdbuf();
    auto database = Database::Open(path_, /*read_only=*/false);
    ASSERT_TRUE(database.ok()) << database.status();
    const absl::Status made = (*database)->Execute(sql.str());
    ASSERT_TRUE(made.ok()) << made;
  }
  std::unique_ptr<JobStore> OpenStore() {
    auto store = JobStore::Open(path_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static int64_t Version(const std::string& path) {
    auto database = Database::Open(path, /*read_only=*/true);
    EXPECT_TRUE(database.ok()) << database.status();
    auto query = (*database)->Prepare("PRAGMA user_version");
    EXPECT_TRUE(query.Step().ok());
    return query.Int(0);
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/jobs.db";
};

TEST_F(SchemaTest, StoreOfTheFirstVersionIsMigratedAndACopyOfItIsKept) {
  ASSERT_EQ(Version(path_), 1);
  ASSERT_NE(OpenStore(), nullptr);
  EXPECT_EQ(Version(path_), CurrentSchemaVersion());
  EXPECT_EQ(Version(path_ + ".v1.bak"), 1);
  // Migrated once: opening it again makes no other copy.
  std::filesystem::remove(path_ + ".v1.bak");
  ASSERT_NE(OpenStore(), nullptr);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".v1.bak"));
}

TEST_F(SchemaTest, JobsOfTheFirstVersionAreAllThere) {
  const auto store = OpenStore();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->epoch(), "epoch-of-version-1");
  EXPECT_EQ(store->last_sequence(), 6);
  const auto done = store->GetJob("digits-0001");
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->state, JobState::kSucceeded);
  EXPECT_EQ(done->spec, std::string("\x0A\x06"
                                    "digits"));
  EXPECT_EQ(done->progress.step, 4);
  EXPECT_EQ(done->progress.loss, 0.25);
  EXPECT_EQ(done->needs.max_blocks_to_swap, 7);
  EXPECT_EQ(done->labels.at("owner"), "Zo\xC3\xAB");
  EXPECT_EQ(done->warnings, std::vector<std::string>{"a warning"});
  const auto running = store->GetJob("crash-0002");
  ASSERT_TRUE(running.ok()) << running.status();
  EXPECT_EQ(running->state, JobState::kRunning);
  EXPECT_EQ(running->attempt, 2);
  EXPECT_EQ(running->priority, 5);
  EXPECT_TRUE(std::isnan(running->progress.loss));
  const auto waiting = store->WaitingJobs();
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  ASSERT_EQ(waiting->size(), 1u);
  EXPECT_EQ(waiting->at(0).id, "later-0003");
}

TEST_F(SchemaTest, AttemptsEventsCheckpointsAndPointsOfTheFirstVersionAreAllThere) {
  const auto store = OpenStore();
  ASSERT_NE(store, nullptr);
  const auto attempts = store->ListAttempts("uid-2");
  ASSERT_TRUE(attempts.ok() && attempts->size() == 2u) << attempts.status();
  const AttemptRecord& crashed = attempts->at(attempts->at(0).number == 1 ? 0 : 1);
  EXPECT_EQ(crashed.failure.category, FailureCategory::kWorkerCrash);
  EXPECT_EQ(crashed.failure.signal, 9);
  EXPECT_TRUE(crashed.counts_as_retry);
  EXPECT_EQ(crashed.process_start_time, 5002);
  const auto checkpoints = store->ListCheckpoints("uid-2");
  ASSERT_TRUE(checkpoints.ok() && checkpoints->size() == 1u) << checkpoints.status();
  EXPECT_EQ(checkpoints->at(0).step, 2);
  EXPECT_EQ(checkpoints->at(0).manifest_sha256, "ef01");
  const auto points = store->ListMetricPoints("uid-1", {1, 4, 10});
  ASSERT_TRUE(points.ok() && points->points.size() == 2u) << points.status();
  EXPECT_EQ(points->points[0].loss, 0.5);
  EXPECT_TRUE(std::isnan(points->points[1].loss));
  const auto events = store->EventsAfter(0, "crash-0002", 100);
  ASSERT_TRUE(events.ok() && events->size() == 2u) << events.status();
  ASSERT_TRUE(events->at(1).failure.has_value());
  EXPECT_EQ(events->at(1).failure->reason, "WORKER_SIGNALLED");
}

TEST_F(SchemaTest, MigratedStoreTakesWhatTheFirstVersionDidNotKnow) {
  const auto store = OpenStore();
  ASSERT_NE(store, nullptr);
  MeasuredLink link;
  link.h2d = 24e9;
  link.measured_micros = 1;
  ASSERT_TRUE(store->SaveLink("a card", link).ok());
  const auto found = store->FindLink("a card");
  ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
  EXPECT_EQ(**found, link);
  // A job of before goes on to change, with events numbered after the old ones.
  const auto changed = store->UpdateJob("later-0003", [](JobRecord& job, JobChange&) {
    job.state = JobState::kStarting;
    return absl::OkStatus();
  });
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_GT(store->last_sequence(), 6);
}

}  // namespace
}  // namespace blockswap::server
