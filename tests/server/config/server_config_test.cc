// SPDX-License-Identifier: Apache-2.0
#include "server/config/server_config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/match.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

constexpr char kProgram[] = "/opt/blockswap/bin/blockswapd";

absl::StatusOr<ServerConfig> Load(const std::vector<std::string>& arguments) {
  return LoadServerConfig(arguments, kProgram);
}

std::string Message(const std::vector<std::string>& arguments) {
  return std::string(Load(arguments).status().message());
}

class ServerConfigTest : public ::testing::Test {
 protected:
  std::string File(const std::string& text) {
    const std::string path = directory_.path() + "/config.toml";
    std::ofstream(path) << text;
    return path;
  }
  TemporaryDirectory directory_;
};

TEST_F(ServerConfigTest, EverythingHasADefault) {
  const auto config = Load({"--state-dir", "/var/x"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->http, "127.0.0.1:9464");
  EXPECT_EQ(config->models, "/var/x/models");
  EXPECT_EQ(config->datasets, "/var/x/datasets");
  EXPECT_EQ(config->outputs, "/var/x/outputs");
  EXPECT_EQ(config->worker, "/opt/blockswap/bin/blockswap-worker");
  EXPECT_FALSE(config->socket.empty());
}

TEST_F(ServerConfigTest, FlagsWinOverTheFile) {
  const std::string file = File(
      "http = \"127.0.0.1:1\"\nhost_budget = \"2GiB\"\nretry_backoff = 0.5\n"
      "offer_host = true\nmax_queued_jobs = 7\npass_environment = [\"A\", \"B\"]\n");
  const auto config = Load({"--http=127.0.0.1:2", "--config", file});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->http, "127.0.0.1:2");
  EXPECT_EQ(config->host_budget_bytes, int64_t{2} << 30);
  EXPECT_DOUBLE_EQ(config->retry_backoff_seconds, 0.5);
  EXPECT_TRUE(config->offer_host);
  EXPECT_EQ(config->max_queued_jobs, 7);
  EXPECT_EQ(config->pass_environment, (std::vector<std::string>{"A", "B"}));
}

TEST_F(ServerConfigTest, UnknownNamesAreErrorsWithASuggestion) {
  EXPECT_TRUE(absl::StrContains(Message({"--stat-dir", "/x"}), "--state-dir"));
  const std::string message =
      Message({"--config", File("http = \"127.0.0.1:1\"\nhost_budgett = \"1GiB\"\n")});
  EXPECT_TRUE(absl::StrContains(message, "host_budget")) << message;
  EXPECT_TRUE(absl::StrContains(message, ":2:")) << message;
}

TEST_F(ServerConfigTest, BadValuesAreNamed) {
  EXPECT_TRUE(absl::StrContains(Message({"--retry-backoff", "soon"}), "--retry-backoff"));
  EXPECT_TRUE(absl::StrContains(Message({"--retry-backoff", "-1"}), "--retry-backoff"));
  EXPECT_TRUE(absl::StrContains(Message({"--retry-backoff", "nan"}), "--retry-backoff"));
  EXPECT_TRUE(absl::StrContains(Message({"--host-budget", "much"}), "--host-budget"));
  EXPECT_TRUE(absl::StrContains(Message({"--max-queued-jobs", "0"}), "--max-queued-jobs"));
  EXPECT_TRUE(absl::StrContains(Message({"--offer-host", "maybe"}), "--offer-host"));
  EXPECT_TRUE(absl::StrContains(Message({"--http"}), "needs a value"));
  EXPECT_TRUE(absl::StrContains(Message({"serve"}), "unexpected argument"));
}

TEST_F(ServerConfigTest, BrokenFileIsLocated) {
  const std::string message = Message({"--config", File("http = \"127.0.0.1:1\"\nsocket = \n")});
  EXPECT_TRUE(absl::StrContains(message, "config.toml:2")) << message;
  EXPECT_FALSE(Load({"--config", directory_.path() + "/missing.toml"}).ok());
}

TEST_F(ServerConfigTest, HelpNamesEveryFlag) {
  const std::string help = ServerConfigHelp();
  for (const char* flag :
       {"--state-dir", "--socket", "--http", "--models", "--worker", "--stop-grace"}) {
    EXPECT_TRUE(absl::StrContains(help, flag)) << flag;
  }
}

}  // namespace
}  // namespace blockswap::server
