// SPDX-License-Identifier: Apache-2.0
// Reads what the NVIDIA management library measures on each GPU, for the metrics; never creates a
// CUDA context.
#ifndef BLOCKSWAP_SERVER_DEVICE_GPU_SENSORS_H_
#define BLOCKSWAP_SERVER_DEVICE_GPU_SENSORS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/device/mig.h"
#include "server/device/xid_queue.h"

namespace blockswap::server {

// Of one GPU, or of a part of one (MIG). A figure the card or its driver does not give is absent. A
// GPU that is divided has no memory and no processes of its own: its parts have.
struct GpuReading {
  int index = 0;
  MigInstance part;
  std::string uuid;
  int64_t total_bytes = 0, used_bytes = 0, free_bytes = 0;  // all 0: none
  std::optional<double>
      utilization_ratio;  // share of the last second or less with a kernel running
  std::optional<double> power_watts, temperature_celsius, sm_clock_hertz;
  std::optional<double> energy_joules;       // since the driver was loaded
  std::optional<uint64_t> throttle_bits;     // why clocks are lower than they could be, now
  std::optional<uint64_t> pcie_rx, pcie_tx;  // bytes; may wrap at pcie_modulus
  uint64_t pcie_modulus = 0;                 // 0: does not wrap
  struct Process {
    int64_t pid = 0, bytes = 0;
  };
  std::vector<Process> processes;  // with a context; empty where the driver does not tell
};

// Every call may hang with the driver. Thread safety: one thread at a time. The library stays
// loaded until the destructor.
class GpuSensors final {
 public:
  // NotFound: no library or no driver.
  static absl::StatusOr<std::unique_ptr<GpuSensors>> Open(const std::string& library);
  ~GpuSensors();

  // Unavailable: the driver does not answer. A GPU that fell off the bus is left out.
  absl::StatusOr<std::vector<GpuReading>> Read();
  // The errors since the last call, at most a few at a time; does not wait for any. Empty where the
  // driver has no events.
  std::vector<XidEvent> TakeXids();

 private:
  struct Library;
  explicit GpuSensors(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_GPU_SENSORS_H_
