// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/testing/http_client.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// One server for all tests: stopping the web server takes up to two seconds.
class HttpServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = Start().release(); }
  static void TearDownTestSuite() { delete std::exchange(server_, nullptr); }

  static std::unique_ptr<HttpServer> Start(
      std::chrono::milliseconds patience = std::chrono::seconds(10)) {
    HttpContent content;
    content.patience = patience;
    content.metrics = [] { return std::string("some_metric 1\n"); };
    content.healthy = [] { return true; };
    content.ready = [] { return false; };
    const auto echo = [](const char* who) {
      return [who](const HttpRequest& request) {
        HttpResponse response;
        response.body = absl::StrCat(who, " ", request.path);
        for (const auto& [name, value] : request.query) {
          absl::StrAppend(&response.body, " ", name, "=", value);
        }
        return response;
      };
    };
    content.routes = {{"/", echo("page"), nullptr}, {"/api/v1/", echo("api"), nullptr}};
    content.routes.push_back({"/api/v1/watch", nullptr, [](const HttpRequest&, HttpStream& stream) {
                                while (stream.Write("data: tick\n\n")) {
                                }
                              }});
    auto server = HttpServer::Start("127.0.0.1:0", std::move(content));
    if (!server.ok()) {
      ADD_FAILURE() << server.status();
      std::abort();
    }
    return *std::move(server);
  }

  // True once so many streams are open.
  static bool WaitStreams(int wanted) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (server_->open_streams() != wanted) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  int port() const { return server_->port(); }

  static HttpServer* server_;
};

HttpServer* HttpServerTest::server_ = nullptr;

TEST_F(HttpServerTest, TheLongestPathAnswers) {
  EXPECT_EQ(HttpFetch(port(), "/app.js").body, "page /app.js");
  EXPECT_EQ(HttpFetch(port(), "/api/v1/jobs").body, "api /api/v1/jobs");
  EXPECT_EQ(HttpFetch(port(), "/metrics").body, "some_metric 1\n");
  EXPECT_EQ(HttpFetch(port(), "/healthz").status, 200);
  EXPECT_EQ(HttpFetch(port(), "/readyz").status, 503);
}

TEST_F(HttpServerTest, QueriesArriveDecodedAndInOrder) {
  EXPECT_EQ(HttpFetch(port(), "/api/v1/jobs?filter=state%3DQUEUED%20AND+active&page_size=2&x").body,
            "api /api/v1/jobs filter=state=QUEUED AND active page_size=2 x=");
}

TEST_F(HttpServerTest, OnlyReadingMethodsAreAnswered) {
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    const HttpReply reply = HttpFetch(port(), "/api/v1/jobs", method, "Content-Length: 0\r\n");
    EXPECT_EQ(reply.status, 405) << method;
    EXPECT_EQ(reply.headers.at("allow"), "GET, HEAD") << method;
  }
  const HttpReply head = HttpFetch(port(), "/metrics", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "14");
  EXPECT_EQ(head.body, "");
}

TEST_F(HttpServerTest, OtherHostNamesAreRefused) {
  EXPECT_EQ(HttpFetch(port(), "/api/v1/jobs", "GET", "Host: evil.example\r\n").status, 403);
  EXPECT_EQ(HttpFetch(port(), "/", "GET", "Host: 127.0.0.1.evil.example\r\n").status, 403);
  EXPECT_EQ(HttpFetch(port(), "/", "GET", "Host: localhost\r\n").status, 200);
}

TEST_F(HttpServerTest, EveryAnswerTellsTheBrowserToTrustNothingElse) {
  for (const char* path : {"/", "/api/v1/jobs", "/metrics", "/healthz"}) {
    const HttpReply reply = HttpFetch(port(), path);
    EXPECT_EQ(reply.headers.at("x-content-type-options"), "nosniff") << path;
    EXPECT_THAT(reply.headers.at("content-security-policy"), HasSubstr("default-src 'none'"));
    EXPECT_THAT(reply.headers.at("content-security-policy"), Not(HasSubstr("unsafe")));
    EXPECT_EQ(reply.headers.count("access-control-allow-origin"), 0u);
  }
}

TEST_F(HttpServerTest, StreamsBeyondTheLimitAreRefusedAndOthersStillServed) {
  ASSERT_TRUE(WaitStreams(0));
  std::vector<std::unique_ptr<HttpReader>> readers;
  for (int i = 0; i < HttpServer::kMaxStreams; ++i) {
    readers.push_back(std::make_unique<HttpReader>(port(), "/api/v1/watch"));
    ASSERT_THAT(readers.back()->ReadBlock().value_or(""), HasSubstr("text/event-stream"));
  }
  const HttpReply refused = HttpFetch(port(), "/api/v1/watch");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "10");
  EXPECT_EQ(HttpFetch(port(), "/healthz").status, 200);
}

TEST_F(HttpServerTest, AReaderThatLeavesEndsItsStream) {
  ASSERT_TRUE(WaitStreams(0));
  HttpReader reader(port(), "/api/v1/watch");
  ASSERT_TRUE(reader.ReadBlock().has_value());
  EXPECT_TRUE(WaitStreams(1));
  reader.Close();
  EXPECT_TRUE(WaitStreams(0));
}

TEST_F(HttpServerTest, AReaderThatTakesNothingIsCut) {
  const std::unique_ptr<HttpServer> impatient = Start(std::chrono::milliseconds(300));
  HttpReader reader(impatient->port(), "/api/v1/watch");
  ASSERT_TRUE(reader.ReadBlock().has_value());
  // The stream writes without end; nobody reads on.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (impatient->open_streams() != 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(impatient->open_streams(), 0);
}

TEST_F(HttpServerTest, StoppingEndsStreamsOfReadersThatKeepReading) {
  std::unique_ptr<HttpServer> own = Start();
  HttpReader reader(own->port(), "/api/v1/watch");
  ASSERT_TRUE(reader.ReadBlock().has_value());
  std::thread stopper([&own] { own.reset(); });
  while (reader.ReadBlock().has_value()) {
  }
  stopper.join();
}

TEST_F(HttpServerTest, WithAuthorizationOnlyTheProbesAreFree) {
  HttpContent content;
  content.metrics = [] { return std::string("some_metric 1\n"); };
  content.healthy = content.ready = [] { return true; };
  content.authorize = [](const std::string& text) { return text == "Bearer good"; };
  auto server = HttpServer::Start("127.0.0.1:0", std::move(content));
  ASSERT_TRUE(server.ok()) << server.status();
  const int its_port = (*server)->port();
  EXPECT_EQ(HttpFetch(its_port, "/healthz").status, 200);
  EXPECT_EQ(HttpFetch(its_port, "/readyz").status, 200);
  for (const char* given : {"", "Authorization: Bearer bad\r\n", "Authorization: good\r\n"}) {
    const HttpReply reply = HttpFetch(its_port, "/metrics", "GET", given);
    EXPECT_EQ(reply.status, 401) << given;
    EXPECT_EQ(reply.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(HttpFetch(its_port, "/healthz/../metrics", "GET", given).status, 401) << given;
    EXPECT_EQ(HttpFetch(its_port, "/nothing", "GET", given).status, 401) << given;
  }
  const HttpReply good = HttpFetch(its_port, "/metrics", "GET", "Authorization: Bearer good\r\n");
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.body, "some_metric 1\n");
}

TEST_F(HttpServerTest, ATakenPortFailsTheStartAndSaysWhatToDo) {
  const auto second = HttpServer::Start(absl::StrCat("127.0.0.1:", port()), HttpContent{});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("choose another with --http"));
}

TEST_F(HttpServerTest, ProbesAnswerUnderAnyNameAndShowNothingElse) {
  HttpContent content;
  content.metrics = [] { return std::string("some_metric 1\n"); };
  content.healthy = [] { return true; };
  content.ready = [] { return true; };
  const auto probes = HttpServer::Start("0.0.0.0:0", content, HttpReach::kProbes);
  ASSERT_TRUE(probes.ok()) << probes.status();
  const int port = (*probes)->port();
  for (const char* path : {"/metrics", "/healthz", "/readyz"}) {
    EXPECT_EQ(HttpFetch(port, path, "GET", "Host: blockswap.example:9465\r\n").status, 200) << path;
  }
  EXPECT_EQ(HttpFetch(port, "/").status, 404);
  EXPECT_EQ(HttpFetch(port, "/api/v1/jobs").status, 404);
  content.routes = {{"/", [](const HttpRequest&) { return HttpResponse{}; }, nullptr}};
  const auto more = HttpServer::Start("0.0.0.0:0", content, HttpReach::kProbes);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kInvalidArgument);
  content.routes.clear();
  const auto open = HttpServer::Start("0.0.0.0:0", content);
  EXPECT_EQ(open.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace blockswap::server
