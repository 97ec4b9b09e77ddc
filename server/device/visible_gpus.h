// SPDX-License-Identifier: Apache-2.0
// Which of the driver's GPUs CUDA_VISIBLE_DEVICES leaves to this server.
#ifndef BLOCKSWAP_SERVER_DEVICE_VISIBLE_GPUS_H_
#define BLOCKSWAP_SERVER_DEVICE_VISIBLE_GPUS_H_

#include <optional>
#include <string>
#include <vector>

#include "server/device/nvml.h"

namespace blockswap::server {

struct VisibleGpus {
  std::vector<GpuFacts> gpus;  // in the order of the variable
  std::string note;            // one sentence for the log where the choice may surprise; or empty
};

// `value` is the variable, nothing where it is not set. As CUDA reads it: indices, whole or
// shortened UUIDs (GPU-..., MIG-...), separated by commas; what follows the first entry that names
// no GPU, or one named before, is not visible. An index is one of the driver's list (bus order, as
// nvidia-smi counts): CUDA counts so under CUDA_DEVICE_ORDER=PCI_BUS_ID only, and by speed
// otherwise, which nobody can tell without a context. Workers are always given a UUID.
VisibleGpus SelectVisibleGpus(const std::vector<GpuFacts>& gpus,
                              const std::optional<std::string>& value, bool is_bus_order);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_VISIBLE_GPUS_H_
