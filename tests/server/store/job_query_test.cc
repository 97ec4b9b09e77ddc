// SPDX-License-Identifier: Apache-2.0
#include "server/store/job_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/random_text.h"
#include "server/jobs/transitions.h"
#include "server/store/job_store.h"
#include "server/store/schema.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

JobListQuery Query(const std::string& filter, const std::string& order) {
  JobListQuery query;
  query.filter = *ParseJobFilter(filter);
  query.order = *ParseJobOrder(order);
  query.limit = 50;
  return query;
}

class QueryPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto database = Database::Open(directory_.path() + "/plan.db", /*read_only=*/false);
    ASSERT_TRUE(database.ok());
    database_ = *std::move(database);
    ASSERT_TRUE(MigrateSchema(*database_, directory_.path() + "/plan.db").ok());
  }
  std::string PlanOf(const PreparedList& list) {
    PreparedList explained = list;
    explained.sql = absl::StrCat("EXPLAIN QUERY PLAN ", list.sql);
    auto statement = explained.On(*database_);
    std::string plan;
    while (true) {
      const auto row = statement.Step();
      EXPECT_TRUE(row.ok()) << row.status();
      if (!row.ok() || !*row) return plan;
      absl::StrAppend(&plan, statement.Text(3), "\n");
    }
  }
  TemporaryDirectory directory_;
  std::unique_ptr<Database> database_;
};

// What people look at all the time is read from an index in its order, nothing is sorted.
TEST_F(QueryPlanTest, CommonListsAreReadFromAnIndexInOrder) {
  for (const auto& [filter, order] :
       std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                        {"", "update_time"},
                                                        {"", "end_time"},
                                                        {"", "priority"},
                                                        {"", "name"},
                                                        {"active", ""},
                                                        {"terminal", ""},
                                                        {"terminal", "end_time"},
                                                        {"terminal", "name"},
                                                        {"state=RUNNING", ""},
                                                        {"state=SUCCEEDED", ""},
                                                        {"waiting", "queue_position"},
                                                        {"reason=HELD", ""}}) {
    for (const bool has_page : {false, true}) {
      JobListQuery query = Query(filter, order);
      if (has_page) query.after = PageKey{1000, 5, "n"};
      const std::string plan = PlanOf(PrepareList(query));
      EXPECT_THAT(plan, HasSubstr("INDEX")) << filter << "/" << order;
      EXPECT_THAT(plan, Not(HasSubstr("TEMP B-TREE"))) << filter << "/" << order << "\n" << plan;
    }
  }
}

// The others find their jobs by an index, too, whatever the order.
TEST_F(QueryPlanTest, NoListReadsTheTableOfJobsFromEndToEnd) {
  for (const std::string filter :
       {"label.team=x", "label.team=x AND label.user=y", "name:digits", "retry_of=a", "template=t",
        "create_time>=2026-01-01T00:00:00Z", "end_time>=2026-01-01T00:00:00Z AND terminal",
        "priority>=5 AND active", "state!=FAILED AND terminal"}) {
    for (const std::string order : {"", "end_time", "name"}) {
      const std::string plan = PlanOf(PrepareList(Query(filter, order)));
      EXPECT_THAT(plan, Not(HasSubstr("SCAN jobs\n"))) << filter << "/" << order << "\n" << plan;
    }
  }
}

class JobQueryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = JobStore::Open(directory_.path() + "/jobs.db");
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void Fill(int count) {
    std::mt19937 random(seed_);
    for (int i = 0; i < count; ++i) {
      JobRecord job;
      job.id = absl::StrCat("job-", i);
      job.uid = RandomUuid();
      job.name = absl::StrCat(i % 3 == 0 ? "alpha" : "beta", random() % 10);
      job.priority = static_cast<int>(random() % 5) - 2;
      job.spec_json = "{}";
      if (random() % 2 == 0) job.labels["team"] = random() % 2 == 0 ? "red" : "blue";
      if (random() % 4 == 0) job.retry_of = "job-0";
      if (random() % 4 == 0) job.template_name = "small";
      ASSERT_TRUE(store_->CreateJob(job, "", "", 1000000).ok());
      const auto state = static_cast<JobState>(1 + random() % 3);
      if (state == JobState::kStarting) {
        Change(job.id, [](JobRecord& each) { each.state = JobState::kStarting; });
      } else if (state == JobState::kRunning) {
        const int64_t end = 1 + static_cast<int64_t>(random() % 50);
        Change(job.id, [end](JobRecord& each) {
          each.state = JobState::kCancelled;
          each.end_micros = end;
        });
      }
    }
  }
  void Change(const std::string& id, const std::function<void(JobRecord&)>& change) {
    ASSERT_TRUE(store_
                    ->UpdateJob(id,
                                [&](JobRecord& job, JobChange&) {
                                  change(job);
                                  return absl::OkStatus();
                                })
                    .ok());
  }
  // All pages of `size`, joined.
  std::vector<JobRecord> Pages(JobListQuery query, int size) {
    std::vector<JobRecord> all;
    query.limit = size;
    while (true) {
      const auto page = store_->ListJobs(query);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok() || page->empty()) return all;
      all.insert(all.end(), page->begin(), page->end());
      query.after = *PageKeyFromText(PageKeyToText(PageKeyOf(query.order, page->back())));
    }
  }
  static std::string Ids(const std::vector<JobRecord>& jobs) {
    return absl::StrJoin(
        jobs, " ", [](std::string* out, const JobRecord& job) { absl::StrAppend(out, job.id); });
  }

  const unsigned seed_ = std::random_device{}();
  TemporaryDirectory directory_;
  std::unique_ptr<JobStore> store_;
};

// The slow and obviously right way: all jobs, filtered and sorted in memory.
std::vector<JobRecord> Oracle(const std::vector<JobRecord>& all, const JobListQuery& query) {
  std::vector<JobRecord> jobs;
  for (const JobRecord& job : all) {
    const bool in_queue = query.order.key != JobOrder::Key::kQueuePosition || IsWaiting(job.state);
    if (query.filter.Matches(job) && in_queue) jobs.push_back(job);
  }
  const auto before = [&](const JobRecord& a, const JobRecord& b) {
    const PageKey x = PageKeyOf(query.order, a), y = PageKeyOf(query.order, b);
    // A high priority is an early place in the queue.
    const int64_t sign = query.order.key == JobOrder::Key::kQueuePosition ? -1 : 1;
    return std::make_tuple(sign * x.number, x.text, x.created_sequence) <
           std::make_tuple(sign * y.number, y.text, y.created_sequence);
  };
  std::sort(jobs.begin(), jobs.end(), before);
  if (query.order.descending) std::reverse(jobs.begin(), jobs.end());
  return jobs;
}

TEST_F(JobQueryTest, EveryFilterAndOrderAgreesWithTheOracleOnPagesOfAnySize) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  Fill(60);
  const std::vector<JobRecord> all = store_->ListJobsAsOf(JobFilter(), 0, 1000)->jobs;
  ASSERT_EQ(all.size(), 60u);
  for (const std::string filter :
       {"", "active", "terminal", "waiting", "state=CANCELLED", "state!=QUEUED", "label.team=red",
        "name:alpha", "name:job-1", "retry_of=jobs/job-0", "template=templates/small",
        "priority>=0", "priority<=-1 AND active", "end_time>=1970-01-01T00:00:00Z",
        "create_time>=2020-01-01T00:00:00Z AND label.team=blue",
        "create_time<=2020-01-01T00:00:00Z"}) {
    for (const std::string order : {"create_time", "create_time asc", "update_time",
                                    "end_time desc", "end_time asc", "priority", "priority asc",
                                    "name", "name desc", "queue_position", "queue_position desc"}) {
      const JobListQuery query = Query(filter, order);
      const std::string expected = Ids(Oracle(all, query));
      for (const int size : {1, 7, 100}) {
        EXPECT_EQ(Ids(Pages(query, size)), expected) << filter << " / " << order << " / " << size;
      }
    }
  }
}

TEST_F(JobQueryTest, QueuePositionsAreThoseOfTheQueue) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  Fill(40);
  const std::vector<JobRecord> queue = *store_->ListJobs(Query("", "queue_position"));
  const auto waiting = store_->WaitingQueue();
  ASSERT_TRUE(waiting.ok());
  ASSERT_EQ(waiting->size(), queue.size());
  const auto positions = store_->QueuePositions(queue);
  ASSERT_TRUE(positions.ok());
  for (size_t i = 0; i < queue.size(); ++i) {
    EXPECT_EQ(waiting->at(i).id, queue[i].id);
    EXPECT_EQ(waiting->at(i).priority, queue[i].priority);
    EXPECT_EQ(positions->at(queue[i].id), static_cast<int64_t>(i) + 1);
    EXPECT_EQ(*store_->QueuePosition(queue[i]), static_cast<int64_t>(i) + 1);
  }
}

}  // namespace
}  // namespace blockswap::server
