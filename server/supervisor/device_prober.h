// SPDX-License-Identifier: Apache-2.0
// Tries a device out after a fault, so that one that is broken gets no more jobs.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_DEVICE_PROBER_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_DEVICE_PROBER_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "offload/base/mutex.h"
#include "server/supervisor/link_trial.h"
#include "server/supervisor/spawn_process.h"

namespace blockswap::server {

// Owns: one thread, "device-probe". Thread safety: safe. The error that made the fault ended with
// its process; a fresh one says whether the device still answers.
class DeviceProber final {
 public:
  explicit DeviceProber(LinkTrialOptions options);
  ~DeviceProber();  // ends a trial that is under way; reports no more
  DeviceProber(const DeviceProber&) = delete;
  DeviceProber& operator=(const DeviceProber&) = delete;

  // `report` gets the verdict on the prober's thread and must only queue.
  void Probe(const DeviceState& device, std::function<void(const absl::Status&)> report);

 private:
  struct Request {
    DeviceState device;
    std::function<void(const absl::Status&)> report;
  };
  void Run();

  const LinkTrialOptions options_;
  Pipe stop_;  // closing the writing end ends a trial
  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<Request> requests_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_DEVICE_PROBER_H_
