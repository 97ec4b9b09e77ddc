// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/log_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

class LogStreamTest : public ::testing::Test {
 protected:
  struct Read {
    std::string text;
    std::vector<int> attempts;
    v1::JobEvent::EndReason end = v1::JobEvent::END_REASON_UNSPECIFIED;
    grpc::Status status;
  };
  Read Stream(const v1::StreamJobLogsRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto stream = server_.training().StreamJobLogs(&context, request);
    Read read;
    v1::LogChunk chunk;
    std::map<int, int64_t> offsets;
    while (stream->Read(&chunk)) {
      EXPECT_LE(chunk.text().size(), size_t{64} << 10);
      if (offsets.count(chunk.attempt()) != 0 && !chunk.text().empty()) {
        EXPECT_EQ(chunk.offset(), offsets[chunk.attempt()]);
      }
      offsets[chunk.attempt()] = chunk.offset() + static_cast<int64_t>(chunk.text().size());
      read.text += chunk.text();
      read.attempts.push_back(chunk.attempt());
      read.end = chunk.end();
    }
    read.status = stream->Finish();
    return read;
  }

  TemporaryDirectory directory_;
  TestServer server_{directory_.path()};
};

TEST_F(LogStreamTest, FollowedLogIsCompleteAndEndsWithTheJob) {
  const v1::Job job = server_.MustCreate("digits", "steps=20 lines=50");
  v1::StreamJobLogsRequest request;
  request.set_name(job.name());
  request.set_follow(true);
  const Read read = Stream(request);
  EXPECT_TRUE(read.status.ok());
  EXPECT_EQ(read.end, v1::JobEvent::END_REASON_JOB_TERMINAL);
  EXPECT_EQ(std::count(read.text.begin(), read.text.end(), '\n'), 1000);
  EXPECT_TRUE(absl::EndsWith(read.text, "attempt 1 step 20 line 49\n"));
}

TEST_F(LogStreamTest, FollowGoesOnWithTheNextAttempt) {
  const v1::Job job = server_.MustCreate("crash", "steps=4 save=1 crash_at=3 crash_attempts=1");
  v1::StreamJobLogsRequest request;
  request.set_name(job.name());
  request.set_follow(true);
  const Read read = Stream(request);
  EXPECT_TRUE(absl::StrContains(read.text, "attempt 1 step 2"));
  EXPECT_TRUE(absl::StrContains(read.text, "attempt 2 step 4"));
}

TEST_F(LogStreamTest, OffsetAndTailStartWhereTheySay) {
  const v1::Job job = server_.MustCreate("digits", "steps=10");
  server_.WaitTerminal(job.name());
  v1::StreamJobLogsRequest request;
  request.set_name(job.name());
  const std::string all = Stream(request).text;
  request.set_tail_lines(2);
  EXPECT_EQ(Stream(request).text, "attempt 1 step 9 line 0\nattempt 1 step 10 line 0\n");
  request.set_tail_lines(1000);
  EXPECT_EQ(Stream(request).text, all);
  request.set_offset(30);
  EXPECT_EQ(Stream(request).text, all.substr(30));
  request.set_offset(1 << 20);
  EXPECT_EQ(Stream(request).text, "");
  request.set_offset(-1);
  EXPECT_EQ(Stream(request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_offset(0);
  request.set_attempt(9);
  EXPECT_EQ(Stream(request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(LogStreamTest, LastLinesAreFoundAcrossBlocks) {
  const std::string path = directory_.path() + "/log";
  std::string text;
  for (int i = 0; i < 5000; ++i)
    absl::StrAppend(&text, "line number ", i, std::string(i % 40, '.'), "\n");
  for (const bool ends_with_newline : {true, false}) {
    if (!ends_with_newline) text += "unfinished";
    std::ofstream(path, std::ios::trunc) << text;
    const UniqueFd file(::open(path.c_str(), O_RDONLY));
    for (const int lines : {1, 2, 100, 4999, 5000, 6000}) {
      const std::string tail =
          text.substr(static_cast<size_t>(OffsetOfLastLines(file.get(), lines)));
      const auto newlines =
          std::count(tail.begin(), tail.end(), '\n') + (ends_with_newline ? 0 : 1);
      const int there = ends_with_newline ? 5000 : 5001;
      EXPECT_EQ(newlines, std::min(lines, there)) << lines;
    }
    EXPECT_EQ(OffsetOfLastLines(file.get(), 0), static_cast<int64_t>(text.size()));
  }
}

}  // namespace
}  // namespace blockswap::server
