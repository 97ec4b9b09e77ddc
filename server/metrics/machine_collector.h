// SPDX-License-Identifier: Apache-2.0
// What the kernel and the state store know, as metric families; each function is one for a
// Collector.
#ifndef BLOCKSWAP_SERVER_METRICS_MACHINE_COLLECTOR_H_
#define BLOCKSWAP_SERVER_METRICS_MACHINE_COLLECTOR_H_

#include <prometheus/metric_family.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "offload/base/host_facts.h"
#include "server/metrics/collector.h"
#include "server/metrics/gpu_collector.h"
#include "server/metrics/slot_metrics.h"
#include "server/store/job_store.h"

namespace blockswap::server {

// Host memory by source (host, cgroup, effective), and what may be page-locked. `slots` outlives
// the reading.
Collector::Read ReadHostMemory(const SlotMetrics& slots, base::HostFactsPaths paths = {});

// Disk space by area. Owns its list: a file system of a lost server hangs for ever.
using StorageAreas = std::vector<std::pair<const char*, std::string>>;  // area, directory
Collector::Read ReadStorage(StorageAreas areas);

// Jobs by state, all states always, and how the store is. It outlives the reading.
Collector::Read ReadStore(JobStore& store);

// Memory of the workers' processes, which goes to the slots' own gauges: no families. `slots`
// outlives the reading. Unavailable when the kernel tells of no process at all.
Collector::Read ReadWorkers(SlotMetrics& slots, std::shared_ptr<DeviceUse> use,
                            std::string proc = "/proc");

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_MACHINE_COLLECTOR_H_
