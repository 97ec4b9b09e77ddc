// SPDX-License-Identifier: Apache-2.0
// devices, server info and version.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cli/call.h"
#include "client/cli/commands.h"
#include "client/cli/listing.h"
#include "client/cli/pages.h"
#include "client/cli/people_text.h"
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

ExitCode ShowDevices(const Session& session, const Arguments& arguments,
                     const v1::ListDevicesResponse& devices) {
  const ExitCode code = PrintListing<v1::Device>(
      session, arguments, devices, devices.devices(),
      [](const v1::Device& device) { return proto::ToPrintable(DeviceId(device)); },
      {{"DEVICE", DeviceId},
       {"HEALTH", HealthText},
       {"FREE", [](const v1::Device& device) { return base::FormatByteSize(device.free_bytes()); }},
       {"TOTAL",
        [](const v1::Device& device) { return base::FormatByteSize(device.total_bytes()); }},
       {"LINK", LinkText},
       {"JOB",
        [](const v1::Device& device) { return device.job().empty() ? "-" : JobId(device.job()); }},
       {"UUID", [](const v1::Device& device) { return device.uuid(); }, true},
       {"LOCKABLE",
        [](const v1::Device& device) { return base::FormatByteSize(device.lockable_bytes()); },
        true},
       {"DESCRIPTION", [](const v1::Device& device) { return device.description(); }}});
  for (const v1::Device& device : devices.devices()) {
    if (!device.link_warning().empty()) {
      session.err() << "warning: " << proto::ToPrintable(DeviceId(device)) << ": "
                    << proto::ToPrintable(device.link_warning()) << "\n";
    }
  }
  return code;
}

std::string ServerText(const v1::ServerInfo& info) {
  std::string text;
  const auto row = [&text](const char* label, const std::string& value) {
    if (!value.empty()) absl::StrAppendFormat(&text, "%-15s%s\n", label, proto::ToPrintable(value));
  };
  row("version:", absl::StrCat(info.version(), info.commit().empty() ? "" : " ", info.commit()));
  row("started:", Ago(info.start_time(), absl::Now()));
  row("accepts jobs:", info.accepting_jobs() ? "yes" : "no");
  row("architectures:", absl::StrJoin(info.architectures(), ", "));
  row("metrics:", info.metrics_address());
  row("state:", info.state_directory());
  row("models:", info.models_root());
  row("datasets:", info.datasets_root());
  row("outputs:", info.outputs_root());
  return text;
}

}  // namespace

ExitCode RunDevices(Session& session, const Arguments& arguments) {
  return CallServer(
      session,
      [](client::ServerClient& client) {
        return ReadPages(client, &client::ServerClient::ListDevices,
                         &v1::ListDevicesResponse::mutable_devices, v1::ListDevicesRequest());
      },
      [&](const v1::ListDevicesResponse& devices) {
        return ShowDevices(session, arguments, devices);
      });
}

ExitCode RunServerInfo(Session& session, const Arguments&) {
  return CallServer(
      session, &client::ServerClient::GetServerInfo,
      [&session](const v1::ServerInfo& info) { return session.Show(info, ServerText(info)); });
}

ExitCode RunVersion(Session& session, const Arguments&) {
  if (session.structured()) {
    session.out() << absl::StrCat("{\"version\": \"", BLOCKSWAP_VERSION, "\"}\n");
  } else {
    session.out() << "blockswap " << BLOCKSWAP_VERSION << "\n";
  }
  return kOk;
}

}  // namespace blockswap::cli
