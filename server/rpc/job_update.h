// SPDX-License-Identifier: Apache-2.0
// Which parts of a submitted job may change, and what an UpdateJob request makes of its spec.
#ifndef BLOCKSWAP_SERVER_RPC_JOB_UPDATE_H_
#define BLOCKSWAP_SERVER_RPC_JOB_UPDATE_H_

#include <string>
#include <vector>

#include "blockswap/v1/training.pb.h"
#include "server/rpc/status_conversion.h"

namespace blockswap::server {

struct SpecUpdate {
  v1::JobSpec spec;                   // with everything the mask names taken over
  std::vector<Violation> violations;  // paths that name nothing, or nothing that may change
  std::vector<std::string>
      changed;  // fields whose value is another than before: "memory.vram_budget"
  bool memory_changed = false;
};

// Fields are named as in a job file (memory.vram_budget, priority, labels, retry.max_restarts) or
// with `spec.` in front. A field that the request leaves out goes back to its default.
SpecUpdate ApplyUpdate(const v1::JobSpec& before, const v1::UpdateJobRequest& request);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_JOB_UPDATE_H_
