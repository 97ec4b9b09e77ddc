// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/link_tester.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "server/base/wall_clock.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

class LinkTesterTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }
  void TearDown() override { ::unsetenv("FAKE_LINK_TEST"); }
  void Open() {
    store_.reset();
    auto store = JobStore::Open(directory_.path() + "/jobs.db");
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    devices_ = std::make_unique<DeviceTable>(nullptr, 1 << 20, /*offer_host=*/true);
  }
  static void Script(const char* word) { ::setenv("FAKE_LINK_TEST", word, /*overwrite=*/1); }
  LinkTesterOptions Options() const {
    LinkTesterOptions options;
    options.worker_binary = ::getenv("BLOCKSWAP_FAKE_WORKER");
    options.passed_environment = {"FAKE_LINK_TEST"};
    return options;
  }
  void Measure(const LinkTesterOptions& options) {
    LinkTester tester(*store_, *devices_, options);
    tester.Join();
  }
  MeasuredLink Link() { return devices_->List().at(0).link; }

  TemporaryDirectory directory_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<DeviceTable> devices_;
};

TEST_F(LinkTesterTest, DeviceGetsWhatTheWorkerMeasured) {
  Measure(Options());
  EXPECT_EQ(Link().h2d, 24e9);
  EXPECT_EQ(Link().duplex_factor, 1.5);
  EXPECT_GT(Link().measured_micros, 0);
}

TEST_F(LinkTesterTest, RunsOnceAndIsRememberedOverARestart) {
  Measure(Options());
  const MeasuredLink first = Link();
  Open();
  EXPECT_EQ(Link().h2d, 0);
  Script("fail");  // would be noticed
  Measure(Options());
  EXPECT_EQ(Link(), first);
}

TEST_F(LinkTesterTest, FailedTestLeavesTheDeviceWithoutFigures) {
  for (const char* word : {"fail", "garbage"}) {
    Script(word);
    Measure(Options());
    EXPECT_EQ(Link().h2d, 0) << word;
  }
  LinkTesterOptions options = Options();
  options.worker_binary = "/nowhere/blockswap-worker";
  Measure(options);
  EXPECT_EQ(Link().h2d, 0);
  ::unsetenv("FAKE_LINK_TEST");
  Measure(Options());  // nothing of the failures was kept
  EXPECT_EQ(Link().h2d, 24e9);
}

TEST_F(LinkTesterTest, TestThatHangsIsEndedInTime) {
  Script("hang");
  LinkTesterOptions options = Options();
  options.timeout = std::chrono::milliseconds(100);
  Measure(options);
  EXPECT_EQ(Link().h2d, 0);
}

TEST_F(LinkTesterTest, DestructionEndsATestThatIsUnderWay) {
  Script("hang");
  const SteadyTime begin = SteadyNow();
  { const LinkTester tester(*store_, *devices_, Options()); }
  EXPECT_LT(SteadyNow() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace blockswap::server
