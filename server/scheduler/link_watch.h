// SPDX-License-Identifier: Apache-2.0
// Compares the rate that a running job's copies achieve with what the link test of its device
// measured.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_LINK_WATCH_H_
#define BLOCKSWAP_SERVER_SCHEDULER_LINK_WATCH_H_

#include <cstdint>
#include <string>

#include "server/device/device_link.h"
#include "server/supervisor/worker_update.h"

namespace blockswap::server {

// Copies below this share of the measured rate are called slow. A healthy ring reaches 0.9 of it;
// other traffic of the machine (a data loader, a second card behind the same switch) may take a
// third for a while. A lost lane halves the rate at least.
inline constexpr double kSlowCopyShare = 0.6;
// A verdict counts this many bytes, at PCIe 4 x16 a tenth of a second of copies: single copies of
// small tensors or a few that met something else do not make one.
inline constexpr int64_t kBytesOfVerdict = int64_t{2} << 30;

// Of one attempt. Thread safety: the scheduler's thread only.
class LinkWatch {
 public:
  // Host memory could not be locked: some copies go at the rate of pageable memory.
  void ExpectStaged() { staged_ = true; }

  // What was copied so far is not to be judged.
  void Restart() { begun_ = false; }

  // Takes the counters after a step. Empty, or one sentence when the copies since the last verdict
  // were slow in a direction. The first step only begins the count: loading is before it. Nothing
  // is said where the link was not measured.
  std::string Note(const SwapCounters& now, const MeasuredLink& measured);

 private:
  bool begun_ = false, staged_ = false;
  SwapCounters begin_;  // of what the next verdict counts
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_LINK_WATCH_H_
