// SPDX-License-Identifier: Apache-2.0
#include "server/auth/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

AuditRecord Record() {
  AuditRecord record;
  record.time_micros = int64_t{1780000000} * 1000000 + 5;
  record.caller.name = "ci";
  record.caller.role = Role::kSubmitter;
  record.caller.tenant = "vision";
  record.caller.source = "token";
  record.peer = "ipv4:10.0.0.7:51234";
  record.method = "TrainingService/CancelJob";
  record.resource = "digits";
  record.decision = "allowed";
  record.request_id = "00ff";
  return record;
}

TEST(AuditLogTest, LineSaysWhoFromWhereWhatAndWhether) {
  const auto line = nlohmann::json::parse(ToJsonLine(Record()));
  EXPECT_EQ(line["time"], "2026-05-28T20:26:40.000005Z");
  EXPECT_EQ(line["caller"], "ci");
  EXPECT_EQ(line["role"], "submitter");
  EXPECT_EQ(line["tenant"], "vision");
  EXPECT_EQ(line["by"], "token");
  EXPECT_EQ(line["peer"], "ipv4:10.0.0.7:51234");
  EXPECT_EQ(line["rpc"], "TrainingService/CancelJob");
  EXPECT_EQ(line["resource"], "digits");
  EXPECT_EQ(line["decision"], "allowed");
  EXPECT_EQ(line["request_id"], "00ff");
}

// Row 39 of the fault list.
TEST(AuditLogTest, TextOfCallersCannotPretendToBeALineOrAField) {
  AuditRecord record = Record();
  record.resource = "x\",\"decision\":\"allowed\"}\n{\"caller\":\"root\x1b[2J\xe2\x80\xae\x00\xff";
  record.decision = "JOB_NOT_FOUND";
  const std::string text = ToJsonLine(record);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  for (const char c : text) EXPECT_TRUE((c >= ' ' && c < 127) || c == '\n');
  const auto line = nlohmann::json::parse(text);
  EXPECT_EQ(line["decision"], "JOB_NOT_FOUND");
  EXPECT_EQ(line["caller"], "ci");
}

TEST(AuditLogTest, LongTextIsCut) {
  AuditRecord record = Record();
  record.resource = std::string(1 << 20, 'x');
  EXPECT_LT(ToJsonLine(record).size(), 1024u);
}

TEST(AuditLogTest, LinesOfManyThreadsDoNotMixAndAreKeptOverRestarts) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/audit.jsonl";
  constexpr int kThreads = 4, kLines = 200;
  for (int start = 0; start < 2; ++start) {
    const auto log = AuditLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&log] {
        for (int k = 0; k < kLines; ++k) (*log)->Write(Record());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ((*log)->lost(), 0);
  }
  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines)
    EXPECT_EQ(nlohmann::json::parse(line)["caller"], "ci");
  EXPECT_EQ(lines, 2 * kThreads * kLines);
  struct stat facts {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

// Row 16 of the fault list: a power cut leaves half a line.
TEST(AuditLogTest, ATornLastLineIsEndedBeforeTheNextOne) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/audit.jsonl";
  std::ofstream(path) << ToJsonLine(Record()) << R"({"time":"20)";
  for (int start = 0; start < 2; ++start) {
    const auto log = AuditLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    (*log)->Write(Record());
  }
  std::ifstream file(path);
  std::vector<bool> whole;
  for (std::string line; std::getline(file, line);) whole.push_back(nlohmann::json::accept(line));
  EXPECT_EQ(whole, (std::vector<bool>{true, false, true, true}));
}

TEST(AuditLogTest, FullDiskIsCountedAndStopsNobody) {
  const auto log = AuditLog::Open("/dev/full");
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write(Record());
  (*log)->Write(Record());
  EXPECT_EQ((*log)->lost(), 2);
}

TEST(AuditLogTest, UnopenableFileSaysWhichSetting) {
  const auto log = AuditLog::Open("/nowhere/audit.jsonl");
  ASSERT_FALSE(log.ok());
  EXPECT_THAT(std::string(log.status().message()), ::testing::HasSubstr("audit_log"));
}

}  // namespace
}  // namespace blockswap::server
