// SPDX-License-Identifier: Apache-2.0
// Errors of GPUs on their way from who reads them from the driver to who acts on them.
#ifndef BLOCKSWAP_SERVER_DEVICE_XID_QUEUE_H_
#define BLOCKSWAP_SERVER_DEVICE_XID_QUEUE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"

namespace blockswap::server {

struct XidEvent {
  int index = 0;
  std::string uuid;  // of the whole card
  int64_t xid = 0;
};

// Shared by both, since the reader of a driver that hangs may outlive the other. Thread safety:
// safe.
class XidQueue final {
 public:
  // A card that falls apart may say so without end while nobody takes: what it said first counts.
  static constexpr size_t kMostEvents = 1024;

  void Put(const std::vector<XidEvent>& events) {
    base::MutexLock lock(mutex_);
    for (const XidEvent& event : events) {
      if (events_.size() < kMostEvents) events_.push_back(event);
    }
  }
  std::vector<XidEvent> TakeAll() {
    base::MutexLock lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  base::Mutex mutex_;
  std::vector<XidEvent> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_XID_QUEUE_H_
