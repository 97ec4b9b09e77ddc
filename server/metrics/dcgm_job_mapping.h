// SPDX-License-Identifier: Apache-2.0
// Tells a DCGM exporter which job runs on which GPU: one file a GPU, named by its index ("0.7": a
// part of it), with the job's id, as `dcgm-exporter --hpc-job-mapping-dir` reads them.
#ifndef BLOCKSWAP_SERVER_METRICS_DCGM_JOB_MAPPING_H_
#define BLOCKSWAP_SERVER_METRICS_DCGM_JOB_MAPPING_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/metrics/collector.h"
#include "server/metrics/slot_metrics.h"

namespace blockswap::server {

// Thread safety: one thread at a time.
class DcgmJobMapping final {
 public:
  // `directory` exists.
  explicit DcgmJobMapping(std::string directory) : directory_(std::move(directory)) {}

  // Makes the files say which of `workers` holds which GPU; only what changed is written, each by
  // rename. A GPU without a job gets an empty file: the exporter reads each it once saw.
  // Unavailable when the directory cannot be written.
  absl::Status Update(const std::vector<SlotMetrics::Worker>& workers);

 private:
  absl::Status Write(const std::string& gpu, const std::string& jobs) const;

  const std::string directory_;
  std::map<std::string, std::string> written_;  // jobs by GPU index
};

// For a Collector. `slots` outlives the reading.
Collector::Read WriteDcgmJobMapping(std::string directory, const SlotMetrics& slots);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_DCGM_JOB_MAPPING_H_
