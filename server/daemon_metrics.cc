// SPDX-License-Identifier: Apache-2.0
// What the daemon reads for its metrics, beside what its own parts tell.
#include <unistd.h>

#include <chrono>
#include <memory>

#include "server/daemon.h"
#include "server/metrics/dcgm_job_mapping.h"
#include "server/metrics/gpu_collector.h"
#include "server/metrics/machine_collector.h"

namespace blockswap::server {

void Daemon::StartCollectors() {
  SlotMetrics& slots = metrics_->slots();
  const auto use = std::make_shared<DeviceUse>();
  GpuCollectorOptions gpus;
  gpus.library = config_.gpu_library;
  gpus.health = config_.gpu_health_metrics;
  gpus.expects_gpu = ::access("/dev/nvidiactl", F_OK) == 0;
  collectors_ = std::make_unique<CollectorSet>();
  collectors_->Add("nvml", ReadGpus(gpus, use, xids_));
  collectors_->Add("storage", ReadStorage({{"state", config_.state_dir},
                                           {"outputs", config_.outputs},
                                           {"cache", config_.datasets}}));
  // These use parts of ours, so their last reading is waited for.
  CollectorOptions joined;
  joined.patience = std::chrono::hours(1);
  collectors_->Add("cgroup", ReadHostMemory(slots), joined);
  collectors_->Add("store", ReadStore(*store_), joined);
  collectors_->Add("worker", ReadWorkers(slots, use), joined);
  if (!config_.dcgm_job_mapping_dir.empty()) {
    collectors_->Add("dcgm", WriteDcgmJobMapping(config_.dcgm_job_mapping_dir, slots), joined);
  }
  metrics_->AddSource([this] { return collectors_->Collect(); });
}

}  // namespace blockswap::server
