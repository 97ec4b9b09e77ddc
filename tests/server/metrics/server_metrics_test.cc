// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/server_metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "offload/base/proc_file.h"
#include "server/metrics/http_server.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

WorkerStep Step(int64_t step) {
  WorkerStep report;
  report.step = step;
  report.loss = 0.5;
  report.seconds = 0.1;
  report.samples = 2;
  report.swap.h2d_bytes = 1000 * step;
  report.swap.hits = 3 * step;
  report.swap.forward_stall_seconds = 0.01;
  return report;
}

MemoryUpdate Memory() {
  MemoryUpdate memory;
  for (const char* purpose : {"ring", "resident", "activations", "adapter", "optimizer"}) {
    memory.planned_bytes[purpose] = memory.allocated_bytes[purpose] = memory.peak_bytes[purpose] =
        1000;
  }
  memory.device_budget_bytes = 6000;
  memory.host_rss_bytes = memory.host_pinned_bytes = memory.host_master_bytes = 2000;
  return memory;
}

// One job of one step, from start to end, as the scheduler reports it.
void RunOneStepJob(ServerMetrics& metrics, int number) {
  metrics.JobSubmitted("accepted");
  metrics.JobQueuedFor(0.1);
  metrics.slots().WorkerStarted(
      {"host", absl::StrCat("job-", number), "host", "", "qwen_image", 1});
  metrics.slots().Heartbeat("host", number);
  metrics.slots().Ready("host", 0, 1);
  metrics.slots().Memory("host", Memory());
  metrics.slots().Step("host", Step(1), number);
  metrics.slots().CheckpointWritten("host", 100, 0.1, number);
  metrics.slots().WorkerEnded("host");
  metrics.WorkerExited("ok");
  metrics.AttemptEnded("succeeded", 1);
  metrics.JobFinished("succeeded", FailureCategory::kNone);
}

std::map<std::string, double> Counters(const std::string& text) {
  std::map<std::string, double> counters;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    const std::string name(line.substr(0, space));
    if (absl::StrContains(name, "_total") && !absl::StartsWith(name, "process_")) {
      counters[name] = std::atof(std::string(line.substr(space + 1)).c_str());
    }
  }
  return counters;
}

class ServerMetricsTest : public ::testing::Test {
 protected:
  ServerMetrics metrics_{BuildInfo{"1", "abc", "1.51"}};
};

// F053: series and memory level off however many jobs pass; counters never go down.
TEST_F(ServerMetricsTest, FiveThousandJobsLeaveAsManySeriesAsFifty) {
  for (int job = 0; job < 50; ++job) RunOneStepJob(metrics_, job);
  const int64_t series = metrics_.CountSeries();
  [[maybe_unused]] const int64_t resident =
      base::ReadProcBytes("/proc/self/status", "VmRSS").value_or(0);
  std::map<std::string, double> before = Counters(metrics_.Render());
  for (int job = 50; job < 5000; ++job) {
    RunOneStepJob(metrics_, job);
    if (job % 1000 != 0) continue;
    std::map<std::string, double> now = Counters(metrics_.Render());
    for (const auto& [name, value] : before) EXPECT_GE(now[name], value) << name;
    before = std::move(now);
  }
  EXPECT_EQ(metrics_.CountSeries(), series);
  EXPECT_LT(series, 2000);
#ifndef BLOCKSWAP_SANITIZED
  // A sanitizer keeps what was freed, to see that nobody uses it.
  const int64_t grown = base::ReadProcBytes("/proc/self/status", "VmRSS").value_or(0) - resident;
  EXPECT_LT(grown, int64_t{8} << 20);
#endif
  EXPECT_EQ(Counters(metrics_.Render())["blockswap_train_steps_total{slot=\"host\"}"], 5000);
  EXPECT_EQ(
      Counters(metrics_.Render())["blockswap_swap_bytes_total{direction=\"h2d\",slot=\"host\"}"],
      5000 * 1000);
}

// F053: the only series that names a job goes with it.
TEST_F(ServerMetricsTest, FinishedJobsInfoSeriesIsRemoved) {
  RunOneStepJob(metrics_, 1);
  EXPECT_TRUE(absl::StrContains(metrics_.Render(), "job=\"job-1\""));
  RunOneStepJob(metrics_, 2);
  EXPECT_FALSE(absl::StrContains(metrics_.Render(), "job=\"job-1\""));
  EXPECT_TRUE(absl::StrContains(metrics_.Render(), "job=\"job-2\""));
  metrics_.slots().RemoveInfo("host");
  EXPECT_FALSE(absl::StrContains(metrics_.Render(), "job-2"));
}

TEST_F(ServerMetricsTest, JobNamesAppearOnOneSeriesOnly) {
  RunOneStepJob(metrics_, 77);
  int lines = 0;
  for (absl::string_view line : absl::StrSplit(metrics_.Render(), '\n')) {
    if (!absl::StrContains(line, "job-77")) continue;
    ++lines;
    EXPECT_TRUE(absl::StartsWith(line, "blockswap_worker_info{"));
  }
  EXPECT_EQ(lines, 1);
}

TEST_F(ServerMetricsTest, CountersGoOnWhenAWorkerStartsFromZero) {
  metrics_.slots().WorkerStarted({"host", "a", "host", "", "m", 1});
  metrics_.slots().Step("host", Step(5), 1);
  metrics_.slots().WorkerStarted({"host", "a", "host", "", "m", 2});
  metrics_.slots().Step("host", Step(2), 1);
  EXPECT_EQ(
      Counters(metrics_.Render())["blockswap_swap_bytes_total{direction=\"h2d\",slot=\"host\"}"],
      7000);
}

TEST_F(ServerMetricsTest, PeaksStayUntilTheSlotsNextAttempt) {
  const auto value = [this](const std::string& series) {
    const std::string text = metrics_.Render();
    const size_t at = text.find(absl::StrCat("\n", series, " "));
    EXPECT_NE(at, std::string::npos) << series;
    return at == std::string::npos ? -1.0 : std::atof(text.c_str() + at + series.size() + 2);
  };
  const std::string peak =
      "blockswap_worker_device_memory_use_peak_bytes{purpose=\"ring\",slot=\"host\"}";
  const std::vector<std::string> of_the_moment = {
      "blockswap_worker_device_memory_use_bytes{purpose=\"ring\",slot=\"host\"}",
      "blockswap_worker_memory_plan_bytes{slot=\"host\",what=\"ring\",where=\"device\"}",
      "blockswap_worker_device_memory_budget_bytes{slot=\"host\"}",
      "blockswap_worker_host_memory_bytes{kind=\"rss\",slot=\"host\"}",
      "blockswap_worker_host_memory_bytes{kind=\"pinned\",slot=\"host\"}",
      "blockswap_worker_host_memory_bytes{kind=\"masters\",slot=\"host\"}"};
  metrics_.slots().WorkerStarted({"host", "a", "host", "", "m", 1});
  metrics_.slots().Memory("host", Memory());
  EXPECT_EQ(value(peak), 1000);
  for (const std::string& series : of_the_moment) EXPECT_GT(value(series), 0) << series;
  metrics_.slots().WorkerEnded("host");
  EXPECT_EQ(value(peak), 1000);
  for (const std::string& series : of_the_moment) EXPECT_EQ(value(series), 0) << series;
  metrics_.slots().WorkerStarted({"host", "a", "host", "", "m", 2});
  EXPECT_EQ(value(peak), 0);
}

TEST_F(ServerMetricsTest, AnAttemptLeavesTheOtherSlotsMemoryAlone) {
  metrics_.slots().WorkerStarted({"gpu0", "a", "gpu0", "", "m", 1});
  metrics_.slots().Memory("gpu0", Memory());
  const auto of_gpu0 = [this] {
    std::vector<std::string> lines;
    for (absl::string_view line : absl::StrSplit(metrics_.Render(), '\n')) {
      if (absl::StrContains(line, "memory") && absl::StrContains(line, "slot=\"gpu0\""))
        lines.emplace_back(line);
    }
    return lines;
  };
  const std::vector<std::string> before = of_gpu0();
  RunOneStepJob(metrics_, 1);
  EXPECT_EQ(of_gpu0(), before);
  EXPECT_FALSE(before.empty());
}

// What promtool says about the text; empty when nothing is wrong.
std::string Promtool(const std::string& text) {
  TemporaryDirectory directory;
  const std::string file = directory.path() + "/metrics";
  std::ofstream(file) << text;
  const std::string command =
      absl::StrCat("promtool check metrics < ", file, " > ", file, ".out 2>&1");
  const int result = std::system(command.c_str());
  std::stringstream output;
  output << std::ifstream(file + ".out").rdbuf();
  return result == 0 ? output.str() : absl::StrCat("exit status ", result, ": ", output.str());
}

TEST_F(ServerMetricsTest, PromtoolFindsNothingWrong) {
  if (::access("/usr/bin/promtool", X_OK) != 0) GTEST_SKIP() << "promtool is not installed";
  RunOneStepJob(metrics_, 1);
  metrics_.SchedulerPass(0.1);
  metrics_.StoreTransaction(true, 0.1);
  EXPECT_EQ(Promtool(metrics_.Render()), "");
}

// F051: one label may not cost the whole scrape, and its value round-trips.
TEST_F(ServerMetricsTest, LabelsOfAnyTextLeaveThePageReadable) {
  if (::access("/usr/bin/promtool", X_OK) != 0) GTEST_SKIP() << "promtool is not installed";
  const std::pair<std::string, std::string> texts[] = {
      {"a \"quote\"", "a \\\"quote\\\""},
      {"back\\slash", "back\\\\slash"},
      {"line\nfeed", "line\\nfeed"},
      {"tab\there", "tab\there"},
      {"crab \xf0\x9f\xa6\x80", "crab \xf0\x9f\xa6\x80"},
      {"bad \xff byte", "bad ? byte"},
      {std::string(10240, 'x'), std::string(10240, 'x')}};
  for (const auto& [text, escaped] : texts) {
    metrics_.slots().WorkerStarted({"host", text, "host", "", text, 1});
    const std::string page = metrics_.Render();
    EXPECT_EQ(Promtool(page), "") << text;
    EXPECT_TRUE(absl::StrContains(page, absl::StrCat("job=\"", escaped, "\""))) << text;
    EXPECT_TRUE(absl::StrContains(page, absl::StrCat("model=\"", escaped, "\""))) << text;
  }
}

TEST_F(ServerMetricsTest, RefusedCallersCountByKnownReasonsOnly) {
  metrics_.AuthFailed("token_expired");
  metrics_.AuthFailed("token_expired");
  metrics_.AuthFailed("made up \"");
  std::map<std::string, double> counters = Counters(metrics_.Render());
  EXPECT_EQ(counters["blockswap_auth_failures_total{reason=\"token_expired\"}"], 2);
  EXPECT_EQ(counters["blockswap_auth_failures_total{reason=\"other\"}"], 1);
}

TEST_F(ServerMetricsTest, SamplingIsAPhaseFromItsBeginToItsEnd) {
  const SteadyTime begin{std::chrono::seconds(100)};
  metrics_.slots().Phase("host", "sampling", begin);
  metrics_.slots().Phase("host", "training", begin + std::chrono::seconds(3));
  metrics_.slots().Phase("host", "checkpoint", begin + std::chrono::seconds(9));
  EXPECT_EQ(
      Counters(
          metrics_.Render())["blockswap_train_phase_seconds_total{phase=\"sample\",slot=\"host\"}"],
      3);
}

TEST_F(ServerMetricsTest, TextIsMadeAnewOnlyWhenItIsOlder) {
  const auto first = metrics_.RenderAtMost(std::chrono::hours(1));
  EXPECT_EQ(metrics_.RenderAtMost(std::chrono::hours(1)), first);
  EXPECT_NE(metrics_.RenderAtMost(std::chrono::milliseconds(0)), first);
}

}  // namespace
}  // namespace blockswap::server
