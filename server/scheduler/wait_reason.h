// SPDX-License-Identifier: Apache-2.0
// The one reason why a job waits, with its numbers.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_WAIT_REASON_H_
#define BLOCKSWAP_SERVER_SCHEDULER_WAIT_REASON_H_

#include <cstdint>
#include <string>

namespace blockswap::server {

enum class WaitKind {
  kDevice,  // none that it may use has a place, or there is none
  kDeviceMemory,
  kHostMemory,
  kLockedMemory,
  kDisk,
  kAhead,  // what it needs is reserved for a job ahead
  kHeld,
  kPaused,
  kBackoff,
  kUnhealthy,  // the devices that it may use are out of service
};

struct WaitReason {
  WaitKind kind = WaitKind::kDevice;
  std::string device;  // the one that is closest to taking it; as requested where there is none
  std::string other;   // the job that holds the device or is ahead; why the device or queue is out
  int64_t need_bytes = 0, have_bytes = 0;
  int64_t seconds =
      0;  // of backoff that are left, or until the job may start by what is known; 0: not known
  bool operator==(const WaitReason&) const = default;
};

// From the closed list of training.proto: "WAITING_FOR_VRAM".
const char* ReasonName(const WaitReason& reason);
// One line for people: what is missing, how much is needed, how much is there.
std::string MessageOf(const WaitReason& reason);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_WAIT_REASON_H_
