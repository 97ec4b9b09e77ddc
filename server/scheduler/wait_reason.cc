// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/wait_reason.h"

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"

namespace blockswap::server {
namespace {

using base::FormatByteSize;

std::string NeedHave(const std::string& what, const WaitReason& reason) {
  return absl::StrCat("waiting for ", what, ": needs ", FormatByteSize(reason.need_bytes),
                      ", free ", FormatByteSize(reason.have_bytes));
}

// Whole minutes are as exact as an estimate of hours deserves.
std::string Roughly(int64_t seconds) {
  if (seconds < 120) return absl::StrCat(seconds, " s");
  if (seconds < 7200) return absl::StrCat(seconds / 60, " min");
  return absl::StrCat(seconds / 3600, " h");
}

std::string Soon(const WaitReason& reason) {
  return reason.seconds > 0
             ? absl::StrCat(", expected for about ", Roughly(reason.seconds), " more")
             : std::string();
}

std::string DeviceMessage(const WaitReason& reason) {
  if (!reason.other.empty()) {
    return absl::StrCat("device ", reason.device, " is held by job ", reason.other, Soon(reason));
  }
  return absl::StrCat("there is no device \"", reason.device, "\" on this server");
}

std::string AheadMessage(const WaitReason& reason) {
  if (reason.need_bytes > 0) {
    return absl::StrCat("host memory is reserved for job ", reason.other,
                        " ahead in the queue: needs ", FormatByteSize(reason.need_bytes), ", left ",
                        FormatByteSize(reason.have_bytes));
  }
  return absl::StrCat("device ", reason.device, " is reserved for job ", reason.other,
                      " ahead in the queue");
}

}  // namespace

const char* ReasonName(const WaitReason& reason) {
  switch (reason.kind) {
    case WaitKind::kDevice:
      return "WAITING_FOR_DEVICE";
    case WaitKind::kDeviceMemory:
      return "WAITING_FOR_VRAM";
    case WaitKind::kHostMemory:
    case WaitKind::kLockedMemory:
      return "WAITING_FOR_HOST_RAM";
    case WaitKind::kDisk:
      return "WAITING_FOR_DISK";
    case WaitKind::kAhead:
      return "HIGHER_PRIORITY_AHEAD";
    case WaitKind::kHeld:
      return "HELD";
    case WaitKind::kPaused:
      return "QUEUE_PAUSED";
    case WaitKind::kBackoff:
      return "BACKOFF";
    case WaitKind::kUnhealthy:
      break;
  }
  return "DEVICE_UNHEALTHY";
}

std::string MessageOf(const WaitReason& reason) {
  switch (reason.kind) {
    case WaitKind::kDevice:
      return DeviceMessage(reason);
    case WaitKind::kDeviceMemory:
      return NeedHave(absl::StrCat("memory of ", reason.device), reason);
    case WaitKind::kHostMemory:
      return NeedHave("host memory", reason);
    case WaitKind::kLockedMemory:
      return NeedHave("page-locked memory (memory.pinned_memory is required)", reason);
    case WaitKind::kDisk:
      return NeedHave("room for a checkpoint", reason);
    case WaitKind::kAhead:
      return AheadMessage(reason);
    case WaitKind::kHeld:
      return "held until its hold is set to false";
    case WaitKind::kPaused:
      return absl::StrCat("the queue is paused", reason.other.empty() ? "" : ": ", reason.other);
    case WaitKind::kBackoff:
      return absl::StrCat("the next attempt starts in ", reason.seconds, " s");
    case WaitKind::kUnhealthy:
      break;
  }
  return absl::StrCat("device ", reason.device, ": ", reason.other);
}

}  // namespace blockswap::server
