// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/link_tester.h"

#include <utility>

#include "server/base/log.h"
#include "server/base/thread_name.h"

namespace blockswap::server {
LinkTester::LinkTester(JobStore& store, DeviceTable& devices, LinkTesterOptions options)
    : store_(store), devices_(devices), options_(std::move(options)) {
  absl::StatusOr<Pipe> stop = MakePipe();
  if (!stop.ok()) {
    LogWarning("links are not measured: {}", std::string(stop.status().message()));
    return;
  }
  stop_ = *std::move(stop);
  thread_ = std::thread([this] { Run(); });
}

LinkTester::~LinkTester() {
  stop_.write.Reset();
  Join();
}

void LinkTester::Join() {
  if (thread_.joinable()) thread_.join();
}

void LinkTester::Run() {
  NameThisThread("link-test");
  for (const DeviceState& device : devices_.List()) {
    const auto known = store_.FindLink(device.link_key);
    if (known.ok() && known->has_value()) {
      devices_.SetLink(device.name, **known);
      continue;
    }
    const absl::StatusOr<MeasuredLink> measured = RunLinkTrial(device, options_, stop_.read.get());
    if (absl::IsCancelled(measured.status())) return;
    if (!measured.ok()) {
      LogWarning("device {}: its link is not measured: {}", device.name,
                 std::string(measured.status().message()));
      continue;
    }
    devices_.SetLink(device.name, *measured);
    LogInfo("device {}: {:.1f} GB/s to it, {:.1f} GB/s from it, duplex factor {:.2f}", device.name,
            measured->h2d / 1e9, measured->d2h / 1e9, measured->duplex_factor);
    const absl::Status saved = store_.SaveLink(device.link_key, *measured);
    if (!saved.ok()) LogWarning("device {}: {}", device.name, std::string(saved.message()));
  }
}

}  // namespace blockswap::server
