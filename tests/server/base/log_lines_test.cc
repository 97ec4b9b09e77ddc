// SPDX-License-Identifier: Apache-2.0
#include "server/base/log_lines.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include "server/base/log.h"

namespace blockswap::server {
namespace {

class LogLinesTest : public ::testing::Test {
 protected:
  // Since the test began: the counts are the process's.
  int64_t Worker(LogLevel level) const { return New(LogSource::kWorker, level); }
  int64_t Server(LogLevel level) const { return New(LogSource::kServer, level); }
  int64_t New(LogSource source, LogLevel level) const {
    return CountedLogLines().Get(source, level) -
           before_[static_cast<size_t>(source)][static_cast<size_t>(level)];
  }
  void SetUp() override {
    for (const LogSource source : {LogSource::kServer, LogSource::kWorker}) {
      for (const LogLevel level : kLogLevels) {
        before_[static_cast<size_t>(source)][static_cast<size_t>(level)] =
            CountedLogLines().Get(source, level);
      }
    }
  }

  int64_t before_[2][5] = {};
};

TEST_F(LogLinesTest, WorkersLinesCountByTheLevelTheyName) {
  WorkerLineCounter counter;
  counter.Count(
      "2026-11-30T19:00:00.000 info step 1\n2026-11-30T19:00:00.000 warning hot\n"
      "2026-11-30T19:00:00.000 error bad\nno level at all\n\n");
  EXPECT_EQ(Worker(LogLevel::kInfo), 1);
  EXPECT_EQ(Worker(LogLevel::kWarning), 1);
  EXPECT_EQ(Worker(LogLevel::kError), 1);
  EXPECT_EQ(Worker(LogLevel::kOther), 2);
}

TEST_F(LogLinesTest, LineMayComeInPieces) {
  const std::string line = "2026-11-30T19:00:00.000 warning " + std::string(100, 'x') + "\n";
  WorkerLineCounter counter;
  for (const char byte : line) counter.Count(std::string(1, byte));
  EXPECT_EQ(Worker(LogLevel::kWarning), 1);
}

TEST_F(LogLinesTest, LastLineNeedsNoEnd) {
  WorkerLineCounter counter;
  counter.Count("2026-11-30T19:00:00.000 error died");
  EXPECT_EQ(Worker(LogLevel::kError), 0);
  counter.Finish();
  counter.Finish();
  EXPECT_EQ(Worker(LogLevel::kError), 1);
}

TEST_F(LogLinesTest, OwnLinesCountWhenTheyAreWritten) {
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>()));
  spdlog::set_level(spdlog::level::warn);
  LogInfo("not written");
  LogWarning("written");
  LogError("written");
  EXPECT_EQ(Server(LogLevel::kInfo), 0);
  EXPECT_EQ(Server(LogLevel::kWarning), 1);
  EXPECT_EQ(Server(LogLevel::kError), 1);
  spdlog::set_default_logger(before);
  spdlog::set_level(spdlog::level::info);
}

}  // namespace
}  // namespace blockswap::server
