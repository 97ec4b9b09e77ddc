// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/device_prober.h"

#include <utility>

#include "server/base/log.h"
#include "server/base/thread_name.h"

namespace blockswap::server {

DeviceProber::DeviceProber(LinkTrialOptions options) : options_(std::move(options)) {
  absl::StatusOr<Pipe> stop = MakePipe();
  // Without it a stop waits for the trial's time limit.
  if (stop.ok()) stop_ = *std::move(stop);
  thread_ = std::thread([this] { Run(); });
}

DeviceProber::~DeviceProber() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  stop_.write.Reset();
  thread_.join();
}

void DeviceProber::Probe(const DeviceState& device,
                         std::function<void(const absl::Status&)> report) {
  base::MutexLock lock(mutex_);
  requests_.push_back({device, std::move(report)});
  changed_.SignalAll();
}

void DeviceProber::Run() {
  NameThisThread("device-probe");
  while (true) {
    Request request;
    {
      base::MutexLock lock(mutex_);
      while (requests_.empty() && !stopping_) changed_.Wait(mutex_);
      if (stopping_) return;
      request = std::move(requests_.front());
      requests_.pop_front();
    }
    const absl::Status verdict = RunLinkTrial(request.device, options_, stop_.read.get()).status();
    if (absl::IsCancelled(verdict)) return;
    LogInfo("device {}: {} after a fault", request.device.name,
            verdict.ok() ? "answers" : "does not answer");
    request.report(verdict);
  }
}

}  // namespace blockswap::server
