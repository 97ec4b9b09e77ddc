// SPDX-License-Identifier: Apache-2.0
// top: devices and running jobs, drawn again and again.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/interrupt.h"
#include "client/cli/job_columns.h"
#include "client/cli/people_text.h"
#include "client/cli/table.h"
#include "offload/base/byte_size.h"

namespace blockswap::cli {
namespace {

constexpr char kClear[] = "\033[H\033[2J";
constexpr size_t kBarWidth = 20;
constexpr int kPageSize = 200;
constexpr const char* kShown[] = {"JOB",    "STATE",   "STEP", "STEPS/S", "LEFT", "LOSS",
                                  "MEMORY", "PLANNED", "AWAY", "STALL",   "WHY"};

// "[########------------]"
std::string Bar(int64_t used, int64_t total) {
  const double share = total > 0 ? static_cast<double>(used) / static_cast<double>(total) : 0;
  const size_t filled = std::min(kBarWidth, static_cast<size_t>(share * kBarWidth + 0.5));
  return absl::StrCat("[", std::string(filled, '#'), std::string(kBarWidth - filled, '-'), "]");
}

std::string DeviceTable(const v1::ListDevicesResponse& devices, int width) {
  Table table({"DEVICE", "USED", "", "FREE", "JOB", "DESCRIPTION"});
  for (const v1::Device& device : devices.devices()) {
    const int64_t used = device.total_bytes() - device.free_bytes();
    table.AddRow({std::string(absl::StripPrefix(device.name(), "devices/")),
                  base::FormatByteSize(used), Bar(used, device.total_bytes()),
                  base::FormatByteSize(device.free_bytes()),
                  device.job().empty() ? "-" : JobId(device.job()), device.description()});
  }
  return table.Render(width);
}

std::string JobTable(const v1::ListJobsResponse& jobs, int width) {
  const std::vector<Column<v1::Job>> columns = JobColumns(absl::Now());
  std::vector<Column<v1::Job>> shown;
  std::vector<std::string> header;
  for (const char* name : kShown) {
    for (const Column<v1::Job>& column : columns) {
      if (std::string(column.name) == name) shown.push_back(column);
    }
    header.push_back(name);
  }
  Table table(header);
  for (const v1::Job& job : jobs.jobs()) {
    std::vector<std::string> row;
    for (const Column<v1::Job>& column : shown) row.push_back(column.text(job));
    table.AddRow(std::move(row));
  }
  return table.Render(width);
}

absl::StatusOr<std::string> View(client::ServerClient& client, int width) {
  const absl::StatusOr<v1::ListDevicesResponse> devices =
      client.ListDevices(v1::ListDevicesRequest());
  if (!devices.ok()) return devices.status();
  v1::ListJobsRequest request;
  request.set_filter("active");
  request.set_page_size(kPageSize);
  request.set_view(v1::JOB_VIEW_FULL);
  const absl::StatusOr<v1::ListJobsResponse> jobs = client.ListJobs(request);
  if (!jobs.ok()) return jobs.status();
  return absl::StrCat(DeviceTable(*devices, width), "\n", JobTable(*jobs, width));
}

}  // namespace

ExitCode RunTop(Session& session, const Arguments& arguments) {
  std::unique_ptr<InterruptGuard> guard;
  if (session.surroundings().handles_interrupts) {
    guard = std::make_unique<InterruptGuard>([&session] { session.Interrupt(); });
  }
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  const bool draws = session.surroundings().out_is_terminal && !arguments.once;
  do {
    const absl::StatusOr<std::string> view = View(**client, session.table_width());
    if (session.interrupted()) return kOk;
    if (!view.ok()) return session.Fail(view.status());
    session.out() << (draws ? kClear : "") << *view;
    session.out().flush();
  } while (!arguments.once && session.out().good() && (*client)->Pause(arguments.every));
  return kOk;
}

}  // namespace blockswap::cli
