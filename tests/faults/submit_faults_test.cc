// SPDX-License-Identifier: Apache-2.0
// Rows 22 and 23: submits that come twice, at once, and with another spec.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/testing/daemon_process.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

// There is none of that name: jobs that wait for it start no workers.
constexpr char kNoDevice[] = "cuda:9";
constexpr char kRequestId[] = "1fa459ea-ee8a-4ca4-894e-db77e160355e";

class SubmitFaultsTest : public ::testing::Test {
 protected:
  std::vector<v1::Job> Jobs() {
    DaemonClient client(directory_.path());
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    EXPECT_TRUE(client.stub().ListJobs(&context, v1::ListJobsRequest(), &response).ok());
    return {response.jobs().begin(), response.jobs().end()};
  }
  // As a client does: again, on a connection of its own, for as long as nobody answers.
  grpc::Status CreateStubbornly(const std::string& script, v1::Job* job) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (true) {
      const grpc::Status status =
          DaemonClient(directory_.path()).TryCreate(script, kRequestId, job, kNoDevice);
      tries_.fetch_add(1);
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
          std::chrono::steady_clock::now() > deadline) {
        return status;
      }
      ::poll(nullptr, 0, 2);
    }
  }

  TemporaryDirectory directory_;
  std::atomic<int> tries_{0};
};

using Row22 = SubmitFaultsTest;
using Row23 = SubmitFaultsTest;

TEST_F(Row22, ARepeatedSubmitAnswersTheSameJob) {
  DaemonProcess daemon(directory_.path());
  ASSERT_TRUE(daemon.ready());
  v1::Job first;
  ASSERT_TRUE(CreateStubbornly("steps=1", &first).ok());
  for (int i = 0; i < 5; ++i) {
    v1::Job again;
    const grpc::Status status = CreateStubbornly("steps=1", &again);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(again.uid(), first.uid());
    EXPECT_EQ(again.name(), first.name());
  }
  EXPECT_EQ(Jobs().size(), 1u);
}

// F050: replies that were lost with their server.
TEST_F(Row22, FiftyClientsAtOnceAndAServerKilledAmongThemMakeOneJob) {
  auto daemon = std::make_unique<DaemonProcess>(directory_.path());
  ASSERT_TRUE(daemon->ready());
  constexpr int kClients = 50;
  std::vector<v1::Job> jobs(kClients);
  std::vector<grpc::Status> answers(kClients);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] { answers[i] = CreateStubbornly("steps=1", &jobs[i]); });
  }
  // Some have their answer, the others are on their way.
  while (tries_.load() < 5) ::poll(nullptr, 0, 1);
  daemon->End(SIGKILL);
  daemon = std::make_unique<DaemonProcess>(directory_.path());
  EXPECT_TRUE(daemon->ready());
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> uids;
  for (size_t i = 0; i < kClients; ++i) {
    EXPECT_TRUE(answers[i].ok()) << answers[i].error_message();
    uids.insert(jobs[i].uid());
  }
  EXPECT_EQ(uids.size(), 1u);
  const std::vector<v1::Job> stored = Jobs();
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_EQ(stored[0].uid(), *uids.begin());
}

TEST_F(Row23, AnotherSpecUnderTheSameRequestIdIsRefusedAlsoInARaceAndAfterAKill) {
  auto daemon = std::make_unique<DaemonProcess>(directory_.path());
  ASSERT_TRUE(daemon->ready());
  constexpr size_t kClients = 20;
  const std::string scripts[] = {"steps=1", "steps=2"};
  std::vector<v1::Job> jobs(kClients);
  std::vector<grpc::Status> answers(kClients);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] { answers[i] = CreateStubbornly(scripts[i % 2], &jobs[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<v1::Job> stored = Jobs();
  ASSERT_EQ(stored.size(), 1u);
  const std::string winner = stored[0].spec().labels().at("fake");
  for (size_t i = 0; i < kClients; ++i) {
    if (scripts[i % 2] == winner) {
      EXPECT_TRUE(answers[i].ok()) << answers[i].error_message();
      EXPECT_EQ(jobs[i].uid(), stored[0].uid());
    } else {
      EXPECT_EQ(answers[i].error_code(), grpc::StatusCode::ALREADY_EXISTS);
      EXPECT_EQ(ErrorReason(answers[i]), "REQUEST_ID_REUSED");
    }
  }
  daemon->End(SIGKILL);
  daemon = std::make_unique<DaemonProcess>(directory_.path());
  ASSERT_TRUE(daemon->ready());
  v1::Job job;
  EXPECT_TRUE(CreateStubbornly(winner, &job).ok());
  EXPECT_EQ(job.uid(), stored[0].uid());
  const std::string& loser = scripts[winner == scripts[0] ? 1 : 0];
  const grpc::Status refused = CreateStubbornly(loser, &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ErrorReason(refused), "REQUEST_ID_REUSED");
  EXPECT_EQ(Jobs().size(), 1u);
}

}  // namespace
}  // namespace blockswap::server
