// SPDX-License-Identifier: Apache-2.0
#include "server/web/web_routes.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "server/base/reason.h"
#include "server/rpc/json_answer.h"
#include "server/web/live_json.h"
#include "server/web/page_files.h"
#include "server/web/sample_files.h"

namespace blockswap::server {
namespace {

using SteadyClock = std::chrono::steady_clock;

// How soon a stream notices that the server stops.
constexpr std::chrono::milliseconds kPoll{500};

HttpResponse Page(const HttpRequest& request) {
  const std::string path = request.path == "/" ? "/index.html" : request.path;
  HttpResponse response;
  for (const PageFile& file : PageFiles()) {
    if (path != file.path) continue;
    response.type = std::string(file.type);
    response.body = std::string(file.content);
    return response;
  }
  response.status = 404;
  response.body = "not found\n";
  return response;
}

HttpResponse Samples(const std::string& output_directory) {
  nlohmann::json samples = nlohmann::json::array();
  for (const SampleFile& file : ListSamples(output_directory)) {
    samples.push_back({{"name", file.name}, {"step", file.step}, {"bytes", file.bytes}});
  }
  return JsonAnswer(nlohmann::json({{"samples", samples}}).dump());
}

// jobs/*/live, jobs/*/samples and jobs/*/samples/*: figures and files that no call has. Who may
// read the job may read them.
HttpResponse JobPart(JsonGateway& gateway, const LiveFigures& live, const HttpRequest& request,
                     const std::vector<std::string>& segments) {
  const std::string& job = segments[1];
  const absl::StatusOr<std::string> directory = gateway.OutputDirectory(job, request);
  if (!directory.ok()) return JsonError(directory.status());
  if (segments[2] == "live") return JsonAnswer(ToJson(live.Find(job), absl::Now()));
  if (segments.size() == 3) return Samples(*directory);
  absl::StatusOr<std::string> picture = ReadSample(*directory, segments[3]);
  if (!picture.ok()) return JsonError(picture.status());
  HttpResponse response;
  response.type = "image/png";
  response.body = *std::move(picture);
  return response;
}

HttpResponse Api(JsonGateway& gateway, const LiveFigures& live, const HttpRequest& request) {
  std::vector<std::string> segments = absl::StrSplit(request.path, '/');
  segments.erase(segments.begin(), segments.begin() + 3);  // "", "api", "v1"
  const bool is_part = (segments.size() == 3 && segments[0] == "jobs" &&
                        (segments[2] == "live" || segments[2] == "samples")) ||
                       (segments.size() == 4 && segments[0] == "jobs" && segments[2] == "samples");
  return is_part ? JobPart(gateway, live, request, segments) : gateway.Answer(request);
}

std::string EventText(const WatchItem& item) {
  std::string text;
  if (!item.id.empty()) absl::StrAppend(&text, "id: ", item.id, "\n");
  switch (item.kind) {
    case WatchItem::Kind::kEvent:
      absl::StrAppend(&text, "event: job\ndata: ", item.json, "\n\n");
      break;
    case WatchItem::Kind::kEnd:
      absl::StrAppend(&text, "event: end\ndata: ", item.json.empty() ? "{}" : item.json, "\n\n");
      break;
    default:
      absl::StrAppend(&text, "event: heartbeat\ndata: {}\n\n");
  }
  return text;
}

void Watch(JsonGateway& gateway, const WebOptions& options, const HttpRequest& request,
           HttpStream& stream) {
  absl::StatusOr<std::unique_ptr<JsonWatch>> watch = gateway.Watch(request);
  if (!watch.ok()) return stream.Refuse(JsonError(watch.status()));
  // The browser learns at once that it is connected, and how soon to come back after a break.
  if (!stream.Write("retry: 2000\nevent: heartbeat\ndata: {}\n\n")) return;
  SteadyClock::time_point last_write = SteadyClock::now();
  while (stream.is_open()) {
    const WatchItem item = (*watch)->Next(std::min(kPoll, options.heartbeat));
    const bool is_idle = item.kind == WatchItem::Kind::kIdle;
    if (is_idle && SteadyClock::now() - last_write < options.heartbeat) continue;
    if (!stream.Write(EventText(item)) || item.kind == WatchItem::Kind::kEnd) return;
    last_write = SteadyClock::now();
  }
}

}  // namespace

std::vector<HttpRoute> WebRoutes(JsonGateway& gateway, const LiveFigures& live,
                                 WebOptions options) {
  std::vector<HttpRoute> routes;
  routes.push_back({"/", Page, nullptr});
  routes.push_back(
      {"/api/v1/",
       [&gateway, &live](const HttpRequest& request) { return Api(gateway, live, request); },
       nullptr});
  routes.push_back({"/api/v1/watch", nullptr,
                    [&gateway, options](const HttpRequest& request, HttpStream& stream) {
                      Watch(gateway, options, request, stream);
                    }});
  return routes;
}

}  // namespace blockswap::server
