// SPDX-License-Identifier: Apache-2.0
#include "server/device/gpu_driver.h"

#include <stdlib.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/device/visible_gpus.h"

namespace blockswap::server {

GpuDriverOptions GpuDriverOptionsOfEnvironment() {
  GpuDriverOptions options;
  if (const char* visible = ::getenv("CUDA_VISIBLE_DEVICES")) options.visible = visible;
  const char* order = ::getenv("CUDA_DEVICE_ORDER");
  options.is_bus_order = order != nullptr && std::string(order) == "PCI_BUS_ID";
  return options;
}

GpuDriver OpenGpuDriver(const GpuDriverOptions& options) {
  GpuDriver driver;
  auto nvml = Nvml::Load(options.library);
  if (!nvml.ok()) {
    const bool has_device_file = ::access(options.device_file.c_str(), F_OK) == 0;
    if (!absl::IsNotFound(nvml.status())) {
      driver.problem = std::string(nvml.status().message());
    } else if (has_device_file) {
      driver.problem = absl::StrCat(
          "there is ", options.device_file, " but no ", options.library,
          ": install the driver's libraries, or give the container the utility capability "
          "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)");
    }
    return driver;
  }
  driver.nvml = *std::move(nvml);
  auto gpus = driver.nvml->Gpus();
  if (!gpus.ok()) {
    driver.problem = std::string(gpus.status().message());
    return driver;
  }
  if (gpus->empty()) {
    driver.problem =
        "the NVIDIA driver is loaded and lists no GPU: look at nvidia-smi, or give the container "
        "one";
    return driver;
  }
  VisibleGpus visible = SelectVisibleGpus(*gpus, options.visible, options.is_bus_order);
  if (!visible.note.empty()) LogWarning("{}", visible.note);
  driver.gpus = std::move(visible.gpus);
  // A variable that is empty hides them on purpose; one that names none of them is a mistake.
  if (driver.gpus.empty() && !visible.note.empty()) driver.problem = visible.note;
  return driver;
}

}  // namespace blockswap::server
