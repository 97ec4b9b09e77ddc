// SPDX-License-Identifier: Apache-2.0
// Times /metrics of a server with many slots, each scrape over a connection of its own:
// bench_metrics [slots] [scrapes a second] [seconds].
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "offload/base/mutex.h"
#include "offload/base/proc_file.h"
#include "server/metrics/http_server.h"
#include "tests/server/testing/full_metrics.h"
#include "tests/server/testing/http_client.h"
#include "tests/server/testing/temporary_directory.h"

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// As the daemon has it: a text is served for so long.
constexpr milliseconds kMetricsAge{200};

double Milliseconds(steady_clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

int64_t Resident() {
  return blockswap::base::ReadProcBytes("/proc/self/status", "VmRSS").value_or(0);
}

void Print(const char* what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&times](double share) {
    return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
  };
  std::printf("%-22s %5zu   p50 %7.2f ms   p99 %7.2f ms   max %7.2f ms\n", what, times.size(),
              at(0.5), at(0.99), times.back());
}

}  // namespace

int main(int argc, char** argv) {
  const int slots = argc > 1 ? std::atoi(argv[1]) : 16;
  const int rate = argc > 2 ? std::atoi(argv[2]) : 10;
  const int seconds = argc > 3 ? std::atoi(argv[3]) : 10;
  const blockswap::server::TemporaryDirectory directory;
  blockswap::server::FullMetrics full(directory.path(), slots);
  blockswap::server::HttpContent content;
  content.metrics = [&full] { return *full.metrics().RenderAtMost(kMetricsAge); };
  content.healthy = content.ready = [] { return true; };
  auto server = blockswap::server::HttpServer::Start("127.0.0.1:0", std::move(content));
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", std::string(server.status().message()).c_str());
    return EXIT_FAILURE;
  }
  const std::string text = full.metrics().Render();
  std::printf("%d slots, %lld series, %zu bytes, %d scrapes/s for %d s\n", slots,
              static_cast<long long>(full.metrics().CountSeries()), text.size(), rate, seconds);
  const int64_t before = Resident();
  std::vector<double> scrapes, renders;
  auto next = steady_clock::now();
  // Nobody signals it: it only waits for the time.
  blockswap::base::Mutex mutex;
  blockswap::base::CondVar nothing;
  blockswap::base::MutexLock lock(mutex);
  for (int i = 0; i < rate * seconds; ++i) {
    while (nothing.WaitUntil(mutex, next)) {
    }
    full.Step();
    const auto begin = steady_clock::now();
    const auto reply = blockswap::server::HttpFetch((*server)->port(), "/metrics");
    if (reply.status != 200) return EXIT_FAILURE;
    scrapes.push_back(Milliseconds(steady_clock::now() - begin));
    next += std::chrono::microseconds(1000000 / rate);
  }
  for (int i = 0; i < 100; ++i) {
    const auto begin = steady_clock::now();
    full.metrics().Render();
    renders.push_back(Milliseconds(steady_clock::now() - begin));
  }
  Print("scrape over HTTP", std::move(scrapes));
  Print("rendering alone", std::move(renders));
  std::printf("resident memory grew by %.1f MiB\n",
              static_cast<double>(Resident() - before) / (1 << 20));
  return EXIT_SUCCESS;
}
