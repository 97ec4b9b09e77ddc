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

// Of the library's result codes those that a start can meet.
constexpr int kFunctionMissing = 13;
const char* MeaningOf(int result) {
  switch (result) {
    case 4:
      return "this user may not use the GPUs: look at the rights of /dev/nvidia*";
    case 9:
      return "the NVIDIA driver is not loaded: load it (modprobe nvidia), or start the container "
             "with the GPUs";
    case 12:
    case kFunctionMissing:
      return "the library is too old or no NVIDIA management library";
    case 15:
      return "a GPU has fallen off the bus: restart the machine";
    case 18:
      return "the NVIDIA driver and its library do not match, as after an update: restart the "
             "machine, or unload the old driver";
    default:
      return "the NVIDIA driver did not answer";
  }
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
  MigFunctions mig;

  bool Identify(NvmlDevice device, GpuFacts& facts) const {
    std::array<char, kUuidLength> device_uuid{};
    std::array<char, kNameLength> device_name{};
    if (uuid(device, device_uuid.data(), kUuidLength) != kSuccess ||
        name(device, device_name.data(), kNameLength) != kSuccess) {
      return false;
    }
    facts.uuid = device_uuid.data();
    facts.name = device_name.data();
    return true;
  }

  bool Measure(NvmlDevice device, GpuFacts& facts) const {
    NvmlMemory bytes{};
    if (memory(device, &bytes) != kSuccess) return false;
    facts.total_bytes = static_cast<int64_t>(bytes.total);
    facts.free_bytes = static_cast<int64_t>(bytes.free);
    return true;
  }

  NegotiatedLink LinkOf(NvmlDevice device) const {
    return {.generation = Answer(generation, device),
            .max_generation = Answer(max_generation, device),
            .width = Answer(width, device),
            .max_width = Answer(max_width, device),
            .replays = Answer(replays, device)};
  }
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
  functions->mig.Find(functions->library);
  const int result = complete ? functions->init() : kFunctionMissing;
  if (result != kSuccess) {
    ::dlclose(functions->library);
    return absl::FailedPreconditionError(
        absl::StrCat(library, " cannot be used (code ", result, "): ", MeaningOf(result)));
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
  const std::string version = DriverVersion();
  std::vector<GpuFacts> gpus;
  for (unsigned int index = 0; index < count; ++index) {
    NvmlDevice device = nullptr;
    GpuFacts whole;
    // A GPU that fell off the bus answers none of these: the others stay usable.
    if (functions_->by_index(index, &device) != kSuccess || !functions_->Identify(device, whole)) {
      continue;
    }
    whole.index = static_cast<int>(index);
    whole.link = functions_->LinkOf(device);
    whole.driver_version = version;
    whole.card_uuid = whole.uuid;
    // Of a divided one the memory as a whole is for the privileged alone.
    if (!functions_->mig.IsDivided(device)) {
      if (functions_->Measure(device, whole)) gpus.push_back(std::move(whole));
      continue;
    }
    for (const MigFunctions::Part& part : functions_->mig.PartsOf(device)) {
      GpuFacts facts = whole;  // it has the bus of the whole
      facts.part = part.instance;
      if (functions_->Identify(part.handle, facts) && functions_->Measure(part.handle, facts)) {
        gpus.push_back(std::move(facts));
      }
    }
  }
  return gpus;
}

}  // namespace blockswap::server
