// SPDX-License-Identifier: Apache-2.0
// devices, server info and version.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/json_output.h"
#include "client/cli/people_text.h"
#include "client/cli/table.h"
#include "offload/base/byte_size.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

std::string DeviceId(const v1::Device& device) {
  return std::string(absl::StripPrefix(device.name(), "devices/"));
}

std::string HealthText(const v1::Device& device) {
  std::string text(absl::StripPrefix(v1::Device::Health_Name(device.health()), "HEALTH_"));
  if (!device.health_reason().empty()) absl::StrAppend(&text, ": ", device.health_reason());
  return text;
}

// "24.9/26.1 GB/s x1.8": to the device, from it, duplex factor.
std::string LinkText(const v1::Device& device) {
  const v1::DeviceLink& link = device.link();
  if (link.h2d_bytes_per_second() <= 0) return "-";
  return absl::StrFormat("%.1f/%.1f GB/s x%.1f", link.h2d_bytes_per_second() / 1e9,
                         link.d2h_bytes_per_second() / 1e9, link.duplex_factor());
}

}  // namespace

ExitCode RunDevices(Session& session, const Arguments&) {
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  v1::ListDevicesResponse devices;
  v1::ListDevicesRequest request;
  do {
    absl::StatusOr<v1::ListDevicesResponse> page = (*client)->ListDevices(request);
    if (!page.ok()) return session.Fail(page.status());
    devices.mutable_devices()->MergeFrom(page->devices());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());

  if (session.format() == Format::kJson) {
    session.PrintJson(devices);
    return kOk;
  }
  Table table({"DEVICE", "HEALTH", "FREE", "TOTAL", "LINK", "JOB", "DESCRIPTION"});
  for (const v1::Device& device : devices.devices()) {
    if (session.format() == Format::kJsonLines) session.out() << ToJson(device, /*pretty=*/false);
    if (session.format() == Format::kName)
      session.out() << proto::ToPrintable(DeviceId(device)) << "\n";
    table.AddRow({DeviceId(device), HealthText(device), base::FormatByteSize(device.free_bytes()),
                  base::FormatByteSize(device.total_bytes()), LinkText(device),
                  device.job().empty() ? "-" : JobId(device.job()), device.description()});
  }
  if (session.format() == Format::kTable) session.out() << table.Render(session.table_width());
  for (const v1::Device& device : devices.devices()) {
    if (!device.link_warning().empty()) {
      session.err() << "warning: " << proto::ToPrintable(DeviceId(device)) << ": "
                    << proto::ToPrintable(device.link_warning()) << "\n";
    }
  }
  return kOk;
}

ExitCode RunServerInfo(Session& session, const Arguments&) {
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  const absl::StatusOr<v1::ServerInfo> info = (*client)->GetServerInfo();
  if (!info.ok()) return session.Fail(info.status());
  if (session.json()) {
    session.PrintJson(*info);
    return kOk;
  }
  const auto row = [&session](const char* label, const std::string& value) {
    if (!value.empty())
      session.out() << absl::StrFormat("%-15s%s\n", label, proto::ToPrintable(value));
  };
  row("version:", absl::StrCat(info->version(), info->commit().empty() ? "" : " ", info->commit()));
  row("started:", Ago(info->start_time(), absl::Now()));
  row("accepts jobs:", info->accepting_jobs() ? "yes" : "no");
  row("architectures:", absl::StrJoin(info->architectures(), ", "));
  row("metrics:", info->metrics_address());
  row("state:", info->state_directory());
  row("models:", info->models_root());
  row("datasets:", info->datasets_root());
  row("outputs:", info->outputs_root());
  return kOk;
}

ExitCode RunVersion(Session& session, const Arguments&) {
  if (session.json()) {
    session.out() << absl::StrCat("{\"version\": \"", BLOCKSWAP_VERSION, "\"}\n");
  } else {
    session.out() << "blockswap " << BLOCKSWAP_VERSION << "\n";
  }
  return kOk;
}

}  // namespace blockswap::cli
