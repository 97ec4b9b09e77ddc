// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/link_test.h"

#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "offload/device/cuda_device.h"
#include "offload/device/host_device.h"
#include "worker/commands/report_command.h"

namespace blockswap::worker {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<std::unique_ptr<offload::DeviceRuntime>> OpenDevice(const std::string& name) {
  absl::string_view rest = name;
  int ordinal = 0;
  const bool any = name == "auto";
  if (name != "host") {
    if (!any && !(absl::ConsumePrefix(&rest, "cuda:") && absl::SimpleAtoi(rest, &ordinal) &&
                  ordinal >= 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("device '", name, "' is none of auto, host, cuda:N"));
    }
    auto cuda = offload::CudaDevice::Create(ordinal);
    if (cuda.ok()) return *std::move(cuda);
    if (!any) return cuda.status();
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(auto host, offload::HostDevice::Create({}));
  return host;
}

std::string Rate(const Json& report, const char* key) {
  return absl::StrFormat("%.2f GB/s", report[key].get<double>() / 1e9);
}

std::string Table(const Json& report) {
  std::string text = absl::StrCat("device:       ", report["device"].get<std::string>(), " (",
                                  report["description"].get<std::string>(), ")\n");
  const auto row = [&text](const char* label, const std::string& value) {
    absl::StrAppend(&text, absl::StrFormat("%-14s%s\n", label, value));
  };
  row("to device:", Rate(report, "h2d_bytes_per_second"));
  row("to host:", Rate(report, "d2h_bytes_per_second"));
  row("at once:", absl::StrFormat("%s to device, %s to host, duplex factor %.2f",
                                  Rate(report, "duplex_h2d_bytes_per_second"),
                                  Rate(report, "duplex_d2h_bytes_per_second"),
                                  report["duplex_factor"].get<double>()));
  row("pageable:", Rate(report, "pageable_bytes_per_second"));
  row("latency:", absl::StrFormat("%.1f us", report["latency_seconds"].get<double>() * 1e6));
  row("trial:",
      absl::StrCat("copies of ", base::FormatByteSize(report["trial_bytes"].get<int64_t>()),
                   report["pinned"].get<bool>() ? ", page-locked" : ", not page-locked"));
  return text;
}

}  // namespace

absl::StatusOr<Json> MeasureDeviceLink(const std::string& device, const offload::LinkTrial& trial) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto runtime, OpenDevice(device));
  BLOCKSWAP_ASSIGN_OR_RETURN(const offload::LinkMeasurement measured,
                             offload::MeasureLink(runtime.get(), trial));
  const offload::DeviceFacts facts = runtime->facts();
  Json report;
  report["device"] = facts.name;
  report["description"] = facts.description;
  report["pinned"] = measured.pinned;
  report["trial_bytes"] = trial.bytes;
  report["h2d_bytes_per_second"] = measured.h2d_bytes_per_second;
  report["d2h_bytes_per_second"] = measured.d2h_bytes_per_second;
  report["duplex_h2d_bytes_per_second"] = measured.duplex_h2d_bytes_per_second;
  report["duplex_d2h_bytes_per_second"] = measured.duplex_d2h_bytes_per_second;
  report["duplex_factor"] = measured.duplex_factor;
  report["pageable_bytes_per_second"] = measured.pageable_bytes_per_second;
  report["latency_seconds"] = absl::ToDoubleSeconds(measured.latency);
  return report;
}

int RunLinkTest(int argc, char** argv) {
  std::string device = "auto";
  offload::LinkTrial trial;
  CLI::App app("Measures the bus between host and device.", "blockswap-worker link-test");
  app.add_option("--device", device, "auto, host or cuda:N");
  app.add_option("--bytes", trial.bytes, "of one trial copy");
  app.add_option("--repeats", trial.repeats, "of each trial; the fastest counts");
  return RunReportCommand(
      "link-test", &app, argc, argv, [&] { return MeasureDeviceLink(device, trial); }, Table);
}

}  // namespace blockswap::worker
