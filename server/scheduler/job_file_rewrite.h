// SPDX-License-Identifier: Apache-2.0
// The job as its worker reads it: the submitted file with the memory the server granted.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_JOB_FILE_REWRITE_H_
#define BLOCKSWAP_SERVER_SCHEDULER_JOB_FILE_REWRITE_H_

#include <cstdint>
#include <string>

namespace blockswap::server {

// An absent or "auto" memory.vram_budget becomes `granted_bytes`, so that the worker plans with
// what was admitted; `swap_override` >= 0 replaces memory.blocks_to_swap. Neither changes results,
// only where blocks live.
std::string JobForWorker(const std::string& spec_json, int64_t granted_bytes, int swap_override);

// The `memory` object of that file alone; an empty one when the job has none.
std::string MemoryForWorker(const std::string& spec_json, int64_t granted_bytes, int swap_override);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_JOB_FILE_REWRITE_H_
