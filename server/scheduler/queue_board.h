// SPDX-License-Identifier: Apache-2.0
// Where each waiting job stands and why it waits, as the last pass over the queue found it.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_QUEUE_BOARD_H_
#define BLOCKSWAP_SERVER_SCHEDULER_QUEUE_BOARD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"
#include "server/scheduler/queue_policy.h"

namespace blockswap::server {

struct QueuePlace {
  int64_t position = 0;  // from 1; 0: held
  WaitReason reason;
};

// Thread safety: safe; readers never wait for a pass.
class QueueBoard final {
 public:
  void Publish(const std::vector<QueuedJob>& jobs, std::vector<QueueDecision> decisions);
  // Nothing for a job that did not wait in the last pass.
  std::optional<QueuePlace> Find(const std::string& id) const;

 private:
  using Places = std::unordered_map<std::string, QueuePlace>;
  mutable base::Mutex mutex_;
  std::shared_ptr<const Places> places_ ABSL_GUARDED_BY(mutex_) = std::make_shared<Places>();
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_QUEUE_BOARD_H_
