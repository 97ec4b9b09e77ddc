// SPDX-License-Identifier: Apache-2.0
// What tells this process from any other, even one that gets its number later.
#ifndef BLOCKSWAP_WORKER_CHANNEL_PROCESS_IDENTITY_H_
#define BLOCKSWAP_WORKER_CHANNEL_PROCESS_IDENTITY_H_

#include <cstdint>
#include <string>

namespace blockswap::worker {

struct ProcessIdentity {
  int64_t pid = 0;
  int64_t start_time =
      0;  // clock ticks after boot, field 22 of /proc/self/stat; 0 when it cannot be read
  std::string boot_id;  // empty when it cannot be read
};

ProcessIdentity ThisProcess();

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CHANNEL_PROCESS_IDENTITY_H_
