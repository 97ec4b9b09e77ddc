// SPDX-License-Identifier: Apache-2.0
#include "server/device/gpu_sensors.h"

#include <dlfcn.h>

#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

// The part of the library's stable C interface that is used here; its header is not packaged
// everywhere. Its own types, so that sizes agree.
using Device = void*;
using EventSet = void*;
using Unsigned64 = unsigned long long;  // NOLINT(google-runtime-int)
using Signed64 = long long;             // NOLINT(google-runtime-int)

struct Memory {
  Unsigned64 total, free, used;
};
struct Utilization {
  unsigned int gpu, memory;  // percent
};
union Value {
  double real;
  unsigned int narrow;
  Unsigned64 wide;
};
struct FieldValue {
  unsigned int field, scope;
  Signed64 timestamp, latency;
  unsigned int type;
  int result;
  Value value;
};
struct EventData {
  Device device;
  Unsigned64 type, data;
  unsigned int gpu_instance, compute_instance;
};
struct ProcessUse {
  unsigned int pid;
  Unsigned64 bytes;
  unsigned int gpu_instance, compute_instance;
};

constexpr int kSuccess = 0;
constexpr unsigned int kUuidLength = 96;
constexpr unsigned int kTemperatureOfGpu = 0;
constexpr unsigned int kSmClock = 1;
constexpr unsigned int kPcieTxBytes = 197, kPcieRxBytes = 198;  // NVML_FI_DEV_PCIE_COUNT_*
constexpr unsigned int kNarrowType = 1;                         // NVML_VALUE_TYPE_UNSIGNED_INT
constexpr Unsigned64 kXidEvent = 8;                             // nvmlEventTypeXidCriticalError
constexpr Unsigned64 kNotAvailable = ~Unsigned64{0};
constexpr int kMostXids = 64;  // at a time: a card that falls apart must not hold the reader up
constexpr unsigned int kMostProcesses = 64;

using Ask = int (*)(Device, unsigned int*);

std::optional<double> Scaled(Ask ask, Device device, double scale) {
  unsigned int value = 0;
  if (ask == nullptr || ask(device, &value) != kSuccess) return std::nullopt;
  return value * scale;
}

}  // namespace

struct GpuSensors::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned int*) = nullptr;
  int (*by_index)(unsigned int, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned int) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  // May be missing.
  int (*utilization)(Device, Utilization*) = nullptr;
  Ask power = nullptr;
  int (*temperature)(Device, unsigned int, unsigned int*) = nullptr;
  int (*clock)(Device, unsigned int, unsigned int*) = nullptr;
  int (*energy)(Device, Unsigned64*) = nullptr;
  int (*throttle)(Device, Unsigned64*) = nullptr;
  int (*fields)(Device, int, FieldValue*) = nullptr;
  int (*processes)(Device, unsigned int*, ProcessUse*) = nullptr;
  int (*create_events)(EventSet*) = nullptr;
  int (*free_events)(EventSet) = nullptr;
  int (*register_events)(Device, Unsigned64, EventSet) = nullptr;
  int (*wait_events)(EventSet, EventData*, unsigned int) = nullptr;

  MigFunctions mig;
  EventSet events = nullptr;
  std::map<Device, std::pair<int, std::string>> known;  // index and uuid by handle

  template <typename Function>
  bool Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(::dlsym(handle, name));
    return *function != nullptr;
  }

  bool FindAll() {
    Find("nvmlDeviceGetUtilizationRates", &utilization);
    Find("nvmlDeviceGetPowerUsage", &power);
    Find("nvmlDeviceGetTemperature", &temperature);
    Find("nvmlDeviceGetClockInfo", &clock);
    Find("nvmlDeviceGetTotalEnergyConsumption", &energy);
    if (!Find("nvmlDeviceGetCurrentClocksEventReasons", &throttle)) {
      Find("nvmlDeviceGetCurrentClocksThrottleReasons", &throttle);  // its name before R535
    }
    Find("nvmlDeviceGetFieldValues", &fields);
    Find("nvmlDeviceGetComputeRunningProcesses_v3", &processes);
    Find("nvmlEventSetCreate", &create_events);
    Find("nvmlEventSetFree", &free_events);
    Find("nvmlDeviceRegisterEvents", &register_events);
    Find("nvmlEventSetWait_v2", &wait_events);
    mig.Find(handle);
    return Find("nvmlInit_v2", &init) && Find("nvmlShutdown", &shutdown) &&
           Find("nvmlDeviceGetCount_v2", &count) &&
           Find("nvmlDeviceGetHandleByIndex_v2", &by_index) && Find("nvmlDeviceGetUUID", &uuid) &&
           Find("nvmlDeviceGetMemoryInfo", &memory);
  }

  // A card that comes back gets its registration, too.
  void Meet(Device device, int index, const std::string& card) {
    if (!known.emplace(device, std::make_pair(index, card)).second) return;
    if (register_events == nullptr || create_events == nullptr || wait_events == nullptr) return;
    if (events == nullptr && create_events(&events) != kSuccess) events = nullptr;
    if (events != nullptr) register_events(device, kXidEvent, events);
  }

  bool ReadUuid(Device device, GpuReading& reading) const {
    std::array<char, kUuidLength> text{};
    if (uuid(device, text.data(), kUuidLength) != kSuccess) return false;
    reading.uuid = text.data();
    return true;
  }

  bool ReadMemory(Device device, GpuReading& reading) const {
    Memory bytes{};
    if (memory(device, &bytes) != kSuccess) return false;
    reading.total_bytes = static_cast<int64_t>(bytes.total);
    reading.used_bytes = static_cast<int64_t>(bytes.used);
    reading.free_bytes = static_cast<int64_t>(bytes.free);
    return true;
  }

  void ReadBus(Device device, GpuReading& reading) const {
    if (fields == nullptr) return;
    std::array<FieldValue, 2> values{};
    values[0].field = kPcieRxBytes;
    values[1].field = kPcieTxBytes;
    if (fields(device, 2, values.data()) != kSuccess) return;
    const auto number = [&reading](const FieldValue& value) -> std::optional<uint64_t> {
      if (value.result != kSuccess) return std::nullopt;
      if (value.type != kNarrowType) return value.value.wide;
      reading.pcie_modulus = uint64_t{1} << 32;
      return value.value.narrow;
    };
    reading.pcie_rx = number(values[0]);
    reading.pcie_tx = number(values[1]);
  }

  void ReadProcesses(Device device, GpuReading& reading) const {
    if (processes == nullptr) return;
    std::array<ProcessUse, kMostProcesses> uses{};
    unsigned int length = kMostProcesses;
    if (processes(device, &length, uses.data()) != kSuccess) return;
    for (unsigned int i = 0; i < length && i < kMostProcesses; ++i) {
      if (uses[i].bytes == kNotAvailable) continue;
      reading.processes.push_back(
          {static_cast<int64_t>(uses[i].pid), static_cast<int64_t>(uses[i].bytes)});
    }
  }

  void ReadFigures(Device device, GpuReading& reading) const {
    Utilization rates{};
    if (utilization != nullptr && utilization(device, &rates) == kSuccess) {
      reading.utilization_ratio = rates.gpu / 100.0;
    }
    reading.power_watts = Scaled(power, device, 1e-3);
    unsigned int value = 0;
    if (temperature != nullptr && temperature(device, kTemperatureOfGpu, &value) == kSuccess) {
      reading.temperature_celsius = value;
    }
    if (clock != nullptr && clock(device, kSmClock, &value) == kSuccess) {
      reading.sm_clock_hertz = value * 1e6;
    }
    Unsigned64 wide = 0;
    if (energy != nullptr && energy(device, &wide) == kSuccess) {
      reading.energy_joules = static_cast<double>(wide) * 1e-3;
    }
    if (throttle != nullptr && throttle(device, &wide) == kSuccess) reading.throttle_bits = wide;
    ReadBus(device, reading);
  }
};

GpuSensors::GpuSensors(std::unique_ptr<Library> library) : library_(std::move(library)) {}

GpuSensors::~GpuSensors() {
  if (library_->events != nullptr && library_->free_events != nullptr) {
    library_->free_events(library_->events);
  }
  library_->shutdown();
  ::dlclose(library_->handle);
}

absl::StatusOr<std::unique_ptr<GpuSensors>> GpuSensors::Open(const std::string& library) {
  auto opened = std::make_unique<Library>();
  opened->handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened->handle == nullptr) return absl::NotFoundError(absl::StrCat("no ", library));
  const int result = opened->FindAll() ? opened->init() : -1;
  if (result != kSuccess) {
    ::dlclose(opened->handle);
    return absl::NotFoundError(absl::StrCat(library, " cannot be used (code ", result, ")"));
  }
  return std::unique_ptr<GpuSensors>(new GpuSensors(std::move(opened)));
}

absl::StatusOr<std::vector<GpuReading>> GpuSensors::Read() {
  unsigned int count = 0;
  if (library_->count(&count) != kSuccess) {
    return absl::UnavailableError("the driver does not answer");
  }
  std::vector<GpuReading> readings;
  for (unsigned int index = 0; index < count; ++index) {
    Device device = nullptr;
    GpuReading reading;
    if (library_->by_index(index, &device) != kSuccess || !library_->ReadUuid(device, reading)) {
      continue;
    }
    reading.index = static_cast<int>(index);
    const bool is_divided = library_->mig.IsDivided(device);
    if (!is_divided && !library_->ReadMemory(device, reading)) continue;
    library_->Meet(device, reading.index, reading.uuid);
    library_->ReadFigures(device, reading);
    if (!is_divided) library_->ReadProcesses(device, reading);
    readings.push_back(std::move(reading));
    for (const MigFunctions::Part& part : library_->mig.PartsOf(device)) {
      GpuReading of_part;
      of_part.index = static_cast<int>(index);
      of_part.part = part.instance;
      if (!library_->ReadUuid(part.handle, of_part) ||
          !library_->ReadMemory(part.handle, of_part)) {
        continue;
      }
      library_->ReadProcesses(part.handle, of_part);
      readings.push_back(std::move(of_part));
    }
  }
  return readings;
}

std::vector<XidEvent> GpuSensors::TakeXids() {
  std::vector<XidEvent> xids;
  if (library_->events == nullptr) return xids;
  EventData event{};
  while (xids.size() < kMostXids &&
         library_->wait_events(library_->events, &event, /*timeout_ms=*/0) == kSuccess) {
    const auto found = library_->known.find(event.device);
    if (event.type != kXidEvent || found == library_->known.end()) continue;
    xids.push_back({found->second.first, found->second.second, static_cast<int64_t>(event.data)});
  }
  return xids;
}

}  // namespace blockswap::server
