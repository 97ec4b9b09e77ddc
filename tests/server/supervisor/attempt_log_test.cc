// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/attempt_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AttemptLogTest : public ::testing::Test {
 protected:
  AttemptLogWriter Writer(const AttemptLogLimits& limits = {}) {
    auto writer = AttemptLogWriter::Open(directory_.path(), 1, limits);
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  }
  static void Append(AttemptLogWriter& writer, const std::string& text) {
    writer.Append(text.data(), text.size());
  }
  AttemptLogReader Reader() const { return AttemptLogReader(directory_.path(), 1); }
  // Everything from `offset` on; checks that offsets go on without a gap unless lines were removed.
  static std::string ReadAll(AttemptLogReader& reader, int64_t offset) {
    std::string all;
    while (true) {
      const std::string text = reader.Read(&offset, 1 << 16, /*is_over=*/true);
      if (text.empty()) return all;
      all += text;
      offset += static_cast<int64_t>(text.size());
    }
  }
  int64_t BytesOnDisk() const {
    int64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      bytes += static_cast<int64_t>(entry.file_size());
    }
    return bytes;
  }
  TemporaryDirectory directory_;
};

TEST_F(AttemptLogTest, WhatIsWrittenIsReadWithItsOffsets) {
  AttemptLogWriter writer = Writer();
  Append(writer, "first\nsec");
  AttemptLogReader reader = Reader();
  int64_t offset = 0;
  EXPECT_EQ(reader.Read(&offset, 100, /*is_over=*/false), "first\n");
  offset = 6;
  EXPECT_EQ(reader.Read(&offset, 100, /*is_over=*/false), "");
  Append(writer, "ond\nthird");
  EXPECT_EQ(reader.Read(&offset, 100, /*is_over=*/false), "second\n");
  writer.Flush();
  offset = 13;
  EXPECT_EQ(reader.Read(&offset, 100, /*is_over=*/true), "third\n");
  EXPECT_EQ(writer.end(), 19);
  EXPECT_EQ(reader.end(), 19);
}

TEST_F(AttemptLogTest, ReaderThatWasThereFirstFindsTheLogOnceItBegins) {
  AttemptLogReader reader = Reader();
  EXPECT_FALSE(reader.exists());
  AttemptLogWriter writer = Writer();
  Append(writer, "hello\n");
  ASSERT_TRUE(reader.exists());
  EXPECT_EQ(ReadAll(reader, 0), "hello\n");
}

TEST_F(AttemptLogTest, LongLinesAreCutAndSayByHowMuch) {
  AttemptLogWriter writer = Writer();
  const std::string line(kMaxLogLineBytes + 1000, 'x');
  // In pieces, as they come from a pipe.
  for (size_t i = 0; i < line.size(); i += 777) Append(writer, line.substr(i, 777));
  Append(writer, "\nnext\n");
  AttemptLogReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0), absl::StrCat(std::string(kMaxLogLineBytes, 'x'),
                                             " [1000 more bytes of this line cut]\nnext\n"));
}

TEST_F(AttemptLogTest, BytesThatAreNoUtf8AreReplaced) {
  AttemptLogWriter writer = Writer();
  Append(writer, "caf\xc3\xa9 \xff\xfe ok\n");
  AttemptLogReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0), "caf\xc3\xa9 ?? ok\n");
}

// F129: redraws of a progress bar do not become thousands of lines, and no carriage return is kept.
TEST_F(AttemptLogTest, ProgressBarLeavesItsLastForm) {
  AttemptLogWriter writer = Writer();
  std::string bar;
  for (int step = 0; step < 1000000; ++step) {
    bar = absl::StrCat("\rstep ", step, " of 1000000");
    Append(writer, bar);
  }
  Append(writer, "\ndone\r\n");
  AttemptLogReader reader = Reader();
  const std::string text = ReadAll(reader, 0);
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_TRUE(absl::EndsWith(text, "step 999999 of 1000000\ndone\n"));
  // One form a ten seconds at most, the first at once.
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 20);
}

// F129: a job that prints without end; size and number of files are bounded, offsets go on, the
// tail is found at once and in little memory.
TEST_F(AttemptLogTest, FloodIsBoundedAndItsTailIsFoundAtOnce) {
  const AttemptLogLimits limits{int64_t{4} << 20, int64_t{1} << 20};
  AttemptLogWriter writer = Writer(limits);
  std::string block;
  int64_t line = 0;
  constexpr int64_t kFlood = int64_t{256} << 20;
  while (writer.end() < kFlood) {
    block.clear();
    while (block.size() < 60000) absl::StrAppend(&block, "line ", line++, " of the flood\n");
    Append(writer, block);
  }
  constexpr int64_t kTwoBlocks = 128 << 10;  // what is written between two looks at the size
  EXPECT_LE(BytesOnDisk(), limits.total_bytes + kTwoBlocks);
  AttemptLogReader reader = Reader();
  EXPECT_EQ(reader.end(), writer.end());
  EXPECT_GE(reader.begin(), writer.end() - limits.total_bytes - kTwoBlocks);
  struct rusage before {
  }, after{};
  ::getrusage(RUSAGE_SELF, &before);
  const SteadyTime start = SteadyNow();
  const int64_t offset = reader.OffsetOfLastLines(3, LineLevel::kDebug);
  const std::string tail = ReadAll(reader, offset);
  const auto took = SteadyNow() - start;
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(tail, absl::StrCat("line ", line - 3, " of the flood\nline ", line - 2,
                               " of the flood\nline ", line - 1, " of the flood\n"));
  EXPECT_LT(took, std::chrono::milliseconds(50));
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 10 << 10);  // KiB
  // From the beginning: what was removed is skipped, the rest is whole.
  int64_t from = 0;
  const std::string first = reader.Read(&from, 1 << 16, /*is_over=*/true);
  EXPECT_EQ(from, reader.begin());
  EXPECT_TRUE(absl::StartsWith(first, "line "));
  EXPECT_TRUE(absl::EndsWith(first, "\n"));
}

TEST_F(AttemptLogTest, FollowerSurvivesRotation) {
  const AttemptLogLimits limits{1 << 16, 1 << 12};
  AttemptLogWriter writer = Writer(limits);
  AttemptLogReader reader = Reader();
  std::string written, read;
  int64_t offset = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string line = absl::StrCat("line ", i, std::string(i % 60, '.'), "\n");
    Append(writer, line);
    written += line;
    if (i % 7 != 0) continue;
    while (true) {
      const int64_t before = offset;
      const std::string text = reader.Read(&offset, 1 << 10, /*is_over=*/false);
      if (text.empty()) break;
      EXPECT_EQ(offset, before) << "something was skipped";
      read += text;
      offset += static_cast<int64_t>(text.size());
    }
  }
  read += ReadAll(reader, offset);
  EXPECT_EQ(read, written);
  EXPECT_GT(reader.begin(), 0);
}

TEST_F(AttemptLogTest, NewWriterGoesOnBehindTheOldOne) {
  const AttemptLogLimits limits{1 << 14, 1 << 10};
  std::string written;
  int64_t end = 0;
  for (int round = 0; round < 10; ++round) {
    AttemptLogWriter writer = Writer(limits);
    EXPECT_EQ(writer.end(), end);
    for (int i = 0; i < 7; ++i) {
      const std::string line = absl::StrCat("round ", round, " line ", i, "\n");
      Append(writer, line);
      written += line;
    }
    end = writer.end();
  }
  AttemptLogReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0), written);
}

TEST_F(AttemptLogTest, LineThatADeadServerLeftUnfinishedIsEndedFirst) {
  std::ofstream(AttemptLogPath(directory_.path(), 1)) << "half a li";
  AttemptLogWriter writer = Writer();
  Append(writer, "whole\n");
  AttemptLogReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0), "half a li\nwhole\n");
}

TEST_F(AttemptLogTest, LinkInTheLogsPlaceIsNotFollowed) {
  const std::string elsewhere = directory_.path() + "/elsewhere";
  std::ofstream(elsewhere) << "secret\n";
  std::filesystem::create_symlink(elsewhere, AttemptLogPath(directory_.path(), 1));
  EXPECT_FALSE(AttemptLogWriter::Open(directory_.path(), 1, {}).ok());
  AttemptLogReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0), "");
  ASSERT_EQ(::mkfifo(AttemptLogPath(directory_.path(), 2).c_str(), 0600), 0);
  EXPECT_FALSE(AttemptLogWriter::Open(directory_.path(), 2, {}).ok());
}

TEST_F(AttemptLogTest, LastLinesAreFoundAcrossBlocksAndSegments) {
  AttemptLogWriter writer = Writer({int64_t{1} << 30, 1 << 17});
  std::string text;
  for (int i = 0; i < 5000; ++i)
    absl::StrAppend(&text, "line number ", i, std::string(static_cast<size_t>(i % 40), '.'), "\n");
  for (size_t i = 0; i < text.size(); i += 5000) Append(writer, text.substr(i, 5000));
  AttemptLogReader reader = Reader();
  for (const int lines : {1, 2, 100, 2500, 4999, 5000, 6000}) {
    const std::string tail = ReadAll(reader, reader.OffsetOfLastLines(lines, LineLevel::kDebug));
    EXPECT_EQ(std::count(tail.begin(), tail.end(), '\n'), std::min(lines, 5000)) << lines;
    EXPECT_TRUE(absl::EndsWith(text, tail)) << lines;
  }
  EXPECT_EQ(reader.OffsetOfLastLines(0, LineLevel::kDebug), static_cast<int64_t>(text.size()));
}

TEST_F(AttemptLogTest, LastLinesOfALevelCountWhatGoesWithThem) {
  AttemptLogWriter writer = Writer();
  const std::string failure = "[t] [error] failed\n  at a\n  at b\n";
  Append(writer, "[t] [info] one\n" + failure + "[t] [info] two\n[t] [warning] three\n");
  AttemptLogReader reader = Reader();
  const auto tail = [&](int64_t lines, LineLevel level) {
    return ReadAll(reader, reader.OffsetOfLastLines(lines, level));
  };
  EXPECT_EQ(tail(1, LineLevel::kWarning), "[t] [warning] three\n");
  EXPECT_TRUE(absl::StartsWith(tail(2, LineLevel::kWarning), "  at b\n"));
  EXPECT_TRUE(absl::StartsWith(tail(4, LineLevel::kWarning), failure));
  EXPECT_TRUE(absl::StartsWith(tail(1, LineLevel::kError), "  at b\n"));
}

TEST_F(AttemptLogTest, TimesAreFoundToTheSecond) {
  AttemptLogWriter writer = Writer();
  const int64_t before = WallMicros();
  Append(writer, "early\n");
  AttemptLogReader reader = Reader();
  EXPECT_EQ(reader.OffsetOfTime(0), 0);
  EXPECT_EQ(reader.OffsetOfTime(before), 0);
  EXPECT_EQ(reader.OffsetOfTime(WallMicros() + 10000000), reader.end());
}

TEST(LevelFilterTest, LevelsAreReadFromTheBeginningOfALine) {
  EXPECT_EQ(LevelFilter::LevelOf("[2026-11-30 19:00:00.000] [train] [warning] x"),
            LineLevel::kWarning);
  EXPECT_EQ(LevelFilter::LevelOf("ERROR: broken"), LineLevel::kError);
  EXPECT_EQ(LevelFilter::LevelOf(absl::StrCat(std::string(200, 'x'), " [error]")), std::nullopt);
  EXPECT_EQ(LevelFilter::LevelOf("step 5"), std::nullopt);
}

TEST(LevelFilterTest, LinesWithoutALevelFollowTheOneBeforeThem) {
  LevelFilter filter(LineLevel::kWarning, /*starts_inside=*/false);
  EXPECT_FALSE(filter.Passes("banner"));
  EXPECT_TRUE(filter.Passes("[error] failed"));
  EXPECT_TRUE(filter.Passes("  at a"));
  EXPECT_FALSE(filter.Passes("[info] fine"));
  EXPECT_FALSE(filter.Passes("  detail"));
  LevelFilter inside(LineLevel::kWarning, /*starts_inside=*/true);
  EXPECT_TRUE(inside.Passes("  at b"));
}

}  // namespace
}  // namespace blockswap::server
