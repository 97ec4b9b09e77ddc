// SPDX-License-Identifier: Apache-2.0
#include "server/config/live_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "server/base/reason.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LiveConfigTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) {
    std::ofstream(directory_.path() + "/config.toml", std::ios::trunc) << text;
  }
  std::unique_ptr<LiveConfig> Load(const std::string& text) {
    Write(text);
    auto config = LoadServerConfig(
        {"--config", directory_.path() + "/config.toml", "--bookmark-interval", "5"},
        "/opt/blockswapd");
    EXPECT_TRUE(config.ok()) << config.status();
    return std::make_unique<LiveConfig>(
        *config, [this](const ServerConfig& loaded) { applied_.push_back(loaded); });
  }
  static SettingValue Find(const LiveConfig& config, const std::string& key) {
    for (const SettingValue& setting : config.Settings()) {
      if (setting.key == key) return setting;
    }
    ADD_FAILURE() << "no setting " << key;
    return {};
  }

  TemporaryDirectory directory_;
  std::vector<ServerConfig> applied_;
};

TEST_F(LiveConfigTest, TakesOverWhatMayChangeAndKeepsTheRest) {
  const auto config = Load("max_queued_jobs = 5\nstop_grace = 1\n");
  Write("max_queued_jobs = 6\nstop_grace = 2\n");
  const auto result = config->Reload();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->changed, ElementsAre("max_queued_jobs"));
  EXPECT_THAT(result->restart_needed, ElementsAre("stop_grace"));
  ASSERT_EQ(applied_.size(), 1u);
  EXPECT_EQ(applied_[0].max_queued_jobs, 6);
  EXPECT_EQ(Find(*config, "max_queued_jobs").value, "6");
  // In effect is still the old one, and it is named again until it has changed.
  EXPECT_EQ(Find(*config, "stop_grace").value, "1");
  EXPECT_THAT(config->Reload()->restart_needed, ElementsAre("stop_grace"));
}

TEST_F(LiveConfigTest, FlagsStillWinOverTheFile) {
  const auto config = Load("bookmark_interval = 9\n");
  EXPECT_EQ(Find(*config, "bookmark_interval").value, "5");
  EXPECT_EQ(Find(*config, "bookmark_interval").origin, SettingOrigin::kFlag);
  Write("bookmark_interval = 10\n");
  EXPECT_THAT(config->Reload()->changed, IsEmpty());
}

TEST_F(LiveConfigTest, SettingThatLeavesTheFileGoesBackToItsDefault) {
  const auto config = Load("max_queued_jobs = 5\n");
  EXPECT_EQ(Find(*config, "max_queued_jobs").origin, SettingOrigin::kFile);
  Write("");
  EXPECT_THAT(config->Reload()->changed, ElementsAre("max_queued_jobs"));
  EXPECT_EQ(Find(*config, "max_queued_jobs").value, "10000");
  EXPECT_EQ(Find(*config, "max_queued_jobs").origin, SettingOrigin::kDefault);
}

TEST_F(LiveConfigTest, WrongFileChangesNothing) {
  const auto config = Load("max_queued_jobs = 5\n");
  Write("max_queued_jobs = 6\nretention_days = -1\n");
  const auto result = config->Reload();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(result.status()), "CONFIG_INVALID");
  EXPECT_TRUE(applied_.empty());
  EXPECT_EQ(Find(*config, "max_queued_jobs").value, "5");
}

TEST_F(LiveConfigTest, EverySettingHasHelpAndTakesItsOwnValueBack) {
  auto config = LoadServerConfig({}, "/opt/blockswapd");
  ASSERT_TRUE(config.ok());
  for (const SettingValue& setting : ListSettings(*config)) {
    EXPECT_FALSE(setting.help.empty()) << setting.key;
    if (!setting.reloadable) continue;
    ServerConfig copy = *config;
    EXPECT_TRUE(CopySetting(setting.key, *config, copy).ok()) << setting.key;
  }
  ServerConfig copy;
  EXPECT_FALSE(CopySetting("no_such_key", *config, copy).ok());
}

}  // namespace
}  // namespace blockswap::server
