// SPDX-License-Identifier: Apache-2.0
#include "server/device/mig.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

constexpr int kSuccess = 0;
constexpr unsigned int kEnabled = 1;  // NVML_DEVICE_MIG_ENABLE

template <typename Function>
void FindOne(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
}

}  // namespace

std::string GpuDeviceName(int index, const MigInstance& part) {
  std::string name = absl::StrCat("cuda-", index);
  if (part.is_part()) absl::StrAppend(&name, "-mig-", part.gpu_instance);
  if (part.compute_instance > 0) absl::StrAppend(&name, "-", part.compute_instance);
  return name;
}

void MigFunctions::Find(void* library) {
  FindOne(library, "nvmlDeviceGetMigMode", &mode_);
  FindOne(library, "nvmlDeviceGetMaxMigDeviceCount", &most_);
  FindOne(library, "nvmlDeviceGetMigDeviceHandleByIndex", &by_index_);
  FindOne(library, "nvmlDeviceGetGpuInstanceId", &gpu_instance_);
  FindOne(library, "nvmlDeviceGetComputeInstanceId", &compute_instance_);
  // They came together; without one of them no part can be told from another.
  const bool complete = most_ != nullptr && by_index_ != nullptr && gpu_instance_ != nullptr &&
                        compute_instance_ != nullptr;
  if (!complete) mode_ = nullptr;
}

bool MigFunctions::IsDivided(void* gpu) const {
  unsigned int current = 0, pending = 0;
  return mode_ != nullptr && mode_(gpu, &current, &pending) == kSuccess && current == kEnabled;
}

std::vector<MigFunctions::Part> MigFunctions::PartsOf(void* gpu) const {
  std::vector<Part> parts;
  unsigned int most = 0;
  if (!IsDivided(gpu) || most_(gpu, &most) != kSuccess) return parts;
  for (unsigned int i = 0; i < most; ++i) {
    Part part;
    unsigned int gpu_instance = 0, compute_instance = 0;
    // The places of parts that nobody made do not answer.
    if (by_index_(gpu, i, &part.handle) != kSuccess ||
        gpu_instance_(part.handle, &gpu_instance) != kSuccess ||
        compute_instance_(part.handle, &compute_instance) != kSuccess) {
      continue;
    }
    part.instance = {static_cast<int>(gpu_instance), static_cast<int>(compute_instance)};
    parts.push_back(part);
  }
  return parts;
}

}  // namespace blockswap::server
