// SPDX-License-Identifier: Apache-2.0
// Opens the GPU driver's library at the start and says in one sentence what is wrong where GPUs
// should be and are not.
#ifndef BLOCKSWAP_SERVER_DEVICE_GPU_DRIVER_H_
#define BLOCKSWAP_SERVER_DEVICE_GPU_DRIVER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/device/nvml.h"

namespace blockswap::server {

struct GpuDriverOptions {
  std::string library = "libnvidia-ml.so.1";
  std::string device_file = "/dev/nvidiactl";  // there where a driver is loaded
  std::optional<std::string> visible;          // CUDA_VISIBLE_DEVICES
  bool is_bus_order = false;                   // CUDA_DEVICE_ORDER=PCI_BUS_ID
};

// The variables of this process.
GpuDriverOptions GpuDriverOptionsOfEnvironment();

struct GpuDriver {
  std::unique_ptr<Nvml> nvml;  // null: none
  std::vector<GpuFacts> gpus;  // that this server may use
  // Empty on a machine with GPUs that work, on one that never had a driver, and where
  // CUDA_VISIBLE_DEVICES hides all: then a server without GPUs is what somebody wants. Else it is
  // not.
  std::string problem;
};

GpuDriver OpenGpuDriver(const GpuDriverOptions& options);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_GPU_DRIVER_H_
