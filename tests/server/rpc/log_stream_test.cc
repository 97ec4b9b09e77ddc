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
        // Lines that are left out make a jump, never a step back.
        EXPECT_GE(chunk.offset(), offsets[chunk.attempt()]);
        if (request.min_level() == v1::LOG_LEVEL_UNSPECIFIED) {
          EXPECT_EQ(chunk.offset(), offsets[chunk.attempt()]);
        }
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

TEST_F(LogStreamTest, LevelsAndTimesNarrowWhatIsRead) {
  const v1::Job job = server_.MustCreate("digits", "steps=1");
  server_.WaitTerminal(job.name());
  const std::string all = "[t] [info] a\n[t] [error] b\n  at c\n[t] [debug] d\n[t] [warning] e\n";
  const std::string path = job.output_directory() + "/attempt-1.log";
  std::ofstream(path, std::ios::trunc) << all;
  v1::StreamJobLogsRequest request;
  request.set_name(job.name());
  request.set_min_level(v1::LOG_LEVEL_WARNING);
  EXPECT_EQ(Stream(request).text, "[t] [error] b\n  at c\n[t] [warning] e\n");
  request.set_min_level(v1::LOG_LEVEL_ERROR);
  EXPECT_EQ(Stream(request).text, "[t] [error] b\n  at c\n");
  request.set_min_level(v1::LOG_LEVEL_UNSPECIFIED);
  request.mutable_time()->set_seconds(1);
  EXPECT_EQ(Stream(request).text, all);
  request.mutable_time()->set_seconds(32503680000);  // the year 3000
  EXPECT_EQ(Stream(request).text, "");
}

TEST_F(LogStreamTest, ChunksSayWhereToGoOn) {
  const v1::Job job = server_.MustCreate("digits", "steps=40 lines=100");
  server_.WaitTerminal(job.name());
  v1::StreamJobLogsRequest request;
  request.set_name(job.name());
  grpc::ClientContext context;
  auto stream = server_.training().StreamJobLogs(&context, request);
  v1::LogChunk first, second;
  ASSERT_TRUE(stream->Read(&first));
  ASSERT_TRUE(stream->Read(&second));
  context.TryCancel();
  stream->Finish();
  EXPECT_EQ(first.next_offset(), static_cast<int64_t>(first.text().size()));
  EXPECT_EQ(second.offset(), first.next_offset());
  request.set_offset(first.next_offset());
  EXPECT_EQ(Stream(request).text.substr(0, 20), second.text().substr(0, 20));
}

TEST_F(LogStreamTest, OffsetBehindTheEndIsOutOfRange) {
  const v1::Job job = server_.MustCreate("digits", "steps=1");
  server_.WaitTerminal(job.name());
  v1::StreamJobLogsRequest request;
  request.set_name(job.name());
  const auto end = static_cast<int64_t>(Stream(request).text.size());
  request.set_offset(end);
  EXPECT_TRUE(Stream(request).status.ok());
  request.set_offset(end + 1);
  const grpc::Status status = Stream(request).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(ErrorReason(status), "OFFSET_OUT_OF_RANGE");
}

// F127: a log of 64 MB comes in chunks far below a megabyte.
TEST_F(LogStreamTest, LargeLogComesInChunks) {
  const v1::Job job = server_.MustCreate("digits", "steps=1");
  server_.WaitTerminal(job.name());
  const std::string line = std::string(99, 'x') + "\n";
  std::string block;
  for (int i = 0; i < 10000; ++i) block += line;
  {
    std::ofstream log(job.output_directory() + "/attempt-1.log", std::ios::trunc);
    for (int i = 0; i < 64; ++i) log << block;
  }
  v1::StreamJobLogsRequest request;
  request.set_name(job.name());
  const Read read = Stream(request);  // checks the size of each chunk
  EXPECT_TRUE(read.status.ok());
  EXPECT_EQ(read.text.size(), block.size() * 64);
}

}  // namespace
}  // namespace blockswap::server
