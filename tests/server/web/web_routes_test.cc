// SPDX-License-Identifier: Apache-2.0
#include "server/web/web_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/web/live_json.h"
#include "server/web/page_files.h"
#include "tests/server/testing/http_client.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// One daemon for all tests: stopping the web server takes up to two seconds.
class WebRoutesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory();
    server_ = new TestServer(directory_->path(), [](ServerConfig& config) {
      config.http = "127.0.0.1:0";
      config.bookmark_seconds = 0.2;
    });
  }
  static void TearDownTestSuite() {
    delete std::exchange(server_, nullptr);
    delete std::exchange(directory_, nullptr);
  }

  int port() const { return server_->daemon().http_port(); }
  HttpReply Get(const std::string& path) const { return HttpFetch(port(), "/api/v1/" + path); }
  Json Parsed(const std::string& path) const {
    const HttpReply reply = Get(path);
    EXPECT_EQ(reply.status, 200) << path << ": " << reply.body;
    EXPECT_EQ(reply.headers.at("content-type"), "application/json; charset=utf-8") << path;
    return Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  }
  Json Refused(const std::string& path, int status) const {
    const HttpReply reply = Get(path);
    EXPECT_EQ(reply.status, status) << path << ": " << reply.body;
    const Json json = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
    return json.value("error", Json::object());
  }
  // The data of one server-sent event.
  static Json DataOf(const std::string& event) {
    const size_t at = event.find("data: ");
    return Json::parse(event.substr(at == std::string::npos ? event.size() : at + 6), nullptr,
                       /*allow_exceptions=*/false);
  }
  static std::string IdOf(const std::string& event) {
    const size_t at = event.find("id: ");
    if (at == std::string::npos) return "";
    return event.substr(at + 4, event.find('\n', at) - at - 4);
  }

  static TemporaryDirectory* directory_;
  static TestServer* server_;
};

TemporaryDirectory* WebRoutesTest::directory_ = nullptr;
TestServer* WebRoutesTest::server_ = nullptr;

TEST_F(WebRoutesTest, AJobReadsAsItsMessageDoes) {
  const v1::Job job = server_->MustCreate("plain", "steps=3 save=1 lines=2");
  server_->WaitTerminal(job.name());
  const Json json = Parsed(job.name());
  EXPECT_EQ(json["name"], job.name());
  EXPECT_EQ(json["state"], "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(json["progress"]["step"], "3");  // 64 bits are text in the JSON mapping
  EXPECT_EQ(json["spec"]["name"], "plain");
  EXPECT_EQ(Parsed(job.name() + "/attempts")["attempts"].size(), 1u);
  EXPECT_EQ(Parsed(job.name() + "/checkpoints")["checkpoints"].size(), 3u);
  EXPECT_GE(Parsed(job.name() + "/events?page_size=2")["events"].size(), 2u);
  const Json points = Parsed(job.name() + "/metrics?series=loss,seconds&max_points=2")["series"];
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0]["name"], "loss");
  EXPECT_LE(points[0]["points"].size(), 2u);
}

TEST_F(WebRoutesTest, ListsTakeTheParametersOfTheirCalls) {
  server_->WaitTerminal(server_->MustCreate("first", "steps=1").name());
  server_->WaitTerminal(server_->MustCreate("second", "steps=1").name());
  const Json page = Parsed("jobs?page_size=1&filter=state%3DSUCCEEDED&view=JOB_VIEW_BASIC");
  ASSERT_EQ(page["jobs"].size(), 1u);
  const std::string token = page["next_page_token"];
  ASSERT_FALSE(token.empty());
  const Json next =
      Parsed("jobs?page_size=1&filter=state%3DSUCCEEDED&view=JOB_VIEW_BASIC&page_token=" + token);
  EXPECT_NE(next["jobs"][0]["name"], page["jobs"][0]["name"]);
}

TEST_F(WebRoutesTest, DevicesAndServerAreThere) {
  EXPECT_EQ(Parsed("devices")["devices"][0]["name"], "devices/host");
  EXPECT_EQ(Parsed("devices/host")["name"], "devices/host");
  EXPECT_EQ(Parsed("server")["outputs_root"], directory_->path() + "/outputs");
}

TEST_F(WebRoutesTest, ErrorsNameWhatIsWrong) {
  EXPECT_EQ(Refused("jobs/no-such-job", 404)["reason"], "JOB_NOT_FOUND");
  EXPECT_EQ(Refused("nothing", 404)["reason"], "PATH_NOT_FOUND");
  EXPECT_THAT(Refused("jobs?page_sise=1", 400)["message"].get<std::string>(),
              HasSubstr("page_sise"));
  EXPECT_EQ(Refused("jobs?page_size=-1", 400)["status"], "INVALID_ARGUMENT");
  EXPECT_EQ(Refused("jobs?page_size=many", 400)["status"], "INVALID_ARGUMENT");
  EXPECT_EQ(Refused("jobs?page_token=made-up", 400)["status"], "INVALID_ARGUMENT");
  EXPECT_EQ(Get("jobs/..%2F..%2Fetc").status, 404);
}

TEST_F(WebRoutesTest, NothingThatChangesIsReachable) {
  for (const char* path :
       {"jobs/x/cancel", "jobs/x:cancel", "queue/pause", "tokens", "config/reload"}) {
    EXPECT_EQ(Get(path).status, 404) << path;
  }
  EXPECT_EQ(HttpFetch(port(), "/api/v1/jobs", "POST", "Content-Length: 0\r\n").status, 405);
}

TEST_F(WebRoutesTest, LogsComeAsTextAndGoOnWhereTheyEnded) {
  const v1::Job job = server_->MustCreate("talks", "steps=3 lines=1");
  server_->WaitTerminal(job.name());
  const Json all = Parsed(job.name() + "/logs");
  EXPECT_THAT(all["text"].get<std::string>(), HasSubstr("attempt 1 step 3 line 0"));
  EXPECT_EQ(all["attempt"], 1);
  const Json last = Parsed(job.name() + "/logs?tail_lines=1");
  EXPECT_EQ(last["text"], "attempt 1 step 3 line 0\n");
  const Json rest =
      Parsed(absl::StrCat(job.name(), "/logs?offset=", all["next_offset"].get<int64_t>()));
  EXPECT_EQ(rest["text"], "");
  EXPECT_EQ(rest["next_offset"], all["next_offset"]);
}

TEST_F(WebRoutesTest, LiveFiguresAreThoseOfTheWorker) {
  const v1::Job job = server_->MustCreate("live", "steps=4 hold_at=4");
  server_->Watch(job.name(),
                 [](const v1::JobEvent& event) { return event.progress().step() == 3; });
  const Json live = Parsed(job.name() + "/live")["live"];
  EXPECT_EQ(live["slot"], "host");
  EXPECT_TRUE(live["running"]);
  EXPECT_EQ(live["swap"]["recent"]["steps"], 2);
  EXPECT_EQ(live["swap"]["h2d_bytes"], 3000);
  LetGo(server_->Get(job.name()));
  server_->WaitTerminal(job.name());
  EXPECT_EQ(Refused("jobs/no-such-job/live", 404)["reason"], "JOB_NOT_FOUND");
}

TEST_F(WebRoutesTest, AJobThatNeverRanHasNoLiveFigures) {
  EXPECT_EQ(ToJson(std::nullopt, absl::Now()), R"({"live":null})");
}

TEST_F(WebRoutesTest, SamplesAreThePicturesOfTheJob) {
  const v1::Job job = server_->MustCreate("paints", "steps=1");
  const std::string output = server_->WaitTerminal(job.name()).output_directory();
  EXPECT_TRUE(Parsed(job.name() + "/samples")["samples"].empty());
  std::filesystem::create_directories(output + "/samples");
  const std::string png("\x89PNG\r\n\x1a\nrest", 12);
  std::ofstream(output + "/samples/step-00000001.png", std::ios::binary) << png;
  const Json samples = Parsed(job.name() + "/samples")["samples"];
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0]["step"], 1);
  const HttpReply picture = Get(job.name() + "/samples/step-00000001.png");
  EXPECT_EQ(picture.status, 200);
  EXPECT_EQ(picture.headers.at("content-type"), "image/png");
  EXPECT_EQ(picture.headers.at("x-content-type-options"), "nosniff");
  EXPECT_EQ(picture.body, png);
  EXPECT_EQ(Refused(job.name() + "/samples/fake-step", 404)["reason"], "SAMPLE_NOT_FOUND");
  EXPECT_EQ(Get(job.name() + "/samples/..%2Ffake-step").status, 404);
}

TEST_F(WebRoutesTest, TheWatchCarriesEventsWithTheirIds) {
  HttpReader reader(port(), "/api/v1/watch?include_snapshot=true");
  EXPECT_THAT(reader.ReadBlock().value_or(""), HasSubstr("200 OK"));
  EXPECT_THAT(reader.ReadBlock().value_or(""), HasSubstr("retry: 2000"));
  ASSERT_TRUE(reader.ReadUntil("TYPE_SNAPSHOT_END").has_value());
  const v1::Job job = server_->MustCreate("watched", "steps=1");
  const std::string created = reader.ReadUntil("TYPE_CREATED").value_or("");
  EXPECT_EQ(DataOf(created)["job"], job.name());
  EXPECT_THAT(created, HasSubstr("event: job\n"));
  EXPECT_NE(IdOf(created), "");
  EXPECT_THAT(reader.ReadUntil("JOB_STATE_SUCCEEDED").value_or(""), HasSubstr(job.name()));
}

TEST_F(WebRoutesTest, AWatchGoesOnAfterTheLastIdWithoutGapsOrRepeats) {
  HttpReader reader(port(), "/api/v1/watch");
  ASSERT_TRUE(reader.ReadBlock().has_value());
  const v1::Job job = server_->MustCreate("resumed", "steps=1");
  const std::string created = reader.ReadUntil("TYPE_CREATED").value_or("");
  const int64_t first = std::stoll(DataOf(created).value("sequence", "0"));
  reader.Close();
  server_->WaitTerminal(job.name());
  HttpReader again(port(), "/api/v1/watch?include_snapshot=true",
                   absl::StrCat("Last-Event-ID: ", IdOf(created), "\r\n"));
  int64_t expected = first;
  while (true) {
    const std::string event = again.ReadUntil("event: job").value_or("");
    ASSERT_NE(event, "");
    const Json data = DataOf(event);
    EXPECT_NE(data["type"], "TYPE_SNAPSHOT");  // a resumed watch has no use for it
    if (data["type"] == "TYPE_PROGRESS") continue;
    EXPECT_EQ(std::stoll(data.value("sequence", "0")), ++expected);
    if (data["state"] == "JOB_STATE_SUCCEEDED") break;
  }
}

TEST_F(WebRoutesTest, ASilentWatchMovesItsIdOn) {
  HttpReader reader(port(), "/api/v1/watch");
  const std::string bookmark = reader.ReadUntil("id: ").value_or("");
  EXPECT_THAT(bookmark, HasSubstr("event: heartbeat"));
  EXPECT_NE(IdOf(bookmark), "");
}

TEST_F(WebRoutesTest, AWatchOfOneJobEndsWithIt) {
  const v1::Job job = server_->MustCreate("ends", "steps=1");
  HttpReader reader(port(), absl::StrCat("/api/v1/watch?include_snapshot=true&job=", job.name()));
  EXPECT_THAT(reader.ReadUntil("TYPE_END").value_or(""), HasSubstr("END_REASON_JOB_TERMINAL"));
  EXPECT_THAT(reader.ReadBlock().value_or(""), HasSubstr("event: end"));
  EXPECT_FALSE(reader.ReadBlock().has_value());
}

TEST_F(WebRoutesTest, WatchesThatCannotBeAreRefusedBeforeTheyBegin) {
  EXPECT_EQ(Refused("watch?filter=nonsense", 400)["status"], "INVALID_ARGUMENT");
  EXPECT_EQ(Refused("watch?job=jobs/no-such-job", 404)["reason"], "JOB_NOT_FOUND");
  EXPECT_EQ(HttpFetch(port(), "/api/v1/watch", "GET", "Last-Event-ID: !!\r\n").status, 400);
  // An id of another filter's stream gives no rights to this one.
  EXPECT_EQ(HttpFetch(port(), "/api/v1/watch", "GET", "Last-Event-ID: AAAA\r\n").status, 400);
}

TEST_F(WebRoutesTest, ThePageIsSmallAndAsksNobodyElse) {
  size_t total = 0;
  for (const PageFile& file : PageFiles()) {
    total += file.content.size();
    const HttpReply reply = HttpFetch(port(), std::string(file.path));
    EXPECT_EQ(reply.status, 200) << file.path;
    EXPECT_EQ(reply.body, std::string(file.content)) << file.path;
    EXPECT_EQ(reply.headers.at("content-type"), std::string(file.type));
    // Addresses of other machines; a namespace is only a name.
    const std::string text(file.content);
    for (size_t at = text.find("://"); at != std::string::npos; at = text.find("://", at + 3)) {
      EXPECT_THAT(text.substr(at, 20), HasSubstr("://www.w3.org/2000/")) << file.path;
    }
  }
  EXPECT_LT(total, size_t{100} << 10);
  EXPECT_EQ(HttpFetch(port(), "/").body, HttpFetch(port(), "/index.html").body);
  EXPECT_EQ(HttpFetch(port(), "/..%2f..%2fetc/passwd").status, 404);
}

TEST(WebSwitchTest, WithoutTheWebOnlyMetricsAreServed) {
  TemporaryDirectory directory;
  TestServer server(directory.path(), [](ServerConfig& config) {
    config.http = "127.0.0.1:0";
    config.web = false;
  });
  EXPECT_EQ(HttpFetch(server.daemon().http_port(), "/metrics").status, 200);
  EXPECT_EQ(HttpFetch(server.daemon().http_port(), "/").status, 404);
  EXPECT_EQ(HttpFetch(server.daemon().http_port(), "/api/v1/jobs").status, 404);
}

TEST(WebStopTest, TheServerEndsItsWatches) {
  TemporaryDirectory directory;
  TestServer server(directory.path(), [](ServerConfig& config) { config.http = "127.0.0.1:0"; });
  HttpReader reader(server.daemon().http_port(), "/api/v1/watch");
  ASSERT_TRUE(reader.ReadBlock().has_value());
  server.daemon().Stop();
  EXPECT_THAT(reader.ReadUntil("TYPE_END").value_or(""), HasSubstr("END_REASON_SERVER_SHUTDOWN"));
  EXPECT_THAT(reader.ReadUntil("event: end").value_or(""), HasSubstr("SHUTTING_DOWN"));
}

}  // namespace
}  // namespace blockswap::server
