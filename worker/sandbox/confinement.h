// SPDX-License-Identifier: Apache-2.0
// Takes away from this process what training does not need, before it reads what strangers wrote.
#ifndef BLOCKSWAP_WORKER_SANDBOX_CONFINEMENT_H_
#define BLOCKSWAP_WORKER_SANDBOX_CONFINEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace blockswap::worker {

enum class ConfinementMode {
  kOff,
  kAuto,      // as far as the kernel can
  kRequired,  // refuses to run where it cannot
};
// InvalidArgument: none of auto, required, off.
absl::StatusOr<ConfinementMode> ParseConfinementMode(absl::string_view name);

// Directories or files with all below them; what is not there is left out.
struct AllowedPaths {
  std::vector<std::string> data;      // read
  std::vector<std::string> programs;  // read and execute: libraries are mapped to be executed
  std::vector<std::string> devices;   // read, write and ioctl, nothing is made there
  std::vector<std::string> output;    // everything but execute
};

// What any program with CUDA needs: system libraries, /proc, /sys, /dev, its own folders and those
// of the libraries it has loaded, the cache of compiled kernels.
AllowedPaths SystemPaths();

struct Confinement {
  int landlock_abi = 0;  // 0: the kernel has none, files are not confined
  bool no_tcp = false;   // sockets of the network are closed to this process
  bool no_signals = false;
  std::string ToText() const;  // one line for the log
};

// Version of Landlock the kernel offers; 0 for none.
int LandlockAbi();

// For good, for this thread and all threads and processes it makes later: no new privileges, no
// core dump, a limit on descriptors and processes; with Landlock only `paths`, no TCP, no signals
// to others. REQUIRES: no other thread runs yet. FailedPrecondition: `mode` is kRequired and the
// kernel has no Landlock, or other threads run. Internal: the kernel refused.
absl::StatusOr<Confinement> ConfineThisProcess(ConfinementMode mode, const AllowedPaths& paths);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_SANDBOX_CONFINEMENT_H_
