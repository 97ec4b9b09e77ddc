// SPDX-License-Identifier: Apache-2.0
// Rows 30-32: what a client may send, as it arrives: through gRPC, with the real checker.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/faults/inspected_daemon.h"
#include "tests/faults/wire_client.h"
#include "tests/server/testing/daemon_process.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::AnyOf;
using ::testing::Contains;

constexpr char kCreate[] = "/blockswap.v1.TrainingService/CreateJob";
constexpr int64_t kMiB = int64_t{1} << 20;
// Freed memory stays in a sanitizer's quarantine: bounds say nothing there.
#ifdef BLOCKSWAP_SANITIZED
constexpr bool kMeasuresMemory = false;
#else
constexpr bool kMeasuresMemory = true;
#endif

using Row31 = InspectedDaemonTest;
using Row32 = InspectedDaemonTest;

// A process of its own, whose peak of memory is this test's alone.
TEST(Row30, MessagesOverTheLimitAndBombsAreRefusedWithoutMemory) {
  const TemporaryDirectory directory;
  DaemonProcess daemon(directory.path());
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory.path());
  EXPECT_FALSE(client.Create("steps=1").name().empty());
  const auto channel = ChannelTo(TestConfig(directory.path()).socket);
  EXPECT_TRUE(IsServing(channel));
  const int64_t before = UseOf(daemon.pid()).peak_bytes;
  const auto grown = [&] { return UseOf(daemon.pid()).peak_bytes - before; };
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    // Some 130 KiB on the wire, far below the limit.
    const grpc::Status bomb =
        CallWithBytes(channel, kCreate, std::string(128 * kMiB, '\0'), nullptr, algorithm);
    EXPECT_THAT(bomb.error_code(),
                AnyOf(grpc::StatusCode::UNIMPLEMENTED, grpc::StatusCode::RESOURCE_EXHAUSTED))
        << bomb.error_message();
    if (kMeasuresMemory) {
      EXPECT_LT(grown(), 16 * kMiB);
    }
  }
  // gRPC 1.51 looks at the limit once it has the whole message: what it takes on the way is bounded
  // by the quota of all connections together (256 MiB), and nobody parses it. It is given back: the
  // same again takes no more.
  for (const int64_t size : {5 * kMiB, 100 * kMiB, 100 * kMiB, 100 * kMiB}) {
    const grpc::Status huge =
        CallWithBytes(channel, kCreate, std::string(static_cast<size_t>(size), '\0'));
    EXPECT_EQ(huge.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << huge.error_message();
    if (kMeasuresMemory) {
      EXPECT_LT(grown(), size + 64 * kMiB);
    }
  }
  EXPECT_TRUE(IsServing(channel));
  EXPECT_EQ(client.WaitTerminal(client.Create("steps=1").name()).state(), v1::JOB_STATE_SUCCEEDED);
}

// gRPC's callback services answer UNIMPLEMENTED to what they cannot parse; no handler hears of it.
::testing::Matcher<grpc::StatusCode> IsMalformed() {
  return AnyOf(grpc::StatusCode::INTERNAL, grpc::StatusCode::INVALID_ARGUMENT,
               grpc::StatusCode::UNIMPLEMENTED);
}

// Bytes that are no message, to every call there is.
TEST_F(Row31, BytesThatAreNoMessageAreRefusedByEveryCall) {
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "\x1b";  // a group begins in a group
  const std::string malformed[] = {
      std::string("\x0a\x64"),                  // a text of 100 bytes, of which none came
      std::string("\x0a\xff\xff\xff\xff\x0f"),  // of 4 GiB
      std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),  // of -1
      std::string("\x00\x00", 2),                                   // field 0
      std::string("\x0f"),                                          // wire type 7
      std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),  // a tag without an end
      std::string("\x1c"),                                          // a group ends that never began
      nested};
  int calls = 0;
  for (const char* name : {"TrainingService", "AdminService"}) {
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
        absl::StrCat("blockswap.v1.", name));
    ASSERT_NE(service, nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string method =
          absl::StrCat("/", service->full_name(), "/", service->method(i)->name());
      // Without this, UNIMPLEMENTED below would say nothing.
      if (!service->method(i)->server_streaming()) {
        EXPECT_NE(CallWithBytes(channel_, method, "").error_code(), grpc::StatusCode::UNIMPLEMENTED)
            << method;
      }
      for (const std::string& bytes : malformed) {
        const grpc::Status status = CallWithBytes(channel_, method, bytes);
        ++calls;
        EXPECT_THAT(status.error_code(), IsMalformed()) << method << " " << status.error_message();
      }
    }
  }
  EXPECT_GT(calls, 250);
  EXPECT_TRUE(IsServing(channel_));
  EXPECT_EQ(NumJobs(), 0);
}

TEST_F(Row31, TextThatIsNotUtf8IsRefusedWhereverItStands) {
  // CreateJobRequest{spec{name}}, {spec{labels{key}}}, {request_id}: by field number, since the
  // classes would not write it.
  const auto field = [](int number, const std::string& content) {
    return absl::StrCat(std::string(1, static_cast<char>(number << 3 | 2)),
                        std::string(1, static_cast<char>(content.size())), content);
  };
  const auto number = [](const google::protobuf::Descriptor* type, const char* name) {
    return type->FindFieldByName(name)->number();
  };
  const int spec = number(v1::CreateJobRequest::descriptor(), "spec");
  const int id = number(v1::CreateJobRequest::descriptor(), "request_id");
  const std::string bad = "\xff\xfe";
  for (const std::string& bytes :
       {field(spec, field(number(v1::JobSpec::descriptor(), "name"), bad)),
        field(spec, field(number(v1::JobSpec::descriptor(), "labels"), field(1, bad))),
        field(id, bad)}) {
    const grpc::Status status = CallWithBytes(channel_, kCreate, bytes);
    EXPECT_THAT(status.error_code(), IsMalformed()) << status.error_message();
  }
  EXPECT_EQ(NumJobs(), 0);
}

TEST_F(Row31, ChoicesOfANewerClientAreNamedAndWhatIsMissingHasItsDefault) {
  v1::Job job;
  const grpc::Status empty = Create(v1::CreateJobRequest(), &job);
  EXPECT_EQ(empty.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  for (const char* field : {"name", "model.weights", "dataset.config"})
    EXPECT_THAT(FieldsOf(empty), Contains(field));
  // A field of another wire type is one that nobody knows.
  EXPECT_EQ(FieldsOf(CallWithBytes(channel_, kCreate, "\x08\x01")), FieldsOf(empty));

  v1::CreateJobRequest request;
  *request.mutable_spec() = good_;
  ASSERT_TRUE(Create(request, &job).ok());
  const std::string name = job.name();
  grpc::ClientContext list_context;
  v1::ListJobsRequest list;
  list.set_view(static_cast<v1::JobView>(99));
  v1::ListJobsResponse jobs;
  EXPECT_EQ(FieldsOf(stub_->ListJobs(&list_context, list, &jobs)), std::set<std::string>{"view"});
  grpc::ClientContext cancel_context;
  v1::CancelJobRequest cancel;
  cancel.set_name(name);
  cancel.set_mode(static_cast<v1::CancelJobRequest::Mode>(-7));
  EXPECT_EQ(FieldsOf(stub_->CancelJob(&cancel_context, cancel, &job)),
            std::set<std::string>{"mode"});
  const auto read_log = [&](const v1::StreamJobLogsRequest& log) {
    grpc::ClientContext context;
    const auto stream = stub_->StreamJobLogs(&context, log);
    v1::LogChunk chunk;
    while (stream->Read(&chunk)) {
    }
    return stream->Finish();
  };
  v1::StreamJobLogsRequest log;
  log.set_name(name);
  log.set_min_level(static_cast<v1::LogLevel>(99));
  EXPECT_EQ(FieldsOf(read_log(log)), std::set<std::string>{"min_level"});
  // None of the oneof "from": the beginning.
  log.clear_min_level();
  EXPECT_TRUE(read_log(log).ok());
}

// Sets every number there is in the message and in those it holds; returns their paths.
struct Numbers {
  double real;
  int64_t whole;
};

void SetNumbers(const Numbers& to, const std::string& prefix, Message* message,
                std::set<std::string>* paths) {
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->field(i);
    if (field->is_repeated()) continue;
    const std::string path = prefix + field->name();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        SetNumbers(to, path + ".", reflection->MutableMessage(message, field), paths);
        continue;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection->SetDouble(message, field, to.real);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection->SetInt64(message, field, to.whole);
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        reflection->SetInt32(
            message, field,
            static_cast<int32_t>(std::clamp<int64_t>(to.whole, std::numeric_limits<int32_t>::min(),
                                                     std::numeric_limits<int32_t>::max())));
        break;
      default:
        continue;
    }
    paths->insert(path);
  }
}

// One field at a time, and which zero is good: numeric_fields_test. Here all at once, over the
// wire: each is told in the same answer.
TEST_F(Row32, EveryNumberThatIsNoneIsToldInOneAnswer) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  for (const Numbers& numbers : {Numbers{std::nan(""), kLeast}, Numbers{kInfinity, kMost},
                                 Numbers{-kInfinity, kLeast}, Numbers{-1, -1}}) {
    std::set<std::string> expected;
    v1::JobSpec all = good_;
    SetNumbers(numbers, "", &all, &expected);
    ASSERT_GT(expected.size(), 20u);
    if (numbers.whole == -1) expected.erase("priority");  // one below the usual
    const grpc::Status status = CreateWith([&](auto& spec) { spec = all; });
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(ErrorReason(status), "SPEC_INVALID");
    for (const std::string& path : expected) EXPECT_THAT(FieldsOf(status), Contains(path));
  }
  EXPECT_EQ(NumJobs(), 0);
}

}  // namespace
}  // namespace blockswap::server
