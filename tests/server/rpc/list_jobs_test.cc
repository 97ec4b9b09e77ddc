// SPDX-License-Identifier: Apache-2.0
// ListJobs, and replies and errors that would be too large, through a real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/base/reason.h"
#include "server/rpc/status_conversion.h"
#include "tests/server/testing/many_jobs.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ListJobsTest : public ::testing::Test {
 protected:
  void Start(const ManyJobs& jobs) {
    std::filesystem::create_directories(directory_.path() + "/state");
    const absl::Status made = MakeStore(directory_.path() + "/state/jobs.db", jobs);
    ASSERT_TRUE(made.ok()) << made;
    server_ = std::make_unique<TestServer>(directory_.path(), [](ServerConfig& config) {
      config.max_finished_jobs = 1000000;
      config.retention_days = 0;
      // Nothing runs: the jobs are what the test made of them.
      config.worker = "/bin/false";
      config.host_budget_bytes = 1;
    });
  }
  grpc::Status List(const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
    grpc::ClientContext context;
    return server_->training().ListJobs(&context, request, response);
  }
  // Names of all pages; counts them.
  std::vector<std::string> ListAll(v1::ListJobsRequest request, int* pages) {
    std::vector<std::string> names;
    *pages = 0;
    while (true) {
      v1::ListJobsResponse response;
      const grpc::Status status = List(request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      if (!status.ok()) return names;
      ++*pages;
      for (const v1::Job& job : response.jobs()) names.push_back(job.name());
      if (response.next_page_token().empty()) return names;
      request.set_page_token(response.next_page_token());
    }
  }

  TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
};

// F127: 50,000 jobs come in pages, each below the message limit of a client that changed nothing.
TEST_F(ListJobsTest, FiftyThousandJobsComeInPages) {
  Start({50000, 0, 0});
  v1::ListJobsRequest request;
  request.set_page_size(100000);  // a thousand is the most
  int pages = 0;
  const std::vector<std::string> names = ListAll(request, &pages);
  EXPECT_EQ(pages, 50);
  EXPECT_EQ(names.size(), 50000u);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 50000u);
  EXPECT_EQ(names.front(), "jobs/finished-49999");
}

// F127: where jobs are large the page ends early rather than being refused by the client.
TEST_F(ListJobsTest, PageOfLargeJobsEndsEarly) {
  Start({300, 0, 20000});
  v1::ListJobsRequest request;
  request.set_page_size(1000);
  request.set_view(v1::JOB_VIEW_FULL);
  int pages = 0;
  // The plan's text is in the message only where there is a plan; the store of this test has none.
  EXPECT_EQ(ListAll(request, &pages).size(), 300u);
  EXPECT_GE(pages, 1);
}

TEST_F(ListJobsTest, OrdersAndFiltersAreTheClientsChoice) {
  Start({20, 10, 0});
  v1::ListJobsRequest request;
  request.set_page_size(3);
  request.set_order_by("queue_position");
  int pages = 0;
  const std::vector<std::string> queue = ListAll(request, &pages);
  ASSERT_EQ(queue.size(), 10u);
  EXPECT_EQ(pages, 4);
  // Priority 4 first, the older one before the younger one.
  EXPECT_EQ(queue[0], "jobs/queued-4");
  EXPECT_EQ(queue[1], "jobs/queued-9");
  v1::ListJobsResponse response;
  ASSERT_TRUE(List(request, &response).ok());
  EXPECT_EQ(response.jobs(0).queue_position(), 1);
  EXPECT_EQ(response.jobs(2).queue_position(), 3);

  request.set_order_by("name asc");
  request.set_filter("label.team=team-1 AND terminal");
  EXPECT_THAT(ListAll(request, &pages), ElementsAre("jobs/finished-1"));
  // A token is good for its filter and order alone.
  request.set_filter("");
  ASSERT_TRUE(List(request, &response).ok());
  request.set_page_token(response.next_page_token());
  request.set_order_by("name desc");
  const grpc::Status other = List(request, &response);
  EXPECT_EQ(other.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ErrorReason(other), "PAGE_TOKEN_INVALID");
}

TEST_F(ListJobsTest, EveryFaultOfARequestIsNamed) {
  Start({1, 0, 0});
  v1::ListJobsRequest request;
  request.set_page_size(-1);
  request.set_filter("colour=red");
  request.set_order_by("size");
  v1::ListJobsResponse response;
  const grpc::Status status = List(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  std::vector<std::string> fields;
  const auto faults = ErrorViolations(status);
  for (const auto& violation : faults.field_violations()) {
    fields.push_back(violation.field());
  }
  EXPECT_THAT(fields, ElementsAre("filter", "order_by", "page_size"));
}

// F127: an error of a megabyte is cut so that its code, reason and beginning arrive.
TEST_F(ListJobsTest, LongErrorsArriveCut) {
  Start({1, 0, 0});
  v1::ListJobsRequest request;
  request.set_filter("x" + std::string(1 << 20, '\xc3'));
  v1::ListJobsResponse response;
  grpc::Status status = List(request, &response);
  EXPECT_NE(status.error_code(), grpc::StatusCode::OK);
  request.set_filter("colour=" + std::string(1 << 20, 'x'));
  status = List(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ErrorReason(status), "SPEC_INVALID");
  EXPECT_LE(status.error_message().size(), 1100u);
  ASSERT_EQ(ErrorViolations(status).field_violations_size(), 1);
  EXPECT_THAT(ErrorViolations(status).field_violations(0).description(), HasSubstr("colour"));
}

// F127: a spec of 10 MB never gets in; one above the spec's own limit is told the limit.
TEST_F(ListJobsTest, TooLargeSpecsAreRefusedWithTheLimit) {
  Start({1, 0, 0});
  v1::CreateJobRequest request = server_->Request("digits", "");
  request.mutable_spec()->mutable_model()->set_weights(std::string(10 << 20, 'w'));
  v1::Job job;
  EXPECT_EQ(server_->Create(request, &job).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  request.mutable_spec()->mutable_model()->set_weights(std::string(300 << 10, 'w'));
  const grpc::Status status = server_->Create(request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("262144"));
}

}  // namespace
}  // namespace blockswap::server
