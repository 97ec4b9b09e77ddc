// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/machine_collector.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "server/metrics/server_metrics.h"
#include "tests/server/testing/metric_text.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

class MachineCollectorTest : public ::testing::Test {
 protected:
  Collector::Families Read(const Collector::Read& read) {
    auto families = read();
    EXPECT_TRUE(families.ok()) << families.status();
    return families.ok() ? *std::move(families) : Collector::Families();
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = directory_.path() + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  base::HostFactsPaths Paths() const {
    return {directory_.path() + "/proc", directory_.path() + "/cgroup"};
  }

  TemporaryDirectory directory_;
  ServerMetrics metrics_{BuildInfo{"1", "abc", "1.51"}};
};

TEST_F(MachineCollectorTest, GroupsLimitIsShownBesideTheMachines) {
  Write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\n");
  Write("proc/self/cgroup", "0::/job\n");
  Write("proc/self/status", "VmRSS: 1 kB\nCapEff: 0000000000000000\n");
  Write("cgroup/job/memory.max", "409600\n");
  Write("cgroup/job/memory.current", "102400\n");
  const auto families = Read(ReadHostMemory(metrics_.slots(), Paths()));
  EXPECT_EQ(ValueOf(families, "blockswap_host_memory_limit_bytes{source=host}"), 1024000);
  EXPECT_EQ(ValueOf(families, "blockswap_host_memory_limit_bytes{source=cgroup}"), 409600);
  EXPECT_EQ(ValueOf(families, "blockswap_host_memory_limit_bytes{source=effective}"), 409600);
  EXPECT_EQ(ValueOf(families, "blockswap_host_memory_available_bytes{source=host}"), 614400);
  EXPECT_EQ(ValueOf(families, "blockswap_host_memory_available_bytes{source=cgroup}"), 307200);
  EXPECT_EQ(ValueOf(families, "blockswap_host_memory_available_bytes{source=effective}"), 307200);
}

// F123: a limit that is not there is absent, not 0.
TEST_F(MachineCollectorTest, WithoutAGroupsLimitThereIsNoneShown) {
  Write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\n");
  const auto families = Read(ReadHostMemory(metrics_.slots(), Paths()));
  EXPECT_EQ(ValueOf(families, "blockswap_host_memory_limit_bytes{source=cgroup}"), kNoSuchSeries);
  EXPECT_EQ(ValueOf(families, "blockswap_host_memory_limit_bytes{source=effective}"), 1024000);
}

TEST_F(MachineCollectorTest, PinnedPoolIsWhatIsLockedAndWhatStillMayBe) {
  Write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n");
  Write("proc/self/status", "CapEff: 0000000000004000\n");  // may lock as it likes
  metrics_.slots().WorkerStarted({"s", "job", "s", "", "m", 1});
  MemoryUpdate memory;
  memory.host_pinned_bytes = 1000;
  metrics_.slots().Memory("s", memory);
  const auto families = Read(ReadHostMemory(metrics_.slots(), Paths()));
  EXPECT_EQ(ValueOf(families, "blockswap_pinned_pool_bytes{state=used}"), 1000);
  EXPECT_EQ(ValueOf(families, "blockswap_pinned_pool_bytes{state=total}"), 1000 + 409600);
}

TEST_F(MachineCollectorTest, MachineThatTellsNothingIsAnError) {
  EXPECT_EQ(ReadHostMemory(metrics_.slots(), Paths())().status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(MachineCollectorTest, DisksOfAllAreasThatAreThere) {
  std::ofstream(directory_.path() + "/file") << "no directory";
  const auto families =
      Read(ReadStorage({{"state", directory_.path()}, {"outputs", directory_.path() + "/none"}}));
  EXPECT_GT(ValueOf(families, "blockswap_storage_total_bytes{area=state}"), 0);
  EXPECT_GT(ValueOf(families, "blockswap_storage_free_bytes{area=state}"), 0);
  // A directory that is still to be made will lie on the disk of the one above it.
  EXPECT_EQ(ValueOf(families, "blockswap_storage_total_bytes{area=outputs}"),
            ValueOf(families, "blockswap_storage_total_bytes{area=state}"));
  EXPECT_EQ(ReadStorage({{"outputs", directory_.path() + "/file/none"}})().status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(MachineCollectorTest, EveryStateIsThereFromTheStart) {
  const auto store = JobStore::Open(directory_.path() + "/jobs.db");
  ASSERT_TRUE(store.ok()) << store.status();
  const auto families = Read(ReadStore(**store));
  for (const char* state : {"queued", "starting", "running", "suspending", "suspended",
                            "recovering", "cancelling", "succeeded", "failed", "cancelled"}) {
    EXPECT_EQ(ValueOf(families, absl::StrCat("blockswap_jobs{state=", state, "}")), 0) << state;
  }
  EXPECT_EQ(ValueOf(families, "blockswap_store_writable"), 1);
  for (const char* kind : {"read_only", "corrupt", "internal"}) {
    EXPECT_EQ(ValueOf(families, absl::StrCat("blockswap_store_errors_total{kind=", kind, "}")), 0);
  }
}

TEST_F(MachineCollectorTest, WorkersMemoryIsReadFromItsProcess) {
  metrics_.slots().WorkerStarted({"s", "job", "s", "", "m", 1, ::getpid()});
  const auto use = std::make_shared<DeviceUse>();
  EXPECT_TRUE(Read(ReadWorkers(metrics_.slots(), use)).empty());
  const std::string text = metrics_.Render();
  for (const char* kind : {"rss", "anon", "file"}) {
    EXPECT_GT(TextValueOf(text, absl::StrCat("blockswap_worker_host_memory_bytes{kind=\"", kind,
                                             "\",slot=\"s\"}")),
              0)
        << kind;
  }
}

TEST_F(MachineCollectorTest, ProcessThatHasJustEndedIsNoError) {
  metrics_.slots().WorkerStarted({"s", "job", "s", "", "m", 1, /*pid=*/0x7ffffff0});
  const auto use = std::make_shared<DeviceUse>();
  EXPECT_TRUE(ReadWorkers(metrics_.slots(), use)().ok());
  EXPECT_EQ(ReadWorkers(metrics_.slots(), use, "/no/such/proc")().status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace blockswap::server
