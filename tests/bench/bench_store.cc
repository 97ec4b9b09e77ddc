// SPDX-License-Identifier: Apache-2.0
// What a long-lived server's state store costs: opening it, listing jobs, a pass over the queue.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/wall_clock.h"
#include "server/store/job_store.h"
#include "tests/server/testing/many_jobs.h"

namespace {

using blockswap::server::JobListQuery;
using blockswap::server::JobRecord;
using blockswap::server::JobStore;
using blockswap::server::PageKeyOf;
using blockswap::server::ParseJobFilter;
using blockswap::server::ParseJobOrder;
using blockswap::server::SteadyNow;

constexpr int kRounds = 200;
constexpr double kListTargetMs = 50, kOpenTargetMs = 2000;

double MillisecondsOf(const std::function<bool()>& work, bool* ok) {
  const auto start = SteadyNow();
  *ok = work() && *ok;
  return std::chrono::duration<double, std::milli>(SteadyNow() - start).count();
}

struct Row {
  std::string what;
  double median = 0, p99 = 0;
};

Row Measure(const std::string& what, const std::function<bool()>& work, bool* ok) {
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) times.push_back(MillisecondsOf(work, ok));
  std::sort(times.begin(), times.end());
  return {what, times[times.size() / 2], times[times.size() * 99 / 100]};
}

// A page of 50, then the one behind it, with places in the queue: what ListJobs does.
bool ListTwoPages(JobStore& store, const std::string& filter, const std::string& order) {
  JobListQuery query;
  query.filter = *ParseJobFilter(filter);
  query.order = *ParseJobOrder(order);
  query.limit = 51;
  for (int page = 0; page < 2; ++page) {
    const auto jobs = store.ListJobs(query);
    if (!jobs.ok() || !store.QueuePositions(*jobs).ok()) return false;
    if (jobs->empty()) return true;
    query.after = PageKeyOf(query.order, jobs->back());
  }
  return true;
}

std::vector<Row> MeasureAll(JobStore& store, bool* ok) {
  std::vector<Row> rows;
  for (const auto& [filter, order] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"active", ""},
           {"terminal", ""},
           {"state=SUCCEEDED", ""},
           {"waiting", "queue_position"},
           {"label.team=team-7", ""},
           {"name:finished-9999", ""},
           {"name:queued-1", "name"},
           {"priority>=3", "priority"},
           {"terminal", "end_time"},
           {"end_time>=2025-10-10T00:00:00Z AND terminal", ""}}) {
    rows.push_back(Measure(
        absl::StrCat("list two pages: ", filter.empty() ? "all" : filter,
                     order.empty() ? "" : " by ", order),
        [&store, filter = filter, order = order] { return ListTwoPages(store, filter, order); },
        ok));
  }
  rows.push_back(Measure(
      "waiting queue", [&store] { return store.WaitingQueue().ok(); }, ok));
  rows.push_back(Measure(
      "counts", [&store] { return store.CountJobs().ok(); }, ok));
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  blockswap::server::ManyJobs jobs;
  jobs.finished = argc > 1 ? std::atoi(argv[1]) : 100000;
  jobs.queued = argc > 2 ? std::atoi(argv[2]) : 10000;
  if (argc > 3) {  // for others to measure
    const absl::Status made = blockswap::server::MakeStore(argv[3], jobs);
    if (!made.ok()) std::fprintf(stderr, "%s\n", std::string(made.message()).c_str());
    return made.ok() ? 0 : 1;
  }
  std::string directory = std::filesystem::temp_directory_path() / "blockswap-bench-XXXXXX";
  if (::mkdtemp(directory.data()) == nullptr) return 1;
  const std::string path = directory + "/jobs.db";
  const absl::Status made = blockswap::server::MakeStore(path, jobs);
  bool ok = made.ok();
  if (!ok) std::fprintf(stderr, "%s\n", std::string(made.message()).c_str());
  std::printf("%d finished jobs, %d queued, %.0f MB\n", jobs.finished, jobs.queued,
              static_cast<double>(std::filesystem::file_size(path)) * 1e-6);
  std::unique_ptr<JobStore> store;
  const double opening = MillisecondsOf(
      [&] {
        auto opened = JobStore::Open(path);
        if (opened.ok()) store = *std::move(opened);
        return store != nullptr && store->PruneRequestIds(0).ok();
      },
      &ok);
  std::printf("%-64s %8.1f ms (target %.0f)\n", "open", opening, kOpenTargetMs);
  double worst = 0;
  for (const Row& row : ok ? MeasureAll(*store, &ok) : std::vector<Row>()) {
    std::printf("%-64s %8.2f ms median, %8.2f ms p99 of %d\n", row.what.c_str(), row.median,
                row.p99, kRounds);
    if (absl::StartsWith(row.what, "list")) worst = std::max(worst, row.p99);
  }
  std::printf("%-64s %8.2f ms (target %.0f)\n", "slowest list, p99", worst, kListTargetMs);
  store.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  if (!ok) return 1;
  return worst < kListTargetMs && opening < kOpenTargetMs ? 0 : 1;
}
