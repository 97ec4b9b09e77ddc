// SPDX-License-Identifier: Apache-2.0
#include "server/device/nvml.h"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

// The part of the library's stable C interface that is used here; its header is not packaged
// everywhere.
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total, free, used;  // NOLINT(google-runtime-int): the library's own type
};
using Ask = int (*)(NvmlDevice, unsigned int*);
constexpr int kSuccess = 0;
constexpr unsigned int kDriverLength = 80;
constexpr unsigned int kUuidLength = 96;
constexpr unsigned int kNameLength = 96;

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

// 0 where the library or the card does not tell.
int Answer(Ask ask, NvmlDevice device) {
  unsigned int value = 0;
  return ask != nullptr && ask(device, &value) == kSuccess ? static_cast<int>(value) : 0;
}

}  // namespace

struct Nvml::Functions {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned int*) = nullptr;
  int (*by_index)(unsigned int, NvmlDevice*) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned int) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned int) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  // May be missing.
  int (*driver)(char*, unsigned int) = nullptr;
  Ask generation = nullptr, max_generation = nullptr, width = nullptr, max_width = nullptr,
      replays = nullptr;
};

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() {
  functions_->shutdown();
  ::dlclose(functions_->library);
}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Load(const std::string& library) {
  auto functions = std::make_unique<Functions>();
  functions->library = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (functions->library == nullptr) return absl::NotFoundError(absl::StrCat("no ", library));
  const bool complete =
      Find(functions->library, "nvmlInit_v2", &functions->init) &&
      Find(functions->library, "nvmlShutdown", &functions->shutdown) &&
      Find(functions->library, "nvmlDeviceGetCount_v2", &functions->count) &&
      Find(functions->library, "nvmlDeviceGetHandleByIndex_v2", &functions->by_index) &&
      Find(functions->library, "nvmlDeviceGetUUID", &functions->uuid) &&
      Find(functions->library, "nvmlDeviceGetName", &functions->name) &&
      Find(functions->library, "nvmlDeviceGetMemoryInfo", &functions->memory);
  Find(functions->library, "nvmlSystemGetDriverVersion", &functions->driver);
  Find(functions->library, "nvmlDeviceGetCurrPcieLinkGeneration", &functions->generation);
  Find(functions->library, "nvmlDeviceGetMaxPcieLinkGeneration", &functions->max_generation);
  Find(functions->library, "nvmlDeviceGetCurrPcieLinkWidth", &functions->width);
  Find(functions->library, "nvmlDeviceGetMaxPcieLinkWidth", &functions->max_width);
  Find(functions->library, "nvmlDeviceGetPcieReplayCounter", &functions->replays);
  const int result = complete ? functions->init() : -1;
  if (result != kSuccess) {
    ::dlclose(functions->library);
    return absl::NotFoundError(absl::StrCat(library, " cannot be used (code ", result, ")"));
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

std::string Nvml::DriverVersion() {
  std::array<char, kDriverLength> version{};
  const bool known = functions_->driver != nullptr &&
                     functions_->driver(version.data(), kDriverLength) == kSuccess;
  return known ? version.data() : "";
}

absl::StatusOr<std::vector<GpuFacts>> Nvml::Gpus() {
  unsigned int count = 0;
  if (functions_->count(&count) != kSuccess)
    return absl::UnavailableError("the driver does not answer");
  std::vector<GpuFacts> gpus;
  for (unsigned int index = 0; index < count; ++index) {
    NvmlDevice device = nullptr;
    std::array<char, kUuidLength> uuid{};
    std::array<char, kNameLength> name{};
    NvmlMemory memory{};
    // A GPU that fell off the bus answers none of these: the others stay usable.
    if (functions_->by_index(index, &device) != kSuccess ||
        functions_->uuid(device, uuid.data(), kUuidLength) != kSuccess ||
        functions_->name(device, name.data(), kNameLength) != kSuccess ||
        functions_->memory(device, &memory) != kSuccess) {
      continue;
    }
    const NegotiatedLink link = {.generation = Answer(functions_->generation, device),
                                 .max_generation = Answer(functions_->max_generation, device),
                                 .width = Answer(functions_->width, device),
                                 .max_width = Answer(functions_->max_width, device),
                                 .replays = Answer(functions_->replays, device)};
    gpus.push_back({static_cast<int>(index), uuid.data(), name.data(),
                    static_cast<int64_t>(memory.total), static_cast<int64_t>(memory.free), link});
  }
  return gpus;
}

}  // namespace blockswap::server
