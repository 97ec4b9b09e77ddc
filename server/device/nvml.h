// SPDX-License-Identifier: Apache-2.0
// Asks the NVIDIA management library about GPUs, when the machine has it; never creates a CUDA
// context.
#ifndef BLOCKSWAP_SERVER_DEVICE_NVML_H_
#define BLOCKSWAP_SERVER_DEVICE_NVML_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/device/device_link.h"
#include "server/device/mig.h"

namespace blockswap::server {

struct GpuFacts {
  int index = 0;
  std::string uuid, name;
  int64_t total_bytes = 0, free_bytes = 0;
  NegotiatedLink link;
  std::string driver_version;  // empty when the library does not say
  MigInstance part;            // of the GPU with that index, with uuid and memory of its own
  std::string card_uuid;       // of the whole GPU
};

// Thread safety: one thread at a time. The library stays loaded until the destructor.
class Nvml final {
 public:
  // NotFound: no library. FailedPrecondition: there is one, and why it cannot be used.
  static absl::StatusOr<std::unique_ptr<Nvml>> Load(
      const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();

  // A GPU that is divided (MIG) is listed as its parts.
  absl::StatusOr<std::vector<GpuFacts>> Gpus();
  // Empty when the library does not say.
  std::string DriverVersion();

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  std::unique_ptr<Functions> functions_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_NVML_H_
