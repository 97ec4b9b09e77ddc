// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_observer.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include "tests/server/testing/metric_text.h"
#include "tests/server/testing/metrics_page.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

class CallObserverTest : public ::testing::Test {
 protected:
  // A call is counted when gRPC has let go of it: a moment after the client has its answer.
  double Await(const std::string& series, double at_least) {
    double value = kNoSuchSeries;
    const bool came = AwaitMetrics(server_.daemon().http_port(), [&](const std::string& text) {
      value = TextValueOf(text, series);
      return value >= at_least;
    });
    EXPECT_TRUE(came) << series << " is " << value;
    return value;
  }
  static std::string Labels(const std::string& method, const std::string& type,
                            const std::string& service = "blockswap.v1.TrainingService") {
    return "grpc_method=\"" + method + "\",grpc_service=\"" + service + "\",grpc_type=\"" + type +
           "\"}";
  }

  TemporaryDirectory directory_;
  TestServer server_{directory_.path(), [](ServerConfig& config) { config.http = "127.0.0.1:0"; }};
};

TEST_F(CallObserverTest, CountsCallsByMethodAndCode) {
  server_.MustCreate("job", "steps=1");
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name("jobs/none");
  v1::Job job;
  EXPECT_FALSE(server_.training().GetJob(&context, request, &job).ok());
  EXPECT_EQ(Await("grpc_server_started_total{" + Labels("CreateJob", "unary"), 1), 1);
  EXPECT_EQ(Await("grpc_server_handled_total{grpc_code=\"OK\"," + Labels("CreateJob", "unary"), 1),
            1);
  EXPECT_EQ(
      Await("grpc_server_handled_total{grpc_code=\"NotFound\"," + Labels("GetJob", "unary"), 1), 1);
  EXPECT_EQ(Await("grpc_server_handling_seconds_count{" + Labels("GetJob", "unary"), 1), 1);
}

TEST_F(CallObserverTest, StreamIsHandledWhenItEnds) {
  const v1::Job job = server_.MustCreate("job", "steps=1");
  server_.WatchToEnd(job.name());
  Await("grpc_server_started_total{" + Labels("WatchJobs", "server_stream"), 1);
  Await("grpc_server_handled_total{grpc_code=\"OK\"," + Labels("WatchJobs", "server_stream"), 1);
}

TEST_F(CallObserverTest, MethodsNobodyKnowsAreOneSeries) {
  grpc::GenericStub stub(server_.channel());
  for (const char* method : {"/no.such.Service/One", "/no.such.Service/Two"}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    grpc::CompletionQueue queue;
    const grpc::Slice slice("x");
    grpc::ByteBuffer request(&slice, 1), response;
    const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  Await("grpc_server_started_total{" + Labels("other", "unary", "other"), 2);
  std::string text;
  AwaitMetrics(server_.daemon().http_port(), [&text](const std::string& now) {
    text = now;
    return true;
  });
  EXPECT_EQ(text.find("no.such"), std::string::npos);
}

TEST(CodeNameTest, KnowsEveryCode) {
  EXPECT_STREQ(CodeName(grpc::StatusCode::OK), "OK");
  EXPECT_STREQ(CodeName(grpc::StatusCode::NOT_FOUND), "NotFound");
  EXPECT_STREQ(CodeName(grpc::StatusCode::UNAUTHENTICATED), "Unauthenticated");
  EXPECT_STREQ(CodeName(grpc::StatusCode::UNKNOWN), "Unknown");
}

}  // namespace
}  // namespace blockswap::server
