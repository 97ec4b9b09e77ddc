// SPDX-License-Identifier: Apache-2.0
// Metrics and probes of a whole daemon, over HTTP, while jobs come and go.
#include <civetweb.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "offload/base/proc_file.h"
#include "tests/server/testing/metric_text.h"
#include "tests/server/testing/metrics_page.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

void WithHttp(ServerConfig& config) { config.http = "127.0.0.1:0"; }

class MetricsPageTest : public ::testing::Test {
 protected:
  int port() { return server_.daemon().http_port(); }
  void Await(const std::string& series, double at_least) {
    double value = kNoSuchSeries;
    EXPECT_TRUE(AwaitMetrics(port(),
                             [&](const std::string& text) {
                               value = TextValueOf(text, series);
                               return value >= at_least;
                             }))
        << series << " is " << value << ", not " << at_least;
  }
  void Cancel(const v1::Job& job) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_name(job.name());
    v1::Job answer;
    EXPECT_TRUE(server_.training().CancelJob(&context, request, &answer).ok());
  }

  TemporaryDirectory directory_;
  TestServer server_{directory_.path(), WithHttp};
};

// F123: every counter that a kind of job should move is moved by it.
TEST_F(MetricsPageTest, JobsOfEveryKindMoveTheirCounters) {
  server_.WaitTerminal(server_.MustCreate("good", "steps=3 save=1").name());
  server_.WaitTerminal(server_.MustCreate("crashes", "steps=3 save=1 crash_at=2").name());
  server_.WaitTerminal(server_.MustCreate("numerics", "steps=3 exit_at=2 exit_code=14").name());
  const v1::Job cancelled = server_.MustCreate("cancelled", "steps=3 hold_at=2");
  server_.WaitState(cancelled.name(), v1::JOB_STATE_RUNNING);
  Cancel(cancelled);
  server_.WaitTerminal(cancelled.name());
  v1::Job none;
  EXPECT_FALSE(server_.Create(server_.Request("invalid", ""), &none).ok());
  EXPECT_FALSE(server_.Create(server_.Request("huge", ""), &none).ok());

  const std::pair<const char*, double> moved[] = {
      {R"(blockswap_jobs_submitted_total{result="accepted"})", 4},
      {R"(blockswap_jobs_submitted_total{result="invalid"})", 1},
      {R"(blockswap_jobs_submitted_total{result="rejected"})", 1},
      {R"(blockswap_jobs_finished_total{category="none",result="succeeded"})", 2},
      {R"(blockswap_jobs_finished_total{category="numerics",result="failed"})", 1},
      {R"(blockswap_jobs_finished_total{category="none",result="cancelled"})", 1},
      {R"(blockswap_job_restarts_total{cause="worker_crash"})", 1},
      {R"(blockswap_jobs{state="succeeded"})", 2},
      {R"(blockswap_jobs{state="failed"})", 1},
      {R"(blockswap_jobs{state="cancelled"})", 1},
      {"blockswap_job_queue_duration_seconds_count", 4},
      {R"(blockswap_job_startup_duration_seconds_count{phase="spawn"})", 5},
      // The attempt that crashes may take its word that it is ready along.
      {R"(blockswap_job_startup_duration_seconds_count{phase="load_weights"})", 4},
      {R"(blockswap_job_startup_duration_seconds_count{phase="first_step"})", 4},
      {R"(blockswap_job_duration_seconds_count{result="succeeded"})", 2},
      {R"(blockswap_job_duration_seconds_count{result="failed"})", 2},
      {R"(blockswap_job_duration_seconds_count{result="cancelled"})", 1},
      {R"(blockswap_worker_exits_total{cause="ok"})", 3},
      {R"(blockswap_worker_exits_total{cause="signal"})", 1},
      {R"(blockswap_worker_exits_total{cause="error"})", 1},
      {R"(blockswap_checkpoint_writes_total{result="ok"})", 5},
      {R"(blockswap_train_steps_total{slot="host"})", 7},
      {R"(blockswap_swap_bytes_total{direction="h2d",slot="host"})", 1000},
      {R"(blockswap_log_lines_total{level="other",source="worker"})", 8},
      {R"(blockswap_log_lines_total{level="info",source="server"})", 1},
      {R"(blockswap_store_txn_duration_seconds_count{op="write"})", 10},
      {R"(blockswap_scheduler_pass_duration_seconds_count)", 1},
      {"blockswap_events_sequence", 10},
      {"blockswap_ready", 1},
      {"blockswap_store_writable", 1},
      {R"(blockswap_storage_free_bytes{area="state"})", 1},
      {R"(blockswap_storage_free_bytes{area="outputs"})", 1},
      {R"(blockswap_storage_total_bytes{area="cache"})", 1},
      {R"(blockswap_host_memory_limit_bytes{source="effective"})", 1},
      {R"(blockswap_host_memory_available_bytes{source="host"})", 1},
      {R"(blockswap_pinned_pool_bytes{state="total"})", 0},
      {R"(blockswap_device_healthy{gpu="host",uuid=""})", 1},
      {"process_resident_memory_bytes", 1},
  };
  for (const auto& [series, at_least] : moved) Await(series, at_least);
}

TEST_F(MetricsPageTest, WorkersProcessIsReadWhileItRuns) {
  const v1::Job job = server_.MustCreate("job", "steps=3 hold_at=2");
  Await(R"(blockswap_worker_host_memory_bytes{kind="anon",slot="host"})", 1);
  Await(R"(blockswap_workers{phase="running"})", 1);
  LetGo(job);
  server_.WaitTerminal(job.name());
}

// F125: every device has its series, with no worker too.
TEST_F(MetricsPageTest, IdleDeviceHasItsSeries) {
  Await(R"(blockswap_gpu_memory_total_bytes{gpu="host",uuid=""})", 1);
  EXPECT_FALSE(absl::StrContains(MetricsPage(port()), "blockswap_worker_info"));
}

// F122: a scrape is quick, and a thousand of them leave nothing behind; no CUDA in this process.
TEST_F(MetricsPageTest, ThousandScrapesAreQuickAndLeaveNothingBehind) {
  const v1::Job job = server_.MustCreate("job", "steps=3 hold_at=2");
  Await(R"(blockswap_workers{phase="running"})", 1);
  for (int i = 0; i < 50; ++i) MetricsPage(port());
  const auto resident = [] {
    return base::ReadProcBytes("/proc/self/status", "VmRSS").value_or(0);
  };
  [[maybe_unused]] const int64_t before = resident();
  std::vector<steady_clock::duration> times;
  for (int i = 0; i < 1000; ++i) {
    const auto begin = steady_clock::now();
    EXPECT_FALSE(MetricsPage(port()).empty());
    times.push_back(steady_clock::now() - begin);
  }
  std::nth_element(times.begin(), times.begin() + 500, times.end());
  EXPECT_LT(times[500], milliseconds(100));
#ifndef BLOCKSWAP_SANITIZED  // those keep what is freed
  EXPECT_LT(resident() - before, int64_t{8} << 20);
#endif
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    EXPECT_FALSE(absl::StrContains(line, "libcuda.so")) << line;
    EXPECT_FALSE(absl::StrContains(line, "libcudart")) << line;
  }
  LetGo(job);
  server_.WaitTerminal(job.name());
}

// Row 27: many scrapers, some of which do not read, and everything else goes on.
TEST_F(MetricsPageTest, ScrapersThatDoNotReadHoldNobodyUp) {
  std::vector<HttpReader> slow;
  for (int i = 0; i < 20; ++i) slow.emplace_back(port(), "/metrics");
  const v1::Job job = server_.MustCreate("job", "steps=5 save=1");
  for (int i = 0; i < 50; ++i) EXPECT_EQ(HttpFetch(port(), "/metrics").status, 200);
  EXPECT_EQ(server_.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(HttpFetch(port(), "/healthz").status, 200);
}

// F125: alive and ready are two things.
TEST_F(MetricsPageTest, DrainingServerIsAliveButNotReady) {
  EXPECT_EQ(HttpFetch(port(), "/readyz").status, 200);
  EXPECT_EQ(HttpFetch(port(), "/healthz").status, 200);
  const v1::Job job = server_.MustCreate("job", "steps=3 hold_at=2 ignore_stop=1");
  server_.WaitState(job.name(), v1::JOB_STATE_RUNNING);
  const int http = port();
  std::thread stop([this] { server_.daemon().Stop(); });
  const auto deadline = steady_clock::now() + std::chrono::seconds(20);
  int ready = 200;
  while (ready == 200 && steady_clock::now() < deadline) ready = HttpFetch(http, "/readyz").status;
  EXPECT_EQ(ready, 503);
  EXPECT_EQ(HttpFetch(http, "/healthz").status, 200);
  EXPECT_EQ(TextValueOf(MetricsPage(http), "blockswap_ready"), 0);
  LetGo(job);
  stop.join();
}

class FullDiskPageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(directory_.path() + "/state");
    if (::mount("none", (directory_.path() + "/state").c_str(), "tmpfs", 0, "size=1m") != 0) {
      GTEST_SKIP() << "mounting a small tmpfs needs root";
    }
    mounted_ = true;
  }
  void TearDown() override {
    server_.reset();
    if (mounted_) ::umount2((directory_.path() + "/state").c_str(), MNT_DETACH);
  }

  TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
  bool mounted_ = false;
};

// F125 and row 19: a store that refuses writes is not ready, is alive, says so, and recovers.
TEST_F(FullDiskPageTest, ReadOnlyStoreIsAliveButNotReady) {
  server_ = std::make_unique<TestServer>(directory_.path(), WithHttp);
  const int port = server_->daemon().http_port();
  const std::string filler = directory_.path() + "/state/filler";
  {
    std::ofstream file(filler);
    const std::string block(4096, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())) && file.flush()) {
    }
  }
  v1::Job job;
  for (int i = 0;
       i < 2000 && server_->Create(server_->Request(absl::StrCat("j", i), "hold_at=1"), &job).ok();
       ++i) {
  }
  EXPECT_TRUE(AwaitMetrics(port, [](const std::string& text) {
    return TextValueOf(text, "blockswap_store_writable") == 0 &&
           TextValueOf(text, R"(blockswap_store_errors_total{kind="read_only"})") >= 1;
  }));
  EXPECT_EQ(HttpFetch(port, "/readyz").status, 503);
  EXPECT_EQ(HttpFetch(port, "/healthz").status, 200);
  std::filesystem::remove(filler);
  EXPECT_TRUE(AwaitMetrics(port, [](const std::string& text) {
    return TextValueOf(text, "blockswap_store_writable") == 1;
  }));
  EXPECT_EQ(HttpFetch(port, "/readyz").status, 200);
}

class PortTest : public ::testing::Test {
 protected:
  absl::Status Start(const std::string& directory, const std::string& http, bool optional = false) {
    ServerConfig config = TestConfig(directory);
    config.http = http;
    config.http_optional = optional;
    auto daemon = Daemon::Start(config, std::make_unique<ScriptedChecker>());
    if (daemon.ok()) port_ = (*daemon)->http_port();
    return daemon.status();
  }
  static std::string OneLine(const absl::Status& status) {
    const std::string message(status.message());
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }

  TemporaryDirectory first_, second_;
  int port_ = 0;
};

// F054 and row 25: a taken port ends the start with one line, before any job is touched.
TEST_F(PortTest, TakenPortEndsTheStartBeforeAnyJobIsTouched) {
  TestServer holder(first_.path(), WithHttp);
  std::string name;
  {
    TestServer server(second_.path());
    const v1::Job job = server.MustCreate("job", "steps=3 hold_at=2");
    server.WaitState(job.name(), v1::JOB_STATE_RUNNING);
    name = job.name();
  }
  const std::string taken = absl::StrCat("127.0.0.1:", holder.daemon().http_port());
  const absl::Status refused = Start(second_.path(), taken);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_TRUE(absl::StrContains(OneLine(refused), taken)) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "in use")) << refused;
  // Still suspended or queued as the orderly stop left it: no attempt was begun.
  TestServer again(second_.path(), [](ServerConfig& config) { config.http = "off"; });
  EXPECT_LE(again.Get(name).attempt(), 2);
}

TEST_F(PortTest, OptionalPortThatIsTakenIsAWarning) {
  TestServer holder(first_.path(), WithHttp);
  const std::string taken = absl::StrCat("127.0.0.1:", holder.daemon().http_port());
  EXPECT_TRUE(Start(second_.path(), taken, /*optional=*/true).ok());
  EXPECT_EQ(port_, 0);
}

TEST_F(PortTest, PortZeroIsAnyAndWrittenDown) {
  EXPECT_TRUE(Start(first_.path(), "127.0.0.1:0").ok());
  EXPECT_GT(port_, 0);
  std::ifstream file(TestConfig(first_.path()).state_dir + "/http.port");
  int written = 0;
  file >> written;
  EXPECT_EQ(written, port_);
}

TEST_F(PortTest, SixthVersionsLoopbackWorks) {
  if (::access("/proc/net/if_inet6", F_OK) != 0) GTEST_SKIP() << "the kernel has no IPv6";
  const absl::Status started = Start(first_.path(), "[::1]:0");
  if (mg_check_feature(MG_FEATURES_IPV6) == 0) {
    EXPECT_THAT(started.ToString(), HasSubstr("has no IPv6; use 127.0.0.1"));
    return;
  }
  EXPECT_TRUE(started.ok()) << started;
  EXPECT_GT(port_, 0);
}

}  // namespace
}  // namespace blockswap::server
