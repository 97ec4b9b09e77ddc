// SPDX-License-Identifier: Apache-2.0
// Asks the driver for its GPUs again and again, where it can hang without anybody waiting for it.
#ifndef BLOCKSWAP_SERVER_DEVICE_GPU_POLLER_H_
#define BLOCKSWAP_SERVER_DEVICE_GPU_POLLER_H_

#include <chrono>
#include <memory>
#include <vector>

#include "server/base/wall_clock.h"
#include "server/device/nvml.h"

namespace blockswap::server {

struct GpuAnswer {
  std::vector<GpuFacts> gpus;  // empty where the driver refused to list them
  SteadyTime asked{};          // when the last question was put
  bool is_answered = true;     // it was; else the driver is thinking since then
};

// Owns: the library, and once started a thread "gpu-poll". The thread is left behind when the
// driver hangs at the end; what it uses is never freed then. Thread safety: safe.
class GpuPoller final {
 public:
  explicit GpuPoller(std::unique_ptr<Nvml> nvml);  // may be null: no GPUs
  ~GpuPoller();

  bool has_driver() const;
  void Start(std::chrono::milliseconds period);
  // Without the thread it asks now.
  GpuAnswer Latest();

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state, std::chrono::milliseconds period);
  std::shared_ptr<State> state_;
  bool is_started_ = false;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_GPU_POLLER_H_
