// SPDX-License-Identifier: Apache-2.0
// Row 16: power that goes at any moment. What a client was answered, and what a watcher has seen,
// is in the store afterwards: synchronous=FULL syncs the log before a commit returns.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/base/mutex.h"
#include "server/store/database.h"
#include "server/store/job_store.h"
#include "server/store/store_file.h"
#include "tests/fakes/recorded_disk.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

namespace fs = std::filesystem;

// Something that was promised when so many operations had been recorded.
struct Promise {
  size_t moment = 0;
  std::string job;       // its id; empty: an event
  int64_t sequence = 0;  // of the event
};

class Row16 : public ::testing::Test {
 protected:
  void SetUp() override {
    const uint64_t seed = std::random_device{}();
    random_.seed(seed);
    seed_ = absl::StrCat("seed ", seed);
  }
  std::string Fresh() {
    const std::string directory = absl::StrCat(directory_.path(), "/cut", next_++);
    fs::create_directories(directory);
    return directory;
  }

  TemporaryDirectory directory_;
  std::mt19937_64 random_;
  std::string seed_;
  int next_ = 0;
};

// Moments to cut at: each fifth promise just when it was made, and some in between.
std::vector<size_t> Moments(const std::vector<Promise>& promises, size_t last,
                            std::mt19937_64& random) {
  std::vector<size_t> moments;
  for (size_t i = 0; i < promises.size(); i += 5) moments.push_back(promises[i].moment);
  for (int i = 0; i < 25; ++i) moments.push_back(random() % (last + 1));
  return moments;
}

void ExpectKept(JobStore& store, const std::vector<Promise>& promises, size_t moment) {
  const auto check = store.Check();
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->problems.empty()) << check->problems[0];
  const auto events = store.EventsAfter(0, "", 1000000);
  ASSERT_TRUE(events.ok()) << events.status();
  for (size_t i = 0; i < events->size(); ++i) {
    ASSERT_EQ(events->at(i).sequence, static_cast<int64_t>(i) + 1);
  }
  for (const Promise& promise : promises) {
    if (promise.moment > moment) continue;
    if (promise.job.empty()) {
      EXPECT_GE(store.last_sequence(), promise.sequence) << "a watcher saw this event";
    } else {
      EXPECT_TRUE(store.GetJob(promise.job).ok()) << promise.job << " was answered";
    }
  }
}

TEST_F(Row16, WhatClientsWereAnsweredOutlivesAPowerCutAtAnyMoment) {
  SCOPED_TRACE(seed_);
  std::vector<Promise> promises;
  size_t last = 0;
  const std::string store_file = StoreFileOf(directory_.path() + "/state");
  fs::create_directories(directory_.path() + "/state");
  ASSERT_TRUE(JobStore::Open(store_file).ok());  // made, and closed again
  const RecordedDisk disk(store_file);
  auto server = std::make_unique<TestServer>(directory_.path());
  base::Mutex mutex;
  const auto promise = [&](std::string job, int64_t sequence) {
    base::MutexLock lock(mutex);
    promises.push_back({disk.moment(), std::move(job), sequence});
  };
  // Steps, checkpoints and states of a job that runs, beside jobs that only come.
  const v1::Job running = server->MustCreate("runs", "steps=60 save=10");
  promise(running.name().substr(5), 0);
  std::thread watcher([&] {
    server->Watch(running.name(), [&](const v1::JobEvent& event) {
      if (event.sequence() > 0) promise("", event.sequence());
      return false;
    });
  });
  constexpr int kClients = 3, kJobs = 25;
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < kJobs; ++i) {
        v1::CreateJobRequest request = server->Request(absl::StrCat("waits", client), "steps=1");
        request.set_request_id(
            absl::StrCat("00000000-0000-4000-8000-", 100000000000 + client * 1000 + i));
        request.mutable_spec()->set_device("cuda:9");
        v1::Job job;
        if (server->Create(request, &job).ok()) promise(job.name().substr(5), 0);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  watcher.join();
  last = disk.moment();
  const size_t writes = disk.num_direct_writes();
  server.reset();
  ASSERT_GE(promises.size(), static_cast<size_t>(kClients * kJobs));
  ASSERT_GE(disk.num_syncs(), static_cast<size_t>(kClients * kJobs));
  ASSERT_GT(writes, 0u) << "the log was never folded in: make more jobs";
  for (const size_t moment : Moments(promises, last, random_)) {
    const std::string directory = Fresh();
    disk.CutAt(moment, random_, directory);
    const auto store = JobStore::Open(StoreFileOf(directory));
    ASSERT_TRUE(store.ok()) << "after " << moment << " operations: " << store.status();
    ExpectKept(**store, promises, moment);
    fs::remove_all(directory);
  }
}

// How many of the acknowledged rows a cut just after their commit takes, at worst.
int64_t WorstLoss(const std::string& directory, const std::string& synchronous,
                  std::mt19937_64& random) {
  const std::string file = StoreFileOf(directory);
  auto database = Database::Open(file, /*read_only=*/false);
  EXPECT_TRUE(database.ok()) << database.status();
  EXPECT_TRUE((*database)->Execute("CREATE TABLE rows (bytes BLOB)").ok());
  if (!synchronous.empty()) {
    EXPECT_TRUE((*database)->Execute(absl::StrCat("PRAGMA synchronous=", synchronous)).ok());
  }
  const RecordedDisk disk(file);
  std::vector<size_t> moments;
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE((*database)->Execute("INSERT INTO rows VALUES (randomblob(3000))").ok());
    moments.push_back(disk.moment());
  }
  int64_t worst = 0;
  for (size_t i = 0; i < moments.size(); ++i) {
    const std::string copy = absl::StrCat(directory, "/cut", i);
    fs::create_directories(copy);
    disk.CutAt(moments[i], random, copy);
    const auto after = Database::Open(StoreFileOf(copy), /*read_only=*/false);
    EXPECT_TRUE(after.ok()) << after.status();
    auto query = (*after)->Prepare("SELECT COUNT(*) FROM rows");
    EXPECT_TRUE(query.Step().ok());
    worst = std::max(worst, static_cast<int64_t>(i) + 1 - query.Int(0));
  }
  return worst;
}

// The recorded disk is a disk: a store that synced less would be found out.
TEST_F(Row16, TheStoresSettingLosesNothingAndTheOneBelowItWould) {
  SCOPED_TRACE(seed_);
  EXPECT_EQ(WorstLoss(Fresh(), /*synchronous=*/"", random_), 0);
  EXPECT_GT(WorstLoss(Fresh(), "NORMAL", random_), 0);
}

}  // namespace
}  // namespace blockswap::server
